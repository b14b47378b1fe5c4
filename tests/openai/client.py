"""OpenAI's own client for Python, one case at a time: client.py CASE OPTIONS.

The case's result goes to standard output as JSON. What is asserted of it is in tests/cluster/openai.rs.
"""

import json
import sys

from openai import APIStatusError, OpenAI
from pydantic import BaseModel

CASE, OPTIONS = sys.argv[1], json.loads(sys.argv[2])
client = OpenAI(
    base_url=OPTIONS["base"] + "/openai/v1",
    api_key=OPTIONS.get("key", "none"),
    max_retries=0,
)
model = OPTIONS.get("model", "a")
IMAGE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "YPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


class Trip(BaseModel):
    city: str
    nights: int


def kinds(response):
    return [item.type for item in response.output]


def conversations():
    made = client.conversations.create(metadata={"agent": model})
    response = client.responses.create(model=model, input="hello", conversation=made.id)
    found = client.conversations.retrieve(made.id)
    items = [item.type for item in client.conversations.items.list(made.id, order="asc")]
    deleted = client.conversations.delete(made.id)
    try:
        client.conversations.retrieve(made.id)
        status = 200
    except APIStatusError as error:
        status = error.status_code
    return {
        "text": response.output_text,
        "same": found.id == made.id,
        "items": items,
        "deleted": deleted.deleted,
        "status": status,
    }


def approvals(response):
    return [
        {"type": "mcp_approval_response", "approval_request_id": item.id, "approve": True}
        for item in response.output
        if item.type == "mcp_approval_request"
    ]


def one_by_one():
    first = client.responses.create(model=model, input="go")
    one, two = approvals(first)
    second = client.responses.create(model=model, input=[one], previous_response_id=first.id)
    third = client.responses.create(model=model, input=[two], previous_response_id=second.id)
    return {"kinds": [kinds(it) for it in (first, second, third)], "text": third.output_text}


def at_once():
    first = client.responses.create(model=model, input="go")
    second = client.responses.create(
        model=model, input=approvals(first), previous_response_id=first.id
    )
    return {"kinds": [kinds(first), kinds(second)], "text": second.output_text}


def parse():
    response = client.responses.parse(model=model, input="plan", text_format=Trip)
    chat = client.chat.completions.parse(
        model=model, messages=[{"role": "user", "content": "plan"}], response_format=Trip
    )
    return [response.output_parsed.model_dump(), chat.choices[0].message.parsed.model_dump()]


def image():
    content = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": IMAGE, "detail": "auto"},
    ]
    response = client.responses.create(model=model, input=[{"role": "user", "content": content}])
    sent = list(client.responses.input_items.list(response.id))[0]
    return {"text": response.output_text, "parts": [part.type for part in sent.content]}


def refused():
    results = []
    for arguments in (
        {"model": "missing", "input": "hello"},
        {"model": model, "input": "hello", "store": False},
        {"model": model, "input": "hello", "previous_response_id": "resp_abc"},
    ):
        try:
            client.responses.create(**arguments)
        except APIStatusError as error:
            results.append([error.status_code, error.code])
    return results


CASES = {
    "conversations": conversations,
    "one_by_one": one_by_one,
    "at_once": at_once,
    "parse": parse,
    "image": image,
    "refused": refused,
}
print(json.dumps(CASES[CASE]()))
