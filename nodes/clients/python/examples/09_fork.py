"""A fork: another conversation with the same beginning, to try something else."""

import sys

from abide_client import Abide

with Abide() as abide:
    conversation = abide.conversation(*sys.argv[1:2], agent="demo")
    conversation.send("Hello").result(timeout=60)
    ends = [event["seq"] for event in conversation.journal() if event["type"] == "turn_ended"]
    conversation.send("This is said in the original").result(timeout=60)

    fork = conversation.fork(at=ends[0])
    print(fork.send("This is said in the fork").result(timeout=60).text)
    for one in (conversation, fork):
        messages = one.messages()["messages"]
        print(len(messages), "messages,", messages[-2]["content"][0]["text"])
