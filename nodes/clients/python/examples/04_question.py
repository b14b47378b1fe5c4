"""A question with a form: what the model asks is drawn by the schema of its answer."""

import sys

from abide_client import Abide, Call, Complete, InvalidRequestError, Result

with Abide() as abide:
    turn = abide.conversation(*sys.argv[1:2], agent="demo").send("Choose a seat")
    for item in turn:
        match item:
            case Call(kind="elicitation"):
                choices = (item.answer_schema or {})["enum"]
                print(item.message, choices)
                try:
                    item.answer("on the roof")
                except InvalidRequestError as error:
                    # The call stays open, so that a person can correct the field that is named.
                    print("refused:", error.detail)
                item.answer(choices[-1])
            case Result(value=value):
                print("answered:", value)
            case Complete(text=text):
                print(text)
