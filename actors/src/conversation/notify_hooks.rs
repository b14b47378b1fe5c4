//! Notifies hooks of a commit.

use std::sync::Arc;

use abide_conversation::event::{Event, EventData, TurnOutcome};
use abide_conversation::message::Outcome;
use abide_conversation::permission::{Decision, Verdict};
use abide_conversation::{AgentName, CallId, Principal, Revision, State};
use serde_json::Value;

use super::LiveConversation;
use crate::assigns::merged;
use crate::definition::Definition;
use crate::definition::HookPoint;
use crate::hooks::HookContext;
use crate::hooks::notifier::{HookOwner, Notification};

impl LiveConversation {
    /// Queues the notifications of events that have been journalled. Reads no store.
    pub(super) fn notify_hooks(&self, before: &State, events: &[Event]) {
        let mut cache: Option<(Revision, Option<Arc<Definition>>)> = None;
        for event in events {
            for on in hook_points(&event.data) {
                let owner = self.hook_owner(before, event, &mut cache);
                let (tool, args) = self.call_of(before, events, &event.data).unzip();
                if !owner.may_want(*on, tool) {
                    continue;
                }
                let turns = [&before.turn, &self.state.turn].into_iter().flatten();
                let turn = turns.into_iter().find(|it| Some(&it.id) == event.turn_id.as_ref());
                let turn_assigns = turn.map(|turn| turn.assigns.clone()).unwrap_or_default();
                let context = HookContext {
                    conversation_id: self.id.local(),
                    turn_id: event.turn_id.clone(),
                    principal: principal(&event.data).or(turn.map(|turn| &turn.principal)).cloned(),
                    assigns: merged(&self.state.assigns, &turn_assigns, &Default::default()),
                };
                self.notify(Notification {
                    conversation: self.id.clone(),
                    owner,
                    context,
                    on: *on,
                    tool: tool.map(str::to_owned),
                    args: args.cloned(),
                    event: Some(Arc::new(event.clone())),
                });
            }
        }
    }

    /// Queues the notification that the conversation was deleted; `before` was its last state.
    pub(super) fn notify_session_end(&self, before: &State) {
        let Some(agent) = before.agent.clone() else { return };
        let definition = self.next_definition_known().filter(|known| known.name == agent);
        let owner = definition.map_or(HookOwner::Agent(agent), HookOwner::Definition);
        if !owner.may_want(HookPoint::SessionEnd, None) {
            return;
        }
        let context = HookContext {
            conversation_id: self.id.local(),
            turn_id: None,
            principal: None,
            assigns: before.assigns.clone(),
        };
        self.notify(Notification {
            conversation: self.id.clone(),
            owner,
            context,
            on: HookPoint::SessionEnd,
            tool: None,
            args: None,
            event: None,
        });
    }

    fn notify(&self, notification: Notification) {
        self.services.hooks.notify(&self.services.agents, notification);
    }

    /// The definition that was last looked up for the conversation.
    fn next_definition_known(&self) -> Option<Arc<Definition>> {
        self.choice.as_ref().map(|choice| choice.definition.clone())
    }

    /// The definition whose hooks are notified: the revision of the event's turn or call, else the
    /// agent's.
    fn hook_owner(
        &self,
        before: &State,
        event: &Event,
        cache: &mut Option<(Revision, Option<Arc<Definition>>)>,
    ) -> HookOwner {
        let turns = [&before.turn, &self.state.turn].into_iter().flatten();
        let mut turns = turns.filter(|turn| Some(&turn.id) == event.turn_id.as_ref());
        let run = call_id(&event.data)
            .and_then(|id| before.dispatches.get(id).or_else(|| self.state.dispatches.get(id)));
        let revision = turns.next().map(|turn| &turn.revision);
        let Some(revision) = revision.or(run.map(|run| &run.revision)) else {
            let agent = || self.state.agent.clone().unwrap_or_else(|| AgentName::new(""));
            let known = self.next_definition_known().map(HookOwner::Definition);
            return known.unwrap_or_else(|| HookOwner::Agent(agent()));
        };
        let definition = match cache {
            Some((cached, definition)) if cached == revision => definition.clone(),
            Some(_) | None => {
                let found = self.services.agents.cached(&self.id.sibling(revision));
                *cache = Some((revision.clone(), found.clone()));
                found
            }
        };
        match definition {
            Some(definition) => HookOwner::Definition(definition),
            None => HookOwner::Revision(revision.clone()),
        }
    }

    /// The tool and the arguments of the call that the event is about.
    fn call_of<'a>(
        &'a self,
        before: &'a State,
        events: &'a [Event],
        data: &'a EventData,
    ) -> Option<(&'a str, &'a Value)> {
        match data {
            EventData::ToolCall(call) => return Some((&call.tool, &call.args)),
            EventData::Suspension(open) => return Some((&open.tool, &open.args)),
            EventData::DispatchFinished(done) => return Some((&done.tool, &done.input)),
            _ => {}
        }
        let id = call_id(data)?;
        let planned = events.iter().find_map(|event| match &event.data {
            EventData::ToolCall(call) if call.call_id == *id => {
                Some((call.tool.as_str(), &*call.args))
            }
            _ => None,
        });
        let from_turn = || {
            let call = before.call(id).or_else(|| self.state.call(id))?;
            Some((call.tool.as_str(), &*call.args))
        };
        let from_dispatch = || {
            let run = before.dispatches.get(id).or_else(|| self.state.dispatches.get(id))?;
            Some((run.tool.as_str(), &*run.input))
        };
        planned.or_else(from_turn).or_else(from_dispatch)
    }
}

