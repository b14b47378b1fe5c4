"""What every provider's server says, request by request: it thinks and calls; it ends; it answers."""

THINKING = ["Hm.", " So."]
SIGNATURE = "U0lHTkVE"
TEXT = ["I ", "look."]
CALLS = [
    ("call_a", "look", {"at": "left"}),
    ("call_b", "look", {"at": "right", "id": 12345678901234567}),
]
AFTER = "Both."
ANSWER = '{"seen": 2}'

# What it is asked with.
PNG = "iVBORw0KGgo="
SCHEMA = {
    "type": "object",
    "properties": {"seen": {"type": "integer"}},
    "required": ["seen"],
    "additionalProperties": False,
}

INPUT, OUTPUT, CACHED = 100, 20, 40


def expect(found, wanted, what):
    """Fails with both, which the client then tells."""
    if found != wanted:
        raise ValueError(f"{what} is {found!r}, not {wanted!r}")
