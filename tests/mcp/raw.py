"""An MCP server over stdio that misbehaves in ways that no library allows: `raw.py MODE`."""

import json
import sys
import time

mode = sys.argv[1]
TOOLS = [{"name": "echo", "inputSchema": {"type": "object"}}]


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def listing(params):
    if mode == "unlisted":
        time.sleep(60)
    if mode == "endless":
        at = int((params or {}).get("cursor", "0"))
        return {"tools": [{**TOOLS[0], "name": f"t{at}"}], "nextCursor": str(at + 1)}
    if mode == "crowd":
        return {"tools": [{**TOOLS[0], "name": f"t{n}"} for n in range(1000)]}
    if mode == "liar":
        lies = [{"type": "array"}, {"type": "object", "$ref": "http://127.0.0.1:1/s.json"},
                {"type": "object", "description": "x" * 200_000}, {"properties": {"a": 1}}]
        return {"tools": [{"name": f"lie{n}", "inputSchema": lie} for n, lie in enumerate(lies)] + TOOLS}
    return {"tools": TOOLS}


def call(id):
    if mode == "babble":
        while True:
            sys.stdout.write("x" * 65536)
    if mode == "nag":
        for n in range(200_000):
            send({"id": f"n{n}", "method": "elicitation/create",
                 "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}})
        time.sleep(60)
    if mode == "nonsense":
        return send({"id": id, "result": {"anything": [1]}})
    send({"id": id, "result": {"content": [{"type": "text", "text": "echoed"}]}})


for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "server/discover" and mode != "silent":
        send({"id": id, "error": {"code": -32601, "message": "what?"}})
    elif method == "initialize":
        send({"id": id, "result": {
            "protocolVersion": "2025-03-26", "capabilities": {"tools": {}},
            "serverInfo": {"name": "raw", "version": "0"}}})
    elif method == "tools/list":
        send({"id": id, "result": listing(message.get("params"))})
    elif method == "tools/call":
        call(id)
