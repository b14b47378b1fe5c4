"""The replies of every provider's server, one per request: it thinks and calls; it ends; it answers."""

THINKING = ["Hm.", " So."]
SIGNATURE = "U0lHTkVE"
TEXT = ["I ", "look."]
CALLS = [
    ("call_a", "look", {"at": "left"}),
    ("call_b", "look", {"at": "right", "id": 12345678901234567}),
]
AFTER = "Both."
ANSWER = '{"seen": 2}'

# Parts of the requests.
PNG = "iVBORw0KGgo="
SCHEMA = {
    "type": "object",
    "properties": {"seen": {"type": "integer"}},
    "required": ["seen"],
    "additionalProperties": False,
}

INPUT, OUTPUT, CACHED = 100, 20, 40


def expect(found, expected, what):
    """Fails with both values, which the client then reports."""
    if found != expected:
        raise ValueError(f"{what} is {found!r}, not {expected!r}")