impl HookOwner {
    /// Whether one of its hooks wants to be notified, or that is not known yet.
    fn may_want(&self, on: HookPoint, tool: Option<&str>) -> bool {
        match self {
            Self::Definition(definition) => {
                definition.hooks.iter().any(|hook| hook.concerns(on, tool))
            }
            Self::Revision(_) | Self::Agent(_) => true,
        }
    }
}

/// The hook points at which such an event is notified.
fn hook_points(data: &EventData) -> &'static [HookPoint] {
    match data {
        EventData::Created(_) => &[HookPoint::SessionStart],
        EventData::UserMsg(_) | EventData::Steered(_) => &[HookPoint::UserPromptSubmit],
        EventData::TurnEnded(ended) => match ended.outcome {
            TurnOutcome::Completed | TurnOutcome::Cancelled | TurnOutcome::Halted => {
                &[HookPoint::Stop]
            }
            TurnOutcome::Failed => &[HookPoint::StopFailure],
        },
        EventData::ToolCall(call) => denied(call.gate.as_ref()),
        EventData::Resolution(resolution) => denied(resolution.verdict.as_ref()),
        EventData::DispatchFinished(done) => match denied(done.verdict.as_ref()) {
            [] => result(&done.result),
            _ => &[HookPoint::PermissionDenied, HookPoint::PostToolUseFailure],
        },
        EventData::ToolResult(done) => result(&done.outcome),
        EventData::Suspension(_) => &[HookPoint::Notification],
        EventData::ChildStarted(_) => &[HookPoint::SubagentStart],
        EventData::ChildEnded(_) => &[HookPoint::SubagentStop],
        EventData::Summarized(_) => &[HookPoint::PostCompact],
        EventData::TurnStarted(_)
        | EventData::AssistantMsg(_)
        | EventData::Voted(_)
        | EventData::ToolStarted(_)
        | EventData::InputRequired(_)
        | EventData::RepairRequested(_)
        | EventData::ContextAdded(_)
        | EventData::MessageRefused(_)
        | EventData::Forked(_)
        | EventData::ContextReduced(_)
        | EventData::SummaryFailed(_)
        | EventData::DispatchStarted(_)
        | EventData::PhaseChanged(_)
        | EventData::TodosChanged(_)
        | EventData::WorkspaceOpened(_)
        | EventData::ChildReleased(_)
        | EventData::ParentNotified(_)
        | EventData::Abandoned {}
        | EventData::DecisionRemembered(_)
        | EventData::DecisionPublished(_)
        | EventData::DecisionRevoked(_)
        | EventData::Updated(_)
        | EventData::Operated(_)
        | EventData::ToolQueued(_)
        | EventData::ToolLeased(_)
        | EventData::CallbackAwaited(_)
        | EventData::MessageScheduled(_)
        | EventData::ScheduleEnded(_)
        | EventData::SuspensionExpiring(_)
        | EventData::SuspensionExtended(_)
        | EventData::SuspensionEscalated(_)
        | EventData::ToolAttemptFailed(_)
        | EventData::StateChanged(_)
        | EventData::TurnWithdrawn(_)
        | EventData::Rewound(_)
        | EventData::Unknown(_) => &[],
    }
}

fn denied(verdict: Option<&Verdict>) -> &'static [HookPoint] {
    match verdict.map(|verdict| verdict.decision) {
        Some(Decision::Deny) => &[HookPoint::PermissionDenied],
        Some(Decision::Allow | Decision::Ask) | None => &[],
    }
}

fn result(outcome: &Outcome) -> &'static [HookPoint] {
    match outcome {
        Outcome::Ok(_) => &[HookPoint::PostToolUse],
        Outcome::Err(..) => &[HookPoint::PostToolUseFailure],
    }
}

/// The call that an event is about. Only for events that hooks are notified of and that do not name
/// the tool themselves.
fn call_id(data: &EventData) -> Option<&CallId> {
    match data {
        EventData::ToolResult(done) => Some(&done.call_id),
        EventData::Resolution(resolution) => Some(&resolution.call_id),
        EventData::DispatchFinished(done) => Some(&done.call_id),
        EventData::ChildStarted(child) => Some(&child.call_id),
        EventData::ChildEnded(child) => Some(&child.call_id),
        _ => None,
    }
}

/// The principal that an event names itself.
fn principal(data: &EventData) -> Option<&Principal> {
    match data {
        EventData::UserMsg(message) => Some(&message.principal),
        EventData::Steered(message) => Some(&message.principal),
        EventData::DispatchFinished(done) => Some(&done.principal),
        _ => None,
    }
}
