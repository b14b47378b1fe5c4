"""An inbox worker: one program answers what waits in all conversations, whoever started them."""

import sys

from abide_client import Abide, StaleError

with Abide() as abide:
    name = sys.argv[1] if len(sys.argv) > 1 else abide.conversation().id
    conversations = [abide.conversation(f"{name}.{number}", agent="demo") for number in range(3)]
    turns = [conversation.send("Please send a mail") for conversation in conversations]

    left = {conversation.id for conversation in conversations}
    for call in abide.inbox(kind="approval", agent="demo", follow=True, interval=0.2):
        if call.conversation_id not in left:
            continue
        left.discard(call.conversation_id)
        try:
            # The arguments may be edited; what the approver allows is remembered for a day.
            call.approve(args={**call.args, "subject": "Approved"}, remember="24h")
            print("approved:", call.conversation_id)
        except StaleError:
            print("somebody was quicker:", call.conversation_id)
        if not left:
            break

    for turn in turns:
        print(turn.result(timeout=60).text)
