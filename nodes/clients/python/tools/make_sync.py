"""Makes `_sync` of `_async`: make_sync.py [--check]. With --check it only says whether that is current."""

import re
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src/abide_client"

#: Words of the asynchronous client, and what they are in the other, in this order.
WORDS = [
    (r"from contextlib import aclosing", "from contextlib import closing"),
    (r"\baclosing\b", "closing"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"await asyncio\.to_thread\(([\w.]+), ", r"\1("),
    (r"^import asyncio\n", ""),
    (r"str\(await token\) if inspect\.isawaitable\(token\) else token", "token"),
    (r"^        if inspect\.isawaitable\(result\):\n            result = await result\n", ""),
    (r"^import inspect\n", ""),
    (r"^    elif isinstance\(body, AsyncIterable\):\n(        .*\n)+", ""),
    (r"\(AsyncIterable, Iterable\)", "Iterable"),
    (r"\bAsyncIterable(\[bytes\])?, ", ""),
    (r"Callable\[\[\], str \| Awaitable\[str\]\]", "Callable[[], str]"),
    (r"Union\[Any, Awaitable\[Any\]\]", "Any"),
    (r"\bAwaitable, Callable\b", "Callable"),
    (r"AsyncGenerator\[(.+), None\]:", r"Generator[\1, None, None]:"),
    (r"AsyncGenerator, AsyncIterator, Callable", "Callable, Generator, Iterator"),
    (r"AsyncGenerator, Callable", "Callable, Generator"),
    (r"import AsyncGenerator$", "import Generator"),
    (r"\basync def\b", "def"),
    (r"\basync with\b", "with"),
    (r"\basync for\b", "for"),
    (r"\bawait ", ""),
    (r"\bAsync(Iterator|Abide|Conversation|ConversationState|Turn|Call|Transport|Source)\b", r"\1"),
    (r"\bAsync(Agents|Blobs|Erasures|Schedules|Webhooks)\b", r"\1"),
    (r"\b_AsyncNamed\b", "_Named"),
    (r"\bAsyncClient\b", "Client"),
    (r"__a(enter|exit|iter)__", r"__\1__"),
    (r"\baclose\b", "close"),
    (r"\baiter_raw\b", "iter_raw"),
    (r"The client for asyncio. `tools/make_sync.py` makes `_sync` of it.",
     "The client for programs without asyncio, made of `_async` by `tools/make_sync.py`."),
]  # fmt: skip


def translate(text: str) -> str:
    for pattern, instead in WORDS:
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    if "time.sleep" in text and not re.search(r"^import time$", text, flags=re.MULTILINE):
        text = re.sub(r"^import (re|uuid)$", r"import \1\nimport time", text, count=1, flags=re.MULTILINE)
    return text


def main() -> int:
    check, stale = "--check" in sys.argv, []
    (SOURCE / "_sync").mkdir(exist_ok=True)
    for file in sorted((SOURCE / "_async").glob("*.py")):
        target = SOURCE / "_sync" / file.name
        text = translate(file.read_text())
        if not target.exists() or target.read_text() != text:
            stale.append(target.name)
            if not check:
                target.write_text(text)
    if check and stale:
        print(f"_sync is not current: {stale}; run tools/make_sync.py", file=sys.stderr)
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
