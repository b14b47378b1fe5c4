"""Gemini: our request is compared with the one that its SDK would send."""

import json

from google import genai
from google.genai import _common, models, types
from pydantic.alias_generators import to_camel

import scenario

NAME = "gemini-3-pro"
PATH = f"/models/{NAME}:streamGenerateContent?alt=sse"
TYPE = "text/event-stream"

client = genai.Client(api_key="none")


def check(number, body):
    ours = dict(body)
    config = ours.pop("generationConfig", {})
    contents = ours.pop("contents")
    parameters = types._GenerateContentParameters(
        model=NAME,
        contents=[types.Content.model_validate(content) for content in contents],
        config=types.GenerateContentConfig.model_validate({**config, **ours}),
    )
    theirs = models._GenerateContentParameters_to_mldev(client._api_client, parameters)
    theirs = _common.encode_unserializable_types(_common.convert_to_dict(theirs))
    theirs.pop("_url")
    if not theirs["generationConfig"]:
        theirs.pop("generationConfig")
    scenario.expect(normalize(body), normalize(theirs), "the request")
    if number == 0:
        image = contents[-1]["parts"][1]
        blob = {"mimeType": "image/png", "data": scenario.PNG}
        scenario.expect(image, {"inlineData": blob}, "the image")
        return
    sent = [json.loads(to_json(part)) for part in items()]
    scenario.expect(contents[1]["parts"], sent, "what goes back")
    results = [part["functionResponse"]["id"] for part in contents[2]["parts"]]
    scenario.expect(results, [id for id, _, _ in scenario.CALLS], "the results")
    if number == 2:
        scenario.expect(config["responseJsonSchema"], scenario.SCHEMA, "the schema")


def normalize(body):
    """The body with names in one of the two accepted spellings, and tools in a fixed order."""
    if isinstance(body, list):
        return [normalize(item) for item in body]
    if not isinstance(body, dict):
        return body
    body = {to_camel(key): normalize(field) for key, field in body.items()}
    if "tools" in body:
        body["tools"].sort(key=json.dumps)
    return body


def reply(number):
    yield from map(data, [calls, after, answer][number]())


def items():
    """The first message of the scenario, with streamed text as one part."""
    yield types.Part(text="".join(scenario.THINKING), thought=True)
    yield types.Part(text=scenario.TEXT[0])
    code = types.ExecutableCode(id="run", code="print(1)", language=types.Language.PYTHON)
    yield types.Part(executable_code=code)
    result = types.CodeExecutionResult(id="run", outcome=types.Outcome.OUTCOME_OK, output="1\n")
    yield types.Part(code_execution_result=result)
    yield types.Part(text=scenario.TEXT[1])
    made = [types.FunctionCall(id=id, name=name, args=args) for id, name, args in scenario.CALLS]
    first, second = [types.Part(function_call=call) for call in made]
    first.thought_signature = b"SIGNED"
    yield from [first, second]


def calls():
    for text in scenario.THINKING:
        yield chunk(types.Part(text=text, thought=True))
    _, text, code, result, *rest = items()
    for part in [text, code]:
        yield chunk(part)
    yield chunk(result, *rest)
    yield end()


def after():
    yield chunk(types.Part(text=scenario.AFTER))
    yield end()


def answer():
    yield chunk(types.Part(text=scenario.ANSWER))
    yield end()


def chunk(*parts):
    content = types.Content(role="model", parts=list(parts))
    return types.GenerateContentResponse(candidates=[types.Candidate(content=content, index=0)])


def end():
    usage = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=scenario.INPUT,
        cached_content_token_count=scenario.CACHED,
        candidates_token_count=scenario.OUTPUT - 5,
        thoughts_token_count=5,
    )
    stop = types.Candidate(finish_reason=types.FinishReason.STOP, index=0)
    return types.GenerateContentResponse(candidates=[stop], usage_metadata=usage)


def to_json(value):
    return value.model_dump_json(by_alias=True, exclude_none=True)


def data(chunk):
    return f"data: {to_json(chunk)}\r\n\r\n"
