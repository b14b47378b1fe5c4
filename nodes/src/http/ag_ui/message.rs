//! Sends the messages of a run's user.

use abide_actors::journal::ResponseScope;
use abide_actors::request::IdempotencyKey;
use abide_conversation::command::IfBusy;
use abide_conversation::{AgentName, ConversationId, Scoped};
use serde_json::Value;

use crate::access::Allowed;
use crate::access::permission::Send;
use crate::http::Api;
use crate::http::messages::{self, BusyPolicy, NewMessage, Sent, message_key_name};
use crate::http::problem::Problem;
use crate::protocols::ag_ui::decode::{Run, UserMessage};

/// What the conversation says of a tool of a run that has the name of one of the agent's.
const TAKEN: &str = "].name: is the name of a tool of the agent";

/// The messages of a run that are to be sent as one.
pub(super) struct NewMessages {
    /// Those that were not sent before, and the last in any case.
    messages: Vec<UserMessage>,
    /// Whether the last was sent before.
    pub(super) is_repeat: bool,
}

impl NewMessages {
    /// The messages of this run; `None` if it has none.
    pub(super) async fn of_run(
        api: &Api,
        id: &Scoped<ConversationId>,
        run: &Run,
    ) -> Result<Option<Self>, Problem> {
        let Some((last, earlier)) = run.messages.split_last() else { return Ok(None) };
        let scope = ResponseScope::Conversation(id.clone());
        let is_known = async |message: &UserMessage| {
            let key = message_key_name(&message.id);
            let stored = api.store.stored_response(&scope, &key, api.clock.now()).await?;
            Ok::<_, Problem>(stored.is_some())
        };
        let mut messages = Vec::new();
        for message in earlier {
            if !is_known(message).await? {
                messages.push(message.clone());
            }
        }
        messages.push(last.clone());
        Ok(Some(Self { is_repeat: is_known(last).await?, messages }))
    }

    /// Sends them as one message with the id of the last, with the tools, the context and the state of
    /// the run. Tools that the agent has itself are its own.
    pub(super) async fn send(
        self,
        api: &Api,
        allowed: &Allowed<Send>,
        (id, agent): (&Scoped<ConversationId>, &AgentName),
        (run, if_busy): (&Run, IfBusy),
        keys: Vec<IdempotencyKey>,
    ) -> Result<Sent, Problem> {
        let mut tools = run.tool_definitions();
        let stored = api.store.agent(&allowed.scoped(agent)).await?;
        let own = stored.map(|agent| agent.definition["tools"].clone()).unwrap_or_default();
        let own = own.as_array().map(Vec::as_slice).unwrap_or_default();
        tools.retain(|tool| own.iter().all(|own| own["name"] != tool["name"]));
        loop {
            let message = self.message(agent, run, if_busy, tools.clone());
            match messages::deliver(api, allowed, id, message, keys.clone()).await {
                // Only the conversation knows all tools of its agent, such as those of MCP servers.
                Err(problem) => match taken(&problem).filter(|index| *index < tools.len()) {
                    Some(index) => drop(tools.remove(index)),
                    None => return Err(problem),
                },
                Ok(sent) => return Ok(sent),
            }
        }
    }

    fn message(
        &self,
        agent: &AgentName,
        run: &Run,
        if_busy: IfBusy,
        tools: Vec<Value>,
    ) -> NewMessage {
        let content = self.messages.iter().flat_map(|message| message.content.clone());
        NewMessage {
            text: None,
            content: Some(content.collect()),
            message_id: self.messages.last().map(|message| message.id.clone()),
            agent: Some(agent.as_str().to_owned()),
            if_busy: Some(match if_busy {
                IfBusy::Reject => BusyPolicy::Reject,
                IfBusy::Queue => BusyPolicy::Queue,
                IfBusy::Interrupt => BusyPolicy::Interrupt,
                IfBusy::Steer => BusyPolicy::Steer,
            }),
            schema: None,
            assigns: run.assigns(),
            tools,
            context: run.context.clone(),
            deliver_in: None,
            deliver_at: None,
        }
    }
}

/// The place of the tool that a conversation refused, since its agent has one of the name.
fn taken(problem: &Problem) -> Option<usize> {
    problem.detail().strip_prefix("tools[")?.strip_suffix(TAKEN)?.parse().ok()
}
