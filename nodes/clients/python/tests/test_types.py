"""The typed dictionaries name only members that the nodes' OpenAPI document has, and demand only what it
demands. `ABIDE_OPENAPI` is the document's path, where it is not in the tree around this file."""

from __future__ import annotations

import json
import os
import sys
import unittest
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent.parent / "src")]

from abide_client import types  # noqa: E402

IN_TREE = Path(__file__).resolve().parents[3] / "openapi.json"
DOCUMENT = json.loads(Path(os.environ.get("ABIDE_OPENAPI", IN_TREE)).read_text())
#: The types, and their schemas where those have another name.
SCHEMAS = {
    "Problem": "Problem",
    "Usage": "Usage",
    "CallRef": "CallRef",
    "Message": "Message",
    "ListedMessage": "ListedMessage",
    "MessagePage": "MessagePage",
    "PendingCall": "PendingCall",
    "PendingEntry": "PendingEntry",
    "OpenTurn": "OpenTurn",
    "InFlight": "InFlight",
    "Snapshot": "Snapshot",
    "TurnReport": "AnsweredMessage",
    "ResolutionReply": "Resolved",
    "Remember": "RememberRequest",
    "Created": "ConversationCreated",
    "AgentDefined": "AgentDefined",
    "Me": "Me",
    "NamedBlob": "NamedBlob",
}
#: Members of some types of problems, which only the book has.
EXTENSIONS = {"needs", "because", "quota", "retry_after"}


def members(schema: dict[str, Any]) -> tuple[set[str], set[str]]:
    """All members of a schema, and those that it demands."""
    if "$ref" in schema:
        return members(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    names, required = set(schema.get("properties", {})), set(schema.get("required", []))
    for part in schema.get("allOf", []):
        more, demanded = members(part)
        names, required = names | more, required | demanded
    return names, required


class Types(unittest.TestCase):
    def test_the_types_are_those_of_the_document(self) -> None:
        for name, schema in SCHEMAS.items():
            kind = getattr(types, name)
            names, required = members({"$ref": schema})
            typed = set(kind.__annotations__) - (EXTENSIONS if name == "Problem" else set())
            self.assertLessEqual(typed, names, f"{name} has members that {schema} lacks")
            self.assertLessEqual(set(kind.__required_keys__), required, f"{name} demands too much")


if __name__ == "__main__":
    unittest.main()
