"""Anthropic's Messages API."""

import json

from anthropic.types import (
    InputJSONDelta,
    Message,
    MessageDeltaUsage,
    RawContentBlockDeltaEvent,
    RawContentBlockStartEvent,
    RawContentBlockStopEvent,
    RawMessageDeltaEvent,
    RawMessageStartEvent,
    RawMessageStopEvent,
    ServerToolUseBlock,
    SignatureDelta,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolUseBlock,
    Usage,
    WebSearchResultBlock,
    WebSearchToolResultBlock,
)
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from anthropic.types.raw_message_delta_event import Delta

import scenario
import strict_types

PATH = "/messages"
TYPE = "text/event-stream"

strict_types.forbid("anthropic.types")


def check(number, body):
    request = strict_types.read(MessageCreateParamsStreaming, body)
    messages = request["messages"]
    if number == 0:
        image = messages[-1]["content"][1]["source"]
        source = {"type": "base64", "media_type": "image/png", "data": scenario.PNG}
        scenario.expect(image, source, "the image")
        return
    sent = [block.to_dict() for block in blocks()]
    scenario.expect(without_cache_marks(body["messages"][1]["content"]), sent, "what goes back")
    results = [block["tool_use_id"] for block in messages[2]["content"]]
    scenario.expect(results, [id for id, _, _ in scenario.CALLS], "the results")
    if number == 2:
        schema = request["output_config"]["format"]["schema"]
        scenario.expect(schema, scenario.SCHEMA, "the schema")


def without_cache_marks(blocks):
    """The blocks without their cache marks."""
    return [{key: it[key] for key in it if key != "cache_control"} for it in blocks]


def reply(number):
    made = [list(blocks()), [text(scenario.AFTER)], [text(scenario.ANSWER)]][number]
    # Cached tokens are counted separately.
    fresh = scenario.INPUT - scenario.CACHED
    usage = Usage(input_tokens=fresh, cache_read_input_tokens=scenario.CACHED, output_tokens=1)
    message = {"id": "msg", "type": "message", "role": "assistant", "model": "m", "content": []}
    yield data(RawMessageStartEvent(type="message_start", message=Message(**message, usage=usage)))
    for index, block in enumerate(made):
        yield from map(data, stream(index, block))
    reason = "tool_use" if number == 0 else "end_turn"
    usage = MessageDeltaUsage(output_tokens=scenario.OUTPUT)
    end = RawMessageDeltaEvent(type="message_delta", delta=Delta(stop_reason=reason), usage=usage)
    yield data(end)
    yield data(RawMessageStopEvent(type="message_stop"))


def blocks():
    """The first message of the scenario."""
    thought = "".join(scenario.THINKING)
    yield ThinkingBlock(type="thinking", thinking=thought, signature=scenario.SIGNATURE)
    yield text("I ")
    query = {"query": "cats"}
    yield ServerToolUseBlock(type="server_tool_use", id="srv", name="web_search", input=query)
    page = WebSearchResultBlock(
        type="web_search_result",
        title="Cats",
        url="https://cats.example",
        encrypted_content="U0VBTEVE",
    )
    kind = "web_search_tool_result"
    yield WebSearchToolResultBlock(type=kind, tool_use_id="srv", content=[page])
    yield text("look.")
    for id, name, args in scenario.CALLS:
        yield ToolUseBlock(type="tool_use", id=id, name=name, input=args)


def text(text):
    return TextBlock(type="text", text=text)


def stream(index, block):
    deltas = []
    begun = block.model_copy()
    if block.type == "thinking":
        begun.thinking = begun.signature = ""
        deltas = [ThinkingDelta(type="thinking_delta", thinking=it) for it in scenario.THINKING]
        deltas.append(SignatureDelta(type="signature_delta", signature=block.signature))
    elif block.type == "text":
        begun.text = ""
        pieces = [block.text[:1], block.text[1:]]
        deltas = [TextDelta(type="text_delta", text=piece) for piece in pieces]
    elif block.type in ("tool_use", "server_tool_use"):
        begun.input = {}
        args = json.dumps(block.input)
        kind = "input_json_delta"
        deltas = [InputJSONDelta(type=kind, partial_json=it) for it in [args[:5], args[5:]]]
    at = {"index": index}
    yield RawContentBlockStartEvent(type="content_block_start", content_block=begun, **at)
    for delta in deltas:
        yield RawContentBlockDeltaEvent(type="content_block_delta", delta=delta, **at)
    yield RawContentBlockStopEvent(type="content_block_stop", **at)


def data(event):
    return f"event: {event.type}\ndata: {event.to_json(indent=None)}\n\n"
