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
# A model that needs no key. Like a real one, it takes its time, and is asked once more if it breaks the schema.
SCRIPT = [
    {"delay": "100ms", "text": "two nights in Graz"},
    {"delay": "100ms", "text": '{"city": "Graz", "nights": 2}'},
]

with Abide() as abide:
    abide.define("planner", {"model": {"provider": "scripted", "script": SCRIPT}})
    conversation = abide.conversation(*sys.argv[1:2], agent="planner")
    answer = conversation.send("A short trip, please", schema=TRIP).result(timeout=60)
    trip = cast(Trip, answer.object)
    print(trip["city"], trip["nights"])
