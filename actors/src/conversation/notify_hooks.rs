//! What hooks are told of a commit.

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
    /// Queues what hooks want to know of events that are journalled now. Asks no store.
    pub(super) fn tell(&self, before: &State, events: &[Event]) {
        let mut known: Option<(Revision, Option<Arc<Definition>>)> = None;
        for event in events {
            for on in told(&event.data) {
                let whose = self.whose(before, event, &mut known);
                let (tool, args) = self.call_of(before, events, &event.data).unzip();
                if !whose.may_want(*on, tool) {
                    continue;
                }
                let turns = [&before.turn, &self.state.turn].into_iter().flatten();
                let turn = turns.into_iter().find(|it| Some(&it.id) == event.turn_id.as_ref());
                let own = turn.map(|turn| turn.assigns.clone()).unwrap_or_default();
                let occasion = HookContext {
                    conversation_id: self.id.clone(),
                    turn_id: event.turn_id.clone(),
                    principal: principal(&event.data).or(turn.map(|turn| &turn.principal)).cloned(),
                    assigns: merged(&self.state.assigns, &own, &Default::default()),
                };
                let (tool, args) = (tool.map(str::to_owned), args.cloned());
                let event = Some(Arc::new(event.clone()));
                let note = Notification { whose, occasion, on: *on, tool, args, event };
                self.deps.runner.hooks().teller.tell(&self.deps, note);
            }
        }
    }

    /// The same of a conversation that is gone, which this was.
    pub(super) fn tell_end(&self, before: &State) {
        let Some(agent) = before.agent.clone() else { return };
        let whose = match self.newest.clone().filter(|newest| newest.name == agent) {
            Some(newest) => HookOwner::Definition(newest),
            None => HookOwner::Agent(agent),
        };
        if !whose.may_want(HookPoint::SessionEnd, None) {
            return;
        }
        let occasion = HookContext {
            conversation_id: self.id.clone(),
            turn_id: None,
            principal: None,
            assigns: before.assigns.clone(),
        };
        let (tool, args, event) = Default::default();
        let note = Notification { whose, occasion, on: HookPoint::SessionEnd, tool, args, event };
        self.deps.runner.hooks().teller.tell(&self.deps, note);
    }

    /// Whose hooks hear of the event: those of its turn's or its call's revision, else the newest.
    fn whose(
        &self,
        before: &State,
        event: &Event,
        known: &mut Option<(Revision, Option<Arc<Definition>>)>,
    ) -> HookOwner {
        let turns = [&before.turn, &self.state.turn].into_iter().flatten();
        let mut turns = turns.filter(|turn| Some(&turn.id) == event.turn_id.as_ref());
        let run = call_id(&event.data)
            .and_then(|id| before.dispatches.get(id).or_else(|| self.state.dispatches.get(id)));
        let revision = turns.next().map(|turn| &turn.revision);
        let Some(revision) = revision.or(run.map(|run| &run.revision)) else {
            let agent = || self.state.agent.clone().unwrap_or_else(|| AgentName::new(""));
            let newest = self.newest.clone().map(HookOwner::Definition);
            return newest.unwrap_or_else(|| HookOwner::Agent(agent()));
        };
        let definition = match known {
            Some((of, definition)) if of == revision => definition.clone(),
            Some(_) | None => {
                let found = self.deps.agents.kept(revision);
                *known = Some((revision.clone(), found.clone()));
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
                Some((call.tool.as_str(), &call.args))
            }
            _ => None,
        });
        let of_turn = || {
            let call = before.call(id).or_else(|| self.state.call(id))?;
            Some((call.tool.as_str(), &call.args))
        };
        let of_run = || {
            let run = before.dispatches.get(id).or_else(|| self.state.dispatches.get(id))?;
            Some((run.tool.as_str(), &run.input))
        };
        planned.or_else(of_turn).or_else(of_run)
    }
}

impl HookOwner {
    /// Whether a hook concerns that, or nobody knows yet.
    fn may_want(&self, on: HookPoint, tool: Option<&str>) -> bool {
        match self {
            Self::Definition(definition) => {
                definition.hooks.iter().any(|hook| hook.concerns(on, tool))
            }
            Self::Revision(_) | Self::Agent(_) => true,
        }
    }
}

/// The hooks that hear of such an event.
fn told(data: &EventData) -> &'static [HookPoint] {
    match data {
        EventData::Created(_) => &[HookPoint::SessionStart],
        EventData::UserMsg(_) => &[HookPoint::UserPromptSubmit],
        EventData::TurnEnded(ended) => match ended.outcome {
            TurnOutcome::Completed | TurnOutcome::Cancelled | TurnOutcome::Halted => {
                &[HookPoint::Stop]
            }
            TurnOutcome::Failed => &[HookPoint::StopFailure],
        },
        EventData::ToolCall(call) => denied(call.gate.as_ref()),
        EventData::Resolution(resolution) => denied(resolution.gate.as_ref()),
        EventData::DispatchFinished(done) => match denied(done.gate.as_ref()) {
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

/// Which call it is about, of the events that hooks hear of and that do not say the tool themselves.
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

/// On whose behalf, where the event says so itself.
fn principal(data: &EventData) -> Option<&Principal> {
    match data {
        EventData::UserMsg(said) => Some(&said.principal),
        EventData::DispatchFinished(done) => Some(&done.principal),
        _ => None,
    }
}
