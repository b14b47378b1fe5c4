"""An approval: the model wants to send an e-mail, and a person allows it."""

import sys

from abide_client import Abide, Call, StaleError, WaitingError

with Abide() as abide:
    turn = abide.conversation(*sys.argv[1:2], agent="demo").send("Please send a mail")
    try:
        turn.result(timeout=60)
    except WaitingError as waiting:
        for call in waiting.pending:
            assert isinstance(call, Call)
            print("to approve:", call.message)
            try:
                call.approve(reason="It is what I asked for.")
            except StaleError:
                print("somebody else was quicker")
    # The call waits in the journal: nothing is lost if this program or a node ends in between.
    print(turn.result(timeout=60).text)
