"""A test server of the newest MCP version: `server.py stdio | http [PORT]`.

Its state is in memory, except for the state of `ask`, which comes back with the answer, unencrypted, so
that any process of this program can continue.
"""

import asyncio
import base64
import json
import os
import socket
import sys

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

PIXEL = base64.b64encode(b"a pixel").decode()
PAGE_SIZE = 5

bus = InMemorySubscriptionBus()
extra: list[str] = []
cancelled: list[str] = []


def schema(**properties):
    return {"type": "object", "properties": properties}


TEXT = {"type": "string"}
NUMBER = {"type": "number"}
PLAIN = {
    "echo": schema(text={"type": "string", "default": "nothing"}),
    "fail": schema(),
    "broken": schema(),
    "slow": schema(seconds=NUMBER, tag=TEXT),
    "cancelled": schema(),
    "progress": schema(steps=NUMBER),
    "image": schema(),
    "structured": schema(n=NUMBER),
    "liar": schema(),
    "ask": schema(to=TEXT),
    "ask_twice": schema(),
    "busy": schema(),
    "sample": schema(),
    "meta": schema(),
    "env": schema(),
    "reach": schema(read=TEXT, write=TEXT, connect=NUMBER),
    "pid": schema(),
    "die": schema(),
    "hang": schema(),
    "flood": schema(bytes=NUMBER),
    "chatter": schema(times=NUMBER),
    "grow": schema(name=TEXT),
    "shrink": schema(name=TEXT),
    "strict": {**schema(n={"type": "integer"}), "required": ["n"]},
    "dots.and spaces": schema(),
    "dots_and_spaces": schema(),
    "from_the_network": {"type": "object", "$ref": "http://127.0.0.1:1/schema.json"},
    "no_schema": {"type": "object", "properties": {"a": {"type": "banana"}}},
}
OUTPUT = {**schema(n=NUMBER), "required": ["n"]}
HINTS = types.ToolAnnotations(read_only_hint=True, destructive_hint=False)


def tool(name, parameters):
    output = OUTPUT if name in ("structured", "liar") else None
    return types.Tool(
        name=name, description=f"It does {name}.", input_schema=parameters, output_schema=output,
        annotations=HINTS,
    )


def all_tools():
    return [tool(name, parameters) for name, parameters in PLAIN.items()] + [
        tool(name, schema()) for name in extra
    ]


async def on_list_tools(ctx, params):
    begin = int(params.cursor) if params and params.cursor else 0
    tools = all_tools()
    end = begin + PAGE_SIZE
    return types.ListToolsResult(
        tools=tools[begin:end], next_cursor=str(end) if end < len(tools) else None,
        ttl_ms=600_000, cache_scope="private",
    )


def text(content):
    return types.CallToolResult(content=[types.TextContent(text=content)])


def reach(args):
    """Reads, writes or connects to what the arguments name; PARENT in a path is the parent process."""
    try:
        if "read" in args:
            open(args["read"].replace("PARENT", str(os.getppid())), "rb").read()
        if "write" in args:
            open(args["write"], "w").write("reached")
        if "connect" in args:
            socket.create_connection(("127.0.0.1", int(args["connect"]))).close()
        return "reached"
    except OSError as error:
        return type(error).__name__


def form(message, **properties):
    required = list(properties)
    return types.ElicitRequest(params=types.ElicitRequestFormParams(
        message=message, requested_schema={**schema(**properties), "required": required},
    ))


def input_required(requests, state):
    return types.InputRequiredResult(input_requests=requests, request_state=json.dumps(state))


def answer(params, name):
    return params.input_responses[name].model_dump(mode="json", exclude_none=True)


