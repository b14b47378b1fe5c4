"""Ollama's chat."""

from ollama import ChatResponse, Image, Message
from ollama._types import ChatRequest, SubscriptableBaseModel

import story

PATH = "/api/chat"
TYPE = "application/x-ndjson"

# What the server knows and its SDK leaves to it.
UNTYPED = ["truncate", "shift"]


def forbid(kind):
    kind.model_config["extra"] = "forbid"
    kind.model_rebuild(force=True)
    for more in kind.__subclasses__():
        forbid(more)


# Twice, since a type is built of those that it has.
forbid(SubscriptableBaseModel)
forbid(SubscriptableBaseModel)


def check(number, body):
    request = {key: field for key, field in body.items() if key not in UNTYPED}
    said = [typed(message) for message in request.pop("messages")]
    ChatRequest.model_validate(request)
    if number == 0:
        story.expect(body["messages"][-1]["images"], [story.PNG], "the images")
    if number == 1:
        results = [it for it in body["messages"] if it["role"] == "tool"]
        ids = [call["id"] for call in body["messages"][-3]["tool_calls"]]
        story.expect([it["tool_call_id"] for it in results], ids, "the results")
        story.expect(said[-3].thinking, "".join(story.THINKING), "the thinking")
    if number == 2:
        # Beside tools a format would forbid calls.
        found = '"additionalProperties":false' in said[0].content
        story.expect(found, True, "the schema's place in the system prompt")


def typed(message):
    """A message as the SDK has it, which knows no ids of calls."""
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
        prompt_eval_count=story.INPUT,
        eval_count=story.OUTPUT,
    ))


def calls():
    for text in story.THINKING:
        yield chunk(Message(role="assistant", content="", thinking=text))
    for text in story.TEXT:
        yield chunk(Message(role="assistant", content=text))
    for _, name, args in story.CALLS:
        function = Message.ToolCall.Function(name=name, arguments=args)
        made = [Message.ToolCall(function=function)]
        yield chunk(Message(role="assistant", content="", tool_calls=made))


def after():
    yield chunk(Message(role="assistant", content=story.AFTER))


def answer():
    yield chunk(Message(role="assistant", content=story.ANSWER))


def chunk(message, done=False, **more):
    created = "2026-11-22T12:00:00Z"
    return ChatResponse(model="m", created_at=created, done=done, message=message, **more)


def data(chunk):
    return chunk.model_dump_json(exclude_none=True) + "\n"
