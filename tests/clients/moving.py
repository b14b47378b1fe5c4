"""What is found, noted and moved through our client: moving.py URL NAME, a part of the ids and a customer."""

import json
import os
import sys
import tempfile

import abide_client as client

URL, NAME = sys.argv[1:]
abide = client.Abide(URL)


def refusal(action):
    try:
        action()
    except client.AbideError as error:
        return [type(error).__name__, str(error).partition(":")[0]]
    return ["none", ""]


def journal(conversation):
    return list(conversation.journal())


source = abide.conversation(f"{NAME}-source", agent="a")
source.create(metadata={"customer": NAME}, title="A title")
told = {"missing": refusal(lambda: source.state.get("cart"))[0]}
source.state.put("cart", {"items": [1]})
told["state"] = source.state.get("cart")
told["too large"] = refusal(lambda: source.state.put("cart", "x" * 70_000))
source.state.put("gone", 1)
source.state.delete("gone")
told["deleted"] = refusal(lambda: source.state.get("gone"))[0]
source.send("hi").result(timeout=20)
copy = abide.import_conversation(source.export)
told["copy"] = [copy.id != source.id, copy.state.get("cart") == source.state.get("cart")]
listed = abide.conversations(metadata={"customer": NAME}, order="created", dir="asc")
told["found"] = [[it["id"] == source.id, it.get("title")] for it in listed]
told["taken"] = refusal(lambda: abide.import_conversation(source.export(), keep_id=True))[0]
with tempfile.TemporaryDirectory() as directory:
    path = os.path.join(directory, "source.ndjson")
    source.export_to(path)
    before = journal(source)
    source.delete()
    with open(path, "rb") as file:
        kept = abide.import_conversation(file, keep_id=True)
    told["kept"] = [kept.id == source.id, journal(source) == before]
    with open(path, "rb") as file:
        lines = file.readlines()
keyed = [abide.import_conversation(lines, key=f"{NAME}-key").id for _ in range(2)]
told["one key"] = keyed[0] == keyed[1]
cut = refusal(lambda: abide.import_conversation(lines[:-1]))
told["no end"] = cut == ["InvalidRequestError", f"line {len(lines) - 1}"]
taken = 0


def damaged():
    """A wrong line, and a gigabyte after it."""
    global taken
    yield lines[0]
    for taken in range(1_000):
        yield b'{"seq":7}\n' * 100_000


told["half-way"] = refusal(lambda: abide.import_conversation(damaged()))
told["left"] = taken < 999
told["nobody"] = refusal(lambda: list(abide.conversation(f"{NAME}-nobody").export()))[0]
print(json.dumps(told))
