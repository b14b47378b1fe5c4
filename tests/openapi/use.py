"""Uses a node through the client that openapi-python-client makes of the document: use.py URL."""

import sys

from abide_api import Client, models
from abide_api.api.agents import put_agent
from abide_api.api.calls import list_pending, resolve_call
from abide_api.api.conversations import get_conversation, list_conversations
from abide_api.api.decisions import list_decisions
from abide_api.api.messages import send_message

client = Client(base_url=sys.argv[1], raise_on_unexpected_status=True)

calls = [{"id": "m", "name": "mail", "args": {"to": "a@b.c"}}]
mail = {
    "name": "mail",
    "description": "Sends a mail.",
    "approval": "requires_approval",
    "run": {"native": "demo_send_email"},
}
agent = models.AgentDefinition.from_dict(
    {
        "model": {"provider": "scripted", "script": [{"calls": calls}, {"text": "Sent."}]},
        "tools": [mail],
    }
)
defined = put_agent.sync_detailed("generated", client=client, body=agent)
assert defined.status_code == 201, defined

message = {"agent": "generated", "text": "Send it."}
sent = send_message.sync_detailed("generated-1", client=client, body=message, wait="30s")
assert sent.status_code == 200, sent

page = list_pending.sync(client=client, conversation="generated-1")
assert isinstance(page, models.PendingPage), page
assert [(entry.call_id, entry.kind) for entry in page.pending] == [("m", "approval")], page

approve = {"approved": True, "remember": {"for": "5m"}}
approved = resolve_call.sync("generated-1", "m", client=client, body=approve, wait="30s")
assert not isinstance(approved, models.Problem) and approved is not None, approved

again = resolve_call.sync("generated-1", "m", client=client, body={"approved": True})
assert isinstance(again, models.Problem), again
assert again.type_ == "/problems/call-not-open" and again.status == 409, again

snapshot = get_conversation.sync("generated-1", client=client)
assert isinstance(snapshot, models.Snapshot) and snapshot.state == "idle", snapshot
kept = list_decisions.sync("generated-1", client=client)
assert isinstance(kept, models.DecisionList) and len(kept.decisions) == 1, kept
missing = get_conversation.sync("nowhere", client=client)
assert isinstance(missing, models.Problem) and missing.status == 404, missing
listed = list_conversations.sync(client=client, agent="generated")
assert isinstance(listed, models.ConversationPage) and listed.conversations, listed
print("openapi-python-client: ok")
