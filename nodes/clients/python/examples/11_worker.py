"""A worker: it takes calls from a queue, from behind any firewall.

Start as many as you like: each call is one worker's at a time.
"""

import sys
import threading
import time
from collections.abc import Generator
from typing import Any

from abide_client import Abide
from abide_client.worker import Request, Worker

worker = Worker("print", concurrency=2, lease=2.0)


@worker.tool("print_pages")
def print_pages(args: Any, request: Request) -> Generator[Any, None, dict[str, Any]]:
    print("printing, attempt", request.attempt, flush=True)
    for page in range(args["pages"]):
        time.sleep(0.3)  # A worker that dies meanwhile loses the call to another one.
        yield {"page": page + 1}
    return {"printed": args["pages"]}


script = [
    {"calls": [{"name": "print_pages", "args": {"pages": 3}}]},
    {"text": "Printed {{ results.print_pages.result.printed }} pages."},
]
tool = {
    "name": "print_pages",
    "parameters": {"type": "object", "properties": {"pages": {"type": "integer"}}},
    "run": {"queue": "print"},
    "timeout": "1h",
}

if sys.argv[2:] == ["work"]:
    worker.run()
else:
    working = threading.Thread(target=worker.run)
    working.start()
    with Abide() as abide:
        abide.define("printer", {"model": {"provider": "scripted", "script": script}, "tools": [tool]})
        conversation = abide.conversation(*sys.argv[1:2], agent="printer")
        print(conversation.send("Print it, please.").result(timeout=60).text)
    worker.stop()
    working.join()
