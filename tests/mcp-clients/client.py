"""The official MCP client for Python, one case at a time: python client.py CASE OPTIONS. The case's result
goes to standard output as JSON. What is asserted of it is in tests/cluster/mcp_server.rs."""

import asyncio
import json
import sys

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

name, options = sys.argv[1], json.loads(sys.argv[2])
asked = []
progress = []


async def answer(context, params):
    """Answers as a person would: each question by what its form has."""
    asked.append(params.model_dump(mode="json", by_alias=True, exclude_none=True))
    is_approval = "approved" in asked[-1]["requestedSchema"]["properties"]
    given = options["approval"] if is_approval else options["answer"]
    if isinstance(given, str):
        return ElicitResult(action=given)
    return ElicitResult(action="accept", content=given)


async def told(count, total, message):
    progress.append(message)


def plain(result):
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


async def run(client):
    tool, arguments = options.get("tool", "a"), options.get("arguments")
    if name == "tools":
        return {"version": client.protocol_version, **plain(await client.list_tools())}
    if name == "call":
        return plain(await client.call_tool(tool, arguments, progress_callback=told))
    rounds = {"allow_input_required": True}
    if name == "answer":
        rounds["request_state"] = options["requestState"]
        rounds["input_responses"] = {
            key: ElicitResult.model_validate(response)
            for key, response in options["inputResponses"].items()
        }
    return plain(await client.session.call_tool(tool, arguments, **rounds))


async def main():
    result, error = None, None
    asks = answer if options.get("asks", True) else None
    credential = options.get("credential")
    headers = {"authorization": f"Bearer {credential}"} if credential else {}
    try:
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            url = options["base"] + options.get("path", "/mcp")
            transport = streamable_http_client(url, http_client=http)
            mode = options.get("era", "auto")
            async with Client(transport, mode=mode, elicitation_callback=asks) as client:
                result = await run(client)
    except BaseException as caught:
        while isinstance(caught, BaseExceptionGroup):
            caught = caught.exceptions[0]
        code = getattr(caught, "code", None)
        error = {"name": type(caught).__name__, "code": code, "message": str(caught)}
    print(json.dumps({"result": result, "error": error, "asked": asked, "progress": progress}))


asyncio.run(main())
