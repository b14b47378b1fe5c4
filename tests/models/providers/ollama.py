"""Ollama's chat API."""

from ollama import ChatResponse, Image, Message
from ollama._types import ChatRequest, SubscriptableBaseModel

import scenario

PATH = "/api/chat"
TYPE = "application/x-ndjson"

# Fields that the server accepts and its SDK has no types for.
UNTYPED = ["truncate", "shift"]


def forbid(kind):
    kind.model_config["extra"] = "forbid"
    kind.model_rebuild(force=True)
    for more in kind.__subclasses__():
        forbid(more)


# Twice, because a type is built from its field types.
forbid(SubscriptableBaseModel)
forbid(SubscriptableBaseModel)


def check(number, body):
    request = {key: field for key, field in body.items() if key not in UNTYPED}
    messages = [to_sdk_message(message) for message in request.pop("messages")]
    ChatRequest.model_validate(request)
    if number == 0:
        scenario.expect(body["messages"][-1]["images"], [scenario.PNG], "the images")
    if number == 1:
        results = [it for it in body["messages"] if it["role"] == "tool"]
        ids = [call["id"] for call in body["messages"][-3]["tool_calls"]]
        scenario.expect([it["tool_call_id"] for it in results], ids, "the results")
        scenario.expect(messages[-3].thinking, "".join(scenario.THINKING), "the thinking")
    if number == 2:
        # With tools, a format would forbid calls.
        found = '"additionalProperties":false' in messages[0].content
        scenario.expect(found, True, "the schema's place in the system prompt")


def to_sdk_message(message):
    """A message as the SDK's type, which has no ids of calls."""
    message = {key: field for key, field in message.items() if key != "tool_call_id"}
    if "images" in message:
        message["images"] = [Image(value=image) for image in message["images"]]
    if "tool_calls" in message:
        calls = [{"function": call["function"]} for call in message["tool_calls"]]
        message["tool_calls"] = calls
    return Message.model_validate(message)


def reply(number):
    yield from map(data, [calls, after, answer][number]())
    yield data(chunk(
        Message(role="assistant", content=""),
        done=True,
        done_reason="stop",
        prompt_eval_count=scenario.INPUT,
        eval_count=scenario.OUTPUT,
    ))


def calls():
    for text in scenario.THINKING:
        yield chunk(Message(role="assistant", content="", thinking=text))
    for text in scenario.TEXT:
        yield chunk(Message(role="assistant", content=text))
    for _, name, args in scenario.CALLS:
        function = Message.ToolCall.Function(name=name, arguments=args)
        made = [Message.ToolCall(function=function)]
        yield chunk(Message(role="assistant", content="", tool_calls=made))


def after():
    yield chunk(Message(role="assistant", content=scenario.AFTER))


def answer():
    yield chunk(Message(role="assistant", content=scenario.ANSWER))


def chunk(message, done=False, **more):
    created = "2026-11-22T12:00:00Z"
    return ChatResponse(model="m", created_at=created, done=done, message=message, **more)


def data(chunk):
    return chunk.model_dump_json(exclude_none=True) + "\n"
