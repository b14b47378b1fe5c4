"""A2A's own client for Python, one case at a time: client.py CASE OPTIONS.

The case's result goes to standard output as JSON. What is asserted of it is in tests/cluster/a2a.rs.
"""

import asyncio
import json
import sys
from uuid import uuid4

import httpx
from a2a.client import ClientConfig, create_client
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
)
from a2a.utils.errors import A2AError, UnsupportedOperationError
from google.protobuf.json_format import MessageToDict, ParseDict

CASE, OPTIONS = sys.argv[1], json.loads(sys.argv[2])


def request(message):
    message = {"messageId": str(uuid4()), "role": "ROLE_USER", **message}
    return ParseDict({"message": message}, SendMessageRequest())


def say(text):
    message = {"parts": [{"text": text}]}
    if "context" in OPTIONS:
        message["contextId"] = OPTIONS["context"]
    return request(message)


def answers(task, given):
    return request({"taskId": task["id"], "parts": [{"data": data} for data in given]})


def questions(task):
    parts = task["status"]["message"]["parts"]
    return [part["data"]["abide"] for part in parts if "data" in part]


async def read(stream, most=None):
    told = {"task": None, "text": "", "states": []}
    texts = {}
    async for response in stream:
        event = MessageToDict(response)
        if "task" in event:
            told["task"] = event["task"]
            told["states"].append(event["task"]["status"]["state"])
            for artifact in event["task"].get("artifacts", []):
                texts[artifact["artifactId"]] = artifact["parts"][0]["text"]
        if "artifactUpdate" in event:
            update = event["artifactUpdate"]
            name = update["artifact"]["artifactId"]
            text = "".join(part["text"] for part in update["artifact"]["parts"])
            texts[name] = (texts[name] if update.get("append") else "") + text
        if "statusUpdate" in event:
            told["states"].append(event["statusUpdate"]["status"]["state"])
        told["text"] = "".join(texts.values())
        if most is not None and len(told["text"]) >= most:
            break
    return told


async def get(client, task):
    return MessageToDict(await client.get_task(GetTaskRequest(id=task)))


async def stream(client):
    return await read(client.send_message(say(OPTIONS.get("text", "hello"))), OPTIONS.get("most"))


async def subscribe(client):
    """Follows a task, or reads it if it is over already."""
    try:
        return await read(client.subscribe(SubscribeToTaskRequest(id=OPTIONS["task"])))
    except UnsupportedOperationError:
        over = await get(client, OPTIONS["task"])
        texts = [artifact["parts"][0]["text"] for artifact in over.get("artifacts", [])]
        return {"task": over, "text": "".join(texts), "states": [over["status"]["state"]]}


async def task(client):
    return await get(client, OPTIONS["task"])


async def answer(client):
    asked = await get(client, OPTIONS["task"])
    given = [
        {"call_id": it["call_id"], "suspension": it["suspension"], **OPTIONS["answer"]}
        for it in questions(asked)
    ]
    return await read(client.send_message(answers(asked, given)))


async def attempt(call):
    try:
        return {"value": await call}
    except A2AError as error:
        return {"refused": type(error).__name__, "message": str(error)}


async def gate(client):
    asked = (await read(client.send_message(say("go"))))["task"]
    asked = await get(client, asked["id"])
    text = request({"taskId": asked["id"], "parts": [{"text": "yes, go ahead"}]})
    words = await attempt(read(client.send_message(text)))
    call = questions(asked)[0]["call_id"]
    given = await read(client.send_message(answers(asked, [{"call_id": call, "approved": True}])))
    late = await attempt(
        read(client.send_message(answers(asked, [{"call_id": call, "approved": False}])))
    )
    return {"asked": asked, "words": words, "given": given, "late": late}


async def refused(client):
    done = (await read(client.send_message(say("hello"))))["task"]["id"]
    return [
        await attempt(client.get_task(GetTaskRequest(id="k_a.nothing"))),
        await attempt(client.cancel_task(CancelTaskRequest(id=done))),
        await attempt(read(client.subscribe(SubscribeToTaskRequest(id=done)))),
        await attempt(read(client.send_message(request({"parts": []})))),
    ]


CASES = {
    "stream": stream,
    "send": stream,
    "subscribe": subscribe,
    "get": task,
    "answer": answer,
    "gate": gate,
    "refused": refused,
}


async def main():
    headers = {"A2A-Version": "1.0"}
    if "key" in OPTIONS:
        headers["Authorization"] = f"Bearer {OPTIONS['key']}"
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        config = ClientConfig(httpx_client=http, streaming=CASE != "send")
        agent = f"{OPTIONS['base']}/a2a/{OPTIONS.get('agent', 'a')}"
        client = await create_client(agent, config)
        print(json.dumps(await CASES[CASE](client)))


asyncio.run(main())
