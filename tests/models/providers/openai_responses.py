"""OpenAI's Responses API."""

import itertools
import json

from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseCreatedEvent,
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseFunctionCallArgumentsDoneEvent,
    ResponseFunctionToolCall,
    ResponseFunctionWebSearch,
    ResponseOutputItemAddedEvent,
    ResponseOutputItemDoneEvent,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
    ResponseReasoningSummaryPartAddedEvent,
    ResponseReasoningSummaryTextDeltaEvent,
    ResponseTextDeltaEvent,
    ResponseUsage,
)
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from openai.types.responses.response_function_web_search import ActionSearch
from openai.types.responses.response_reasoning_item import Summary
from openai.types.responses.response_reasoning_summary_part_added_event import Part
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

import scenario
import strict_types

PATH = "/responses"
TYPE = "text/event-stream"

strict_types.forbid("openai.types")


def check(number, body):
    request = strict_types.read(ResponseCreateParamsStreaming, body)
    items_sent = request["input"]
    if number == 0:
        image = items_sent[-1]["content"][1]["image_url"]
        scenario.expect(image, f"data:image/png;base64,{scenario.PNG}", "the image")
        return
    results = [it["call_id"] for it in items_sent if it.get("type") == "function_call_output"]
    scenario.expect(results, [id for id, _, _ in scenario.CALLS], "the results")
    sent = [item.to_dict() for item in items()]
    scenario.expect(body["input"][1 : 1 + len(sent)], sent, "what goes back")
    if number == 2:
        scenario.expect(request["text"]["format"]["schema"], scenario.SCHEMA, "the schema")


def reply(number):
    order = itertools.count()
    made = [list(items()), [message("m2", scenario.AFTER)], [message("m3", scenario.ANSWER)]][number]
    for event in [ResponseCreatedEvent(**whole("response.created", []))] + stream(made):
        yield data(event, next(order))
    yield data(ResponseCompletedEvent(**whole("response.completed", made)), next(order))


def items():
    """The first message of the scenario."""
    summary = [Summary(type="summary_text", text="".join(scenario.THINKING))]
    sealed = scenario.SIGNATURE
    yield ResponseReasoningItem(id="r", type="reasoning", summary=summary, encrypted_content=sealed)
    action = ActionSearch(type="search", query="cats", queries=["cats"])
    kind = "web_search_call"
    yield ResponseFunctionWebSearch(id="w", type=kind, status="completed", action=action)
    yield message("m1", "".join(scenario.TEXT))
    for id, name, args in scenario.CALLS:
        yield ResponseFunctionToolCall(
            id=f"fc_{id}",
            call_id=id,
            name=name,
            arguments=json.dumps(args),
            type="function_call",
            status="completed",
        )


def message(id, text):
    content = ResponseOutputText(type="output_text", text=text, annotations=[])
    kind = {"type": "message", "role": "assistant", "status": "completed"}
    return ResponseOutputMessage(id=id, content=[content], **kind)


def stream(made):
    events = []
    for index, item in enumerate(made):
        at = {"output_index": index, "sequence_number": 0}
        place = at | {"item_id": item.id}
        added = "response.output_item.added"
        events.append(ResponseOutputItemAddedEvent(type=added, item=item, **at))
        events += deltas(item, place)
        done = "response.output_item.done"
        events.append(ResponseOutputItemDoneEvent(type=done, item=item, **at))
    return events


def deltas(item, place):
    if item.type == "reasoning":
        place = place | {"summary_index": 0}
        part = Part(type="summary_text", text="")
        kind = "response.reasoning_summary_part.added"
        yield ResponseReasoningSummaryPartAddedEvent(type=kind, part=part, **place)
        kind = "response.reasoning_summary_text.delta"
        for text in scenario.THINKING:
            yield ResponseReasoningSummaryTextDeltaEvent(type=kind, delta=text, **place)
    elif item.type == "message":
        kind, text = "response.output_text.delta", item.content[0].text
        place = place | {"content_index": 0, "logprobs": []}
        for piece in [text[:2], text[2:]]:
            yield ResponseTextDeltaEvent(type=kind, delta=piece, **place)
    elif item.type == "function_call":
        kind, args = "response.function_call_arguments", item.arguments
        for piece in [args[:5], args[5:]]:
            yield ResponseFunctionCallArgumentsDeltaEvent(type=f"{kind}.delta", delta=piece, **place)
        done = {"type": f"{kind}.done", "name": item.name, "arguments": args}
        yield ResponseFunctionCallArgumentsDoneEvent(**done, **place)


def whole(kind, output):
    usage = ResponseUsage(
        input_tokens=scenario.INPUT,
        input_tokens_details=InputTokensDetails(cached_tokens=scenario.CACHED, cache_write_tokens=0),
        output_tokens=scenario.OUTPUT,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=5),
        total_tokens=scenario.INPUT + scenario.OUTPUT,
    )
    response = Response(
        id="resp",
        object="response",
        created_at=0,
        model="m",
        output=list(output),
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
        status="completed" if kind == "response.completed" else "in_progress",
        usage=usage,
    )
    return {"type": kind, "response": response, "sequence_number": 0}


def data(event, number):
    event.sequence_number = number
    return f"event: {event.type}\ndata: {event.to_json(indent=None)}\n\n"
