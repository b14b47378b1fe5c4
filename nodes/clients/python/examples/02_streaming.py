"""Streaming: an answer as it is written, word by word, whichever node writes it."""

import asyncio
import sys

from abide_client import AsyncAbide, End, Restart, Text


async def main() -> None:
    async with AsyncAbide() as abide:
        conversation = abide.conversation(*sys.argv[1:2], agent="demo")
        async for item in await conversation.send("Hello"):
            match item:
                case Text(text):
                    print(text, end="", flush=True)
                case Restart():
                    # The node died while it wrote: another one begins the message anew.
                    print("\n[once more]", flush=True)
                case End(outcome=outcome):
                    print(f"\n[{outcome}]")


asyncio.run(main())
