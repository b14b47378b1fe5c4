"""Later: a message that is delivered in a second, or next year, by whichever node lives then; and a schedule."""

import sys

from abide_client import Abide, Complete, End

with Abide() as abide:
    conversation = abide.conversation(*sys.argv[1:2], agent="demo")
    scheduled = conversation.schedule("Hello", delay="1s")["scheduled_id"]
    print("scheduled:", any(it["scheduled_id"] == scheduled for it in conversation.scheduled()))
    for item in conversation.follow(after=0):
        if isinstance(item, Complete):
            print(item.text)
        if isinstance(item, End):
            break

    # A schedule sends its message again and again. Each tick makes a conversation of its own here.
    when = {"cron": "30 9 * * mon-fri", "timezone": "Europe/Berlin"}
    abide.schedules.put("standup", {"agent": "demo", "text": "What is on today?", **when})
    print("next:", abide.schedules.get("standup")["next_at"] is not None)
    abide.schedules.delete("standup")
