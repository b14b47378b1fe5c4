"""What a node that knows its callers refuses, as the errors of our client: refusals.py URL USER APPROVER."""

import json
import sys

import abide_client as client

URL, USER, APPROVER = sys.argv[1:]


def attempt(action):
    try:
        action()
    except client.AbideError as error:
        problem = getattr(error, "problem", {})
        return [type(error).__name__, problem.get("type"), problem.get("because")]
    return ["none", None, None]


user, approver = client.Abide(URL, token=USER), client.Abide(URL, token=lambda: APPROVER)
conversation = user.conversation("py", agent="a")
told = {
    "unknown credential": attempt(client.Abide(URL, token="abide_no_one").me),
    "no conversation": attempt(user.conversation("nothing").snapshot),
    "no agent": attempt(lambda: user.conversation("new", agent="nobody").send("go")),
    "no definition": attempt(lambda: user.define("b", {"model": {"provider": "scripted"}})),
}
turn = conversation.send("go")
told["waits"] = attempt(lambda: turn.result(timeout=20))
told["busy"] = attempt(lambda: conversation.send("and?"))
told["own approval"] = attempt(conversation.call("pay").approve)
call = next(approver.inbox(conversation="py"))
told["wrong form"] = attempt(lambda: call.answer(1))
told["approved"] = attempt(call.approve)
told["late"] = attempt(call.approve)
told["text"] = turn.result(timeout=20).text
print(json.dumps(told))
