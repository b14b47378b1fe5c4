"""Structured output: the answer is a value that satisfies a schema."""

import sys
from typing import TypedDict, cast

from abide_client import Abide


class Trip(TypedDict):
    city: str
    nights: int


TRIP = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "nights": {"type": "integer", "minimum": 1}},
    "required": ["city", "nights"],
}
# A model that needs no key. A real one is told of the schema, and asked once more if it breaks it.
SCRIPT = [{"text": "two nights in Graz"}, {"text": '{"city": "Graz", "nights": 2}'}]

with Abide() as abide:
    abide.define("planner", {"model": {"provider": "scripted", "script": SCRIPT}})
    conversation = abide.conversation(*sys.argv[1:2], agent="planner")
    answer = conversation.send("A short trip, please", schema=TRIP).result(timeout=60)
    trip = cast(Trip, answer.object)
    print(trip["city"], trip["nights"])
