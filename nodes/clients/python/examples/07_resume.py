"""Resuming after a reload: what was read before is not read again, and nothing is missed."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from abide_client import Abide, Restart, Text

with TemporaryDirectory() as directory:
    bookmark = Path(directory, "bookmark")

    # The program reads some words, and ends in the middle of the answer.
    words: list[str] = []
    with Abide() as abide:
        conversation = abide.conversation(*sys.argv[1:2], agent="demo")
        turn = conversation.send("Hello")
        for item in turn:
            if isinstance(item, Text):
                words.append(item.text)
            if len(words) == 3:
                break
        bookmark.write_text(f"{conversation.id} {turn.cursor}")
    print("read before:", "".join(words))

    # Another program, or the same one after a restart, goes on from the place that was noted.
    id, cursor = bookmark.read_text().split()
    with Abide() as abide:
        for item in abide.conversation(id).turn(cursor):
            match item:
                case Text(text):
                    words.append(text)
                case Restart():
                    words.clear()
    print("all of it:", "".join(words))
