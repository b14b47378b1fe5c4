"""An HTTP tool: a server that nodes call, and that believes only requests with their signature.

The nodes must have the same secret: start them with PRICE_SECRET=whsec_… in their environment.
"""

import os
import sys
import threading
import time
from typing import Any
from wsgiref.simple_server import make_server

from abide_client import Abide
from abide_client.http_tools import HttpTools, Request, Rejection

tools = HttpTools(secrets=[os.environ["PRICE_SECRET"]])


@tools.tool("price")
def price(args: Any, request: Request) -> dict[str, Any]:
    if "sku" not in args:
        raise Rejection("which article?")
    print("asked for the price of", args["sku"], flush=True)
    time.sleep(0.3)  # It is looked up. A node that dies meanwhile asks again, and this runs once.
    return {"sku": args["sku"], "price": 12.5}


server = make_server("127.0.0.1", 0, tools.wsgi)
threading.Thread(target=server.serve_forever, daemon=True).start()

# A model that needs no key, and takes its time like a real one.
script = [
    {"delay": "100ms", "text": "Let me see.", "calls": [{"name": "price", "args": {"sku": "A-17"}}]},
    {"delay": "100ms", "text": "It costs {{ results.price.result.price }}."},
]
url = f"http://127.0.0.1:{server.server_port}/price"
agent = {
    "model": {"provider": "scripted", "script": script},
    "tools": [
        {
            "name": "price",
            "parameters": {"type": "object", "properties": {"sku": {"type": "string"}}},
            "run": {"http": {"url": url, "signing_secret_env": "PRICE_SECRET"}},
        }
    ],
}

with Abide() as abide:
    abide.define("shop", agent)
    conversation = abide.conversation(*sys.argv[1:2], agent="shop")
    print(conversation.send("What does it cost?").result(timeout=60).text)
server.shutdown()
