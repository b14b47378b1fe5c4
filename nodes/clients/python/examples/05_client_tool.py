"""A client tool: the model calls a function of this program."""

import sys
from typing import Any

from abide_client import Abide, Call

with Abide() as abide:
    conversation = abide.conversation(*sys.argv[1:2], agent="demo")

    @conversation.tool("locate")
    def locate(args: Any, call: Call) -> dict[str, str]:
        print("the model asks:", call.tool)
        return {"city": "Graz"}

    # The function runs while this waits; what it raises, the model reads as an error.
    print(conversation.send("Where am I?").result(timeout=60).text)