async def on_call_tool(ctx, params):
    name, args = params.name, params.arguments or {}
    state = json.loads(params.request_state) if params.request_state else None
    match name:
        case "echo":
            return text(args.get("text", "no text"))
        case "fail":
            return types.CallToolResult(content=[types.TextContent(text="no luck")], is_error=True)
        case "broken":
            raise ValueError("a secret of the server")
        case "slow":
            try:
                await asyncio.sleep(args["seconds"])
            except asyncio.CancelledError:
                cancelled.append(args.get("tag", "?"))
                raise
            return text("slept")
        case "cancelled":
            return text(json.dumps(cancelled))
        case "progress":
            steps = int(args.get("steps", 3))
            for step in range(1, steps + 1):
                await ctx.session.report_progress(step, steps, f"step {step}")
            return text("done")
        case "image":
            return types.CallToolResult(content=[
                types.TextContent(text="look"), types.ImageContent(data=PIXEL, mime_type="image/png"),
            ])
        case "structured":
            return types.CallToolResult(
                content=[types.TextContent(text="n")], structured_content={"n": args.get("n", 7)})
        case "liar":
            return types.CallToolResult(content=[], structured_content={"n": "seven"})
        case "ask" if state is None:
            return input_required(
                {"confirm": form(f"Send to {args.get('to')}?", ok={"type": "boolean"})},
                {"to": args.get("to"), "by": os.getpid()},
            )
        case "ask":
            return text(json.dumps({"answer": answer(params, "confirm"), "state": state,
                                    "other": state["by"] != os.getpid()}))
        case "ask_twice" if state is None:
            return input_required({"first": form("First?", a=TEXT)}, ["first"])
        case "ask_twice" if state == ["first"]:
            first = answer(params, "first")["content"]["a"]
            forms = {"second": form("Second?", b=TEXT), "third": form("Third?", c=TEXT)}
            return input_required(forms, [first])
        case "ask_twice":
            answers = [answer(params, name)["content"] for name in ("second", "third")]
            return text(json.dumps([state, answers]))
        case "busy":
            rounds = state or 0
            if rounds < 2:
                return types.InputRequiredResult(request_state=json.dumps(rounds + 1))
            return text(f"after {rounds} rounds")
        case "sample":
            params = types.CreateMessageRequestParams(messages=[], max_tokens=1)
            return input_required({"x": types.CreateMessageRequest(params=params)}, None)
        case "meta":
            return text(json.dumps(dict(ctx.params.get("_meta", {}))))
        case "env":
            return text(json.dumps(dict(os.environ)))
        case "reach":
            return text(reach(args))
        case "pid":
            return text(str(os.getpid()))
        case "die":
            os._exit(9)
        case "hang":
            await asyncio.Event().wait()
        case "flood":
            return text("x" * int(args["bytes"]))
        case "chatter":
            for step in range(int(args["times"])):
                await ctx.session.report_progress(step, None, "x" * 1000)
            return text("said")
        case "grow":
            extra.append(args["name"])
            await bus.publish(ToolsListChanged())
            return text("grown")
        case "shrink":
            extra.remove(args["name"])
            await bus.publish(ToolsListChanged())
            return text("shrunk")
        case "strict":
            return text(str(args["n"]))
    if name in extra:
        return text(f"I am {name}")
    raise ValueError("no such tool")


server = Server(
    "tests", on_list_tools=on_list_tools, on_call_tool=on_call_tool,
    on_subscriptions_listen=ListenHandler(bus),
)


async def over_stdio():
    print("a server logs something", file=sys.stderr, flush=True)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def over_http():
    import uvicorn

    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(sys.argv[2]) if len(sys.argv) > 2 else 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    app = server.streamable_http_app()
    if token := os.environ.get("NEEDED_TOKEN"):
        app = require_token(app, token)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


def require_token(app, token):
    async def wrapped(scope, receive, send):
        if scope["type"] == "http" and dict(scope["headers"]).get(b"x-token") != token.encode():
            await send({"type": "http.response.start", "status": 403, "headers": []})
            return await send({"type": "http.response.body", "body": b"no"})
        return await app(scope, receive, send)

    return wrapped


if sys.argv[1] == "stdio":
    asyncio.run(over_stdio())
else:
    over_http()
