"""The first answer: send a message, and wait for what comes of it.

    ABIDE_URL=http://127.0.0.1:8080 python 01_first_answer.py [CONVERSATION]
"""

import sys

from abide_client import Abide

with Abide() as abide:
    conversation = abide.conversation(*sys.argv[1:2], agent="demo")
    turn = conversation.send("Hello")
    answer = turn.result(timeout=60)
    print(answer.text)
