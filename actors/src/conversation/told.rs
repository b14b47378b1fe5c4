//! What hooks are told of a commit.

use std::sync::Arc;

use abide_conversation::event::{Data, Ending, Event};
use abide_conversation::message::Outcome;
use abide_conversation::permission::{Decision, Verdict};
use abide_conversation::{AgentName, CallId, Principal, Revision, State};
use serde_json::Value;

use super::Loaded;
use crate::agent::Definition;
use crate::hooks::teller::{Note, Whose};
use crate::hooks::{Occasion, On};
use crate::tools::merged;

impl Loaded {
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
                let occasion = Occasion {
                    conversation_id: self.id.clone(),
                    turn_id: event.turn_id.clone(),
                    principal: principal(&event.data).or(turn.map(|turn| &turn.principal)).cloned(),
                    assigns: merged(&self.state.assigns, &own, &Default::default()),
                };
                let (tool, args) = (tool.map(str::to_owned), args.cloned());
                let event = Some(Arc::new(event.clone()));
                let note = Note { whose, occasion, on: *on, tool, args, event };
                self.deps.runner.hooks().teller.tell(&self.deps, note);
            }
        }
    }

    /// The same of a conversation that is gone, which this was.
    pub(super) fn tell_end(&self, before: &State) {
        let Some(agent) = before.agent.clone() else { return };
        let whose = match self.newest.clone().filter(|newest| newest.name == agent) {
            Some(newest) => Whose::Definition(newest),
            None => Whose::Agent(agent),
        };
        if !whose.may_want(On::SessionEnd, None) {
            return;
        }
        let occasion = Occasion {
            conversation_id: self.id.clone(),
            turn_id: None,
            principal: None,
            assigns: before.assigns.clone(),
        };
        let (tool, args, event) = Default::default();
        let note = Note { whose, occasion, on: On::SessionEnd, tool, args, event };
        self.deps.runner.hooks().teller.tell(&self.deps, note);
    }

    /// Whose hooks hear of the event: those of its turn's or its call's revision, else the newest.
    fn whose(
        &self,
        before: &State,
        event: &Event,
        known: &mut Option<(Revision, Option<Arc<Definition>>)>,
    ) -> Whose {
        let turns = [&before.turn, &self.state.turn].into_iter().flatten();
        let mut turns = turns.filter(|turn| Some(&turn.id) == event.turn_id.as_ref());
        let run = call_id(&event.data)
            .and_then(|id| before.dispatches.get(id).or_else(|| self.state.dispatches.get(id)));
        let revision = turns.next().map(|turn| &turn.revision);
        let Some(revision) = revision.or(run.map(|run| &run.revision)) else {
            let agent = || self.state.agent.clone().unwrap_or_else(|| AgentName::new(""));
            let newest = self.newest.clone().map(Whose::Definition);
            return newest.unwrap_or_else(|| Whose::Agent(agent()));
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
            Some(definition) => Whose::Definition(definition),
            None => Whose::Revision(revision.clone()),
        }
    }

    /// The tool and the arguments of the call that the event is about.
    fn call_of<'a>(
        &'a self,
        before: &'a State,
        events: &'a [Event],
        data: &'a Data,
    ) -> Option<(&'a str, &'a Value)> {
        match data {
            Data::ToolCall(call) => return Some((&call.tool, &call.args)),
            Data::Suspension(open) => return Some((&open.tool, &open.args)),
            Data::Dispatch(done) => return Some((&done.tool, &done.input)),
            _ => {}
        }
        let id = call_id(data)?;
        let planned = events.iter().find_map(|event| match &event.data {
            Data::ToolCall(call) if call.call_id == *id => Some((call.tool.as_str(), &call.args)),
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

impl Whose {
    /// Whether a hook concerns that, or nobody knows yet.
    fn may_want(&self, on: On, tool: Option<&str>) -> bool {
        match self {
            Self::Definition(definition) => {
                definition.hooks.iter().any(|hook| hook.concerns(on, tool))
            }
            Self::Revision(_) | Self::Agent(_) => true,
        }
    }
}

/// The hooks that hear of such an event.
fn told(data: &Data) -> &'static [On] {
    match data {
        Data::Created(_) => &[On::SessionStart],
        Data::UserMsg(_) => &[On::UserPromptSubmit],
        Data::TurnEnded(ended) => match ended.outcome {
            Ending::Completed | Ending::Cancelled | Ending::Halted => &[On::Stop],
            Ending::Failed => &[On::StopFailure],
        },
        Data::ToolCall(call) => denied(call.gate.as_ref()),
        Data::Resolution(resolution) => denied(resolution.gate.as_ref()),
        Data::Dispatch(done) => match denied(done.gate.as_ref()) {
            [] => result(&done.result),
            _ => &[On::PermissionDenied, On::PostToolUseFailure],
        },
        Data::ToolResult(done) => result(&done.outcome),
        Data::Suspension(_) => &[On::Notification],
        Data::ChildStarted(_) => &[On::SubagentStart],
        Data::ChildEnded(_) => &[On::SubagentStop],
        Data::Summarized(_) => &[On::PostCompact],
        Data::TurnStarted(_)
        | Data::AssistantMsg(_)
        | Data::ToolStarted(_)
        | Data::InputRequired(_)
        | Data::RepairRequested(_)
        | Data::ContextAdded(_)
        | Data::MessageRefused(_)
        | Data::Forked(_)
        | Data::ContextReduced(_)
        | Data::SummaryFailed(_)
        | Data::DispatchStarted(_)
        | Data::PhaseChanged(_)
        | Data::TodosChanged(_)
        | Data::WorkspaceOpened(_)
        | Data::ChildReleased(_)
        | Data::Told(_)
        | Data::Abandoned {}
        | Data::DecisionRemembered(_)
        | Data::DecisionKept(_)
        | Data::DecisionRevoked(_)
        | Data::Unknown(_) => &[],
    }
}

fn denied(verdict: Option<&Verdict>) -> &'static [On] {
    match verdict.map(|verdict| verdict.decision) {
        Some(Decision::Deny) => &[On::PermissionDenied],
        Some(Decision::Allow | Decision::Ask) | None => &[],
    }
}

fn result(outcome: &Outcome) -> &'static [On] {
    match outcome {
        Outcome::Ok(_) => &[On::PostToolUse],
        Outcome::Err(..) => &[On::PostToolUseFailure],
    }
}

/// Which call it is about, of the events that hooks hear of and that do not say the tool themselves.
fn call_id(data: &Data) -> Option<&CallId> {
    match data {
        Data::ToolResult(done) => Some(&done.call_id),
        Data::Resolution(resolution) => Some(&resolution.call_id),
        Data::Dispatch(done) => Some(&done.call_id),
        Data::ChildStarted(child) => Some(&child.call_id),
        Data::ChildEnded(child) => Some(&child.call_id),
        _ => None,
    }
}

/// On whose behalf, where the event says so itself.
fn principal(data: &Data) -> Option<&Principal> {
    match data {
        Data::UserMsg(said) => Some(&said.principal),
        Data::Dispatch(done) => Some(&done.principal),
        _ => None,
    }
}
