"""OpenAI's chat completions."""

import json

from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import (
    Choice,
    ChoiceDelta,
    ChoiceDeltaToolCall,
    ChoiceDeltaToolCallFunction,
)
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.completion_usage import PromptTokensDetails

import scenario
import strict_types

PATH = "/chat/completions"
TYPE = "text/event-stream"

strict_types.forbid("openai.types")


def check(number, body):
    request = strict_types.read(CompletionCreateParamsStreaming, body)
    messages = request["messages"]
    if number == 0:
        image = messages[-1]["content"][1]["image_url"]["url"]
        scenario.expect(image, f"data:image/png;base64,{scenario.PNG}", "the image")
    if number == 1:
        results = [it["tool_call_id"] for it in messages if it["role"] == "tool"]
        scenario.expect(results, [id for id, _, _ in scenario.CALLS], "the results")
    if number == 2:
        schema = request["response_format"]["json_schema"]["schema"]
        scenario.expect(schema, scenario.SCHEMA, "the schema")


def reply(number):
    yield from map(data, [calls, after, answer][number]())
    details = PromptTokensDetails(cached_tokens=scenario.CACHED)
    usage = CompletionUsage(
        prompt_tokens=scenario.INPUT,
        completion_tokens=scenario.OUTPUT,
        total_tokens=scenario.INPUT + scenario.OUTPUT,
        prompt_tokens_details=details,
    )
    yield data(chunk([], usage=usage))
    yield "data: [DONE]\n\n"


def calls():
    for text in scenario.TEXT:
        yield delta(content=text)
    for index, (id, name, args) in enumerate(scenario.CALLS):
        function = ChoiceDeltaToolCallFunction(name=name, arguments="")
        yield delta(tool_calls=[fragment(index, function, id=id, type="function")])
        text = json.dumps(args)
        for piece in [text[:5], text[5:]]:
            yield delta(tool_calls=[fragment(index, ChoiceDeltaToolCallFunction(arguments=piece))])
    yield end("tool_calls")


def after():
    yield delta(content=scenario.AFTER)
    yield end("stop")


def answer():
    yield delta(content=scenario.ANSWER)
    yield end("stop")


def fragment(index, function, **more):
    return ChoiceDeltaToolCall(index=index, function=function, **more)


def delta(**more):
    return chunk([Choice(index=0, delta=ChoiceDelta(**more))])


def end(reason):
    return chunk([Choice(index=0, delta=ChoiceDelta(), finish_reason=reason)])


def chunk(choices, **more):
    kind = "chat.completion.chunk"
    more |= {"id": "c", "created": 0, "model": "m", "object": kind}
    return ChatCompletionChunk(choices=choices, **more)


def data(chunk):
    return f"data: {chunk.model_dump_json(exclude_unset=True)}\n\n"
