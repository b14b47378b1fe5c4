#!/usr/bin/env python3
"""Trains the dictionary by which stored values are compressed (`pip install zstandard==0.25.0`).

The samples are the golden journals and what is stored beside them, again and again with other ids,
times, numbers and texts, so that the dictionary has the words of the format and not those of a test.
A dictionary that a release has used is never trained anew: what it compressed needs it for ever.
"""

import json
import pathlib
import random

import zstandard

GOLDEN = pathlib.Path(__file__).parents[4] / "tests/golden"
DICTIONARY = pathlib.Path(__file__).with_name("dictionary-1")
DICTIONARY_BYTES = 8192
ROUNDS = 12
# Every turn has some of these; they weigh as much as all the others.
USUAL = ["user_msg", "turn_started", "assistant_msg", "tool_call", "tool_result", "suspension"]
USUAL_ROUNDS = 6
WORDS = """the a of and to in is it you that for on with as are this be or have from your can not will
when which by if we do an order ticket user date file name email message please help need would like
issue data result next step check create update find table customer account payment city flight hotel
report error server code function return value number list first last time today tomorrow""".split()
ARGS = [{"query": "a"}, {"city": "Oslo"}, {"path": "src/main.rs"}, {"id": 42}, {"from": "2026-01-02"},
        {"to": "a@example.com", "subject": "b", "body": "c"}]
TOOLS = ["send_email", "search", "get_weather", "run_query", "read_file", "create_ticket"]
TEXTS = {"text", "message", "reason", "title"}
NUMBERS = {"seq", "step", "input_tokens", "output_tokens", "context_tokens"}

rng = random.Random(1)


def digits(count):
    return "".join(rng.choices("0123456789abcdef", k=count))


def varied(value, name=None):
    """The same value with other leaves."""
    if name == "args" and isinstance(value, dict):
        return rng.choice(ARGS)
    if isinstance(value, dict):
        return {key: varied(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [varied(inner, name) for inner in value]
    if name in NUMBERS:
        return rng.randrange(1, 3000)
    if not isinstance(value, str):
        return value
    if value.startswith("2026-"):
        day, time = rng.randrange(1, 29), [rng.randrange(60) for _ in range(2)]
        clock = f"{rng.randrange(24):02}:{time[0]:02}:{time[1]:02}.{rng.randrange(1000):03}Z"
        return f"2026-{rng.randrange(1, 13):02}-{day:02}T{clock}"
    if name == "turn_id":
        return f"turn_k_01a2{digits(28)}"
    if name == "id":
        return rng.choice([f"msg_01a2{digits(28)}", f"call_{digits(24)}", f"toolu_{digits(24)}"])
    if name == "call_id":
        return rng.choice([f"call_{digits(24)}", f"toolu_{digits(24)}", f"call_{digits(1)}_1"])
    if name == "conversation_id":
        return f"conv_01a2{digits(28)}"
    if name in ("revision", "fingerprint"):
        return digits(16)
    if name in ("tool", "name"):
        return rng.choice([value, *TOOLS])
    if name in TEXTS and value:
        return " ".join(rng.choices(WORDS, k=rng.randrange(3, 40))).capitalize() + "."
    return value


def lines(name):
    return [json.loads(line) for line in (GOLDEN / name).read_text().splitlines()]


def samples():
    values = [event for journal in lines("journals.jsonl") for event in journal]
    usual = [event for event in values if event["type"] in USUAL]
    beside = [line["json"] for line in lines("stored.jsonl") if line["of"] in ("InboxEntry", "Listing")]
    values += USUAL_ROUNDS * (usual + beside)
    for value in ROUNDS * values + lines("states/6.jsonl"):
        text = json.dumps(varied(value), separators=(",", ":"), ensure_ascii=False)
        yield text.encode()[:4096]


if __name__ == "__main__":
    shuffled = list(samples())
    rng.shuffle(shuffled)
    trained = zstandard.train_dictionary(DICTIONARY_BYTES, shuffled, dict_id=1)
    DICTIONARY.write_bytes(trained.as_bytes())
