"""Chat completions."""

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

import story
import typed

PATH = "/chat/completions"
TYPE = "text/event-stream"

typed.forbid("openai.types")


def check(number, body):
    request = typed.read(CompletionCreateParamsStreaming, body)
    messages = request["messages"]
    if number == 0:
        image = messages[-1]["content"][1]["image_url"]["url"]
        story.expect(image, f"data:image/png;base64,{story.PNG}", "the image")
    if number == 1:
        results = [it["tool_call_id"] for it in messages if it["role"] == "tool"]
        story.expect(results, [id for id, _, _ in story.CALLS], "the results")
    if number == 2:
        schema = request["response_format"]["json_schema"]["schema"]
        story.expect(schema, story.SCHEMA, "the schema")


def reply(number):
    yield from map(data, [calls, after, answer][number]())
    details = PromptTokensDetails(cached_tokens=story.CACHED)
    usage = CompletionUsage(
        prompt_tokens=story.INPUT,
        completion_tokens=story.OUTPUT,
        total_tokens=story.INPUT + story.OUTPUT,
        prompt_tokens_details=details,
    )
    yield data(chunk([], usage=usage))
    yield "data: [DONE]\n\n"


def calls():
    for text in story.TEXT:
        yield delta(content=text)
    for index, (id, name, args) in enumerate(story.CALLS):
        function = ChoiceDeltaToolCallFunction(name=name, arguments="")
        yield delta(tool_calls=[fragment(index, function, id=id, type="function")])
        text = json.dumps(args)
        for piece in [text[:5], text[5:]]:
            yield delta(tool_calls=[fragment(index, ChoiceDeltaToolCallFunction(arguments=piece))])
    yield end("tool_calls")


def after():
    yield delta(content=story.AFTER)
    yield end("stop")


def answer():
    yield delta(content=story.ANSWER)
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
