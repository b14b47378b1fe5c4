"""Rollouts and erasures through our client: tenant.py URL NAME, the name of an agent and of a person."""

import json
import sys
import time

import abide_client as client

URL, NAME = sys.argv[1:]
# How long an erasure of a few conversations may take.
ERASURE_SECONDS = 20
abide = client.Abide(URL)


def put(text):
    return abide.agents.put(NAME, {"model": {"provider": "scripted", "script": [{"text": text}]}})


def refusal(action):
    try:
        action()
    except client.AbideError as error:
        return type(error).__name__
    return "none"


def turn(id):
    return abide.conversation(f"{NAME}-{id}", agent=NAME).send("hi").result(timeout=20)


older = put("old")["revision"]
put("new")
told = {"no rollout": refusal(lambda: abide.agents.rollout(NAME))}
begun = abide.agents.roll_out(NAME, older, 100)
told["rolled out"] = [begun["revision"] == older, begun["percent"]]
told["read again"] = abide.agents.rollout(NAME) == begun
told["shares"] = [it.get("rollout_percent") for it in abide.agents.revisions(NAME)]
told["in the share"] = turn("in").text
named = abide.conversation(f"{NAME}-in")
told["titles"] = [named.update(title="A title").get("title"), named.update(title="").get("title")]
abide.agents.end_rollout(NAME)
told["ended"] = refusal(lambda: abide.agents.rollout(NAME))
told["ended twice"] = refusal(lambda: abide.agents.end_rollout(NAME))
told["after it"] = turn("after").text
told["nobody"] = refusal(lambda: abide.erasures.start(""))
id = abide.erasures.start(NAME)["id"]
deadline = time.monotonic() + ERASURE_SECONDS
while (erasure := abide.erasures.get(id))["state"] != "done":
    if time.monotonic() > deadline:
        sys.exit(f"not erased within {ERASURE_SECONDS} s: {erasure}")
    time.sleep(0.05)
told["erased"] = [
    erasure["deleted"]["conversations"],
    erasure["rewritten"]["conversations"],
    erasure.get("owner"),
]
# For a moment the job stands beside its report.
told["listed"] = any(it["id"] == id and it["state"] == "done" for it in abide.erasures.list())
told["no erasure"] = refusal(lambda: abide.erasures.get("er_none"))
print(json.dumps(told))
