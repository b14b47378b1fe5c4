//! What is to become of the calls of one message.

use std::sync::Arc;

use abide_conversation::ConversationId;
use abide_conversation::command::{CallPlan, MessageVerdict, PlannedCall};
use abide_conversation::event::{Executor, Intent};
use abide_conversation::message::{ErrorType, Outcome};
use serde_json::Value;

use super::Step;
use super::hooks::is_let_through;
use crate::clock::Clock;
use crate::hooks::tool_use::ToolUseVerdict;
use crate::journal::StoreError;
use crate::model::{MAX_CALLS_PER_MESSAGE, ModelToolCall};
use crate::tools::{CallScope, Gate, LONGEST_NAME, Tool, Toolbox, merged};

impl Step<'_> {
    /// Plans the calls, and asks the hooks about those that the gate lets through; one of them may
    /// halt the turn. `None`: planning failed.
    pub(super) async fn planned(
        &self,
        calls: Vec<ModelToolCall>,
        judged: &mut MessageVerdict,
    ) -> Result<Option<Vec<PlannedCall>>, StoreError> {
        if calls.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let planner = self.planner(&calls).await?;
        let again = planner.clone();
        let quick = self.toolbox.plans_quickly(&calls);
        let Some(planned) = self.aside(quick, move || planner.plan(&calls)).await else {
            return Ok(None);
        };
        if *judged != MessageVerdict::GoOn {
            return Ok(Some(planned));
        }
        let Some(said) = self.said(&planned).await else { return Ok(Some(planned)) };
        let halts = said.iter().find_map(|said| match said {
            ToolUseVerdict::Halt(reason) => Some(reason.clone()),
            ToolUseVerdict::GoOn | ToolUseVerdict::Args { .. } | ToolUseVerdict::Deny(_) => None,
        });
        if let Some(reason) = halts {
            *judged = MessageVerdict::Halt(reason);
        } else if said.iter().any(|said| *said != ToolUseVerdict::GoOn) {
            return Ok(self.aside(quick, move || again.replan(planned, said)).await);
        }
        Ok(Some(planned))
    }

    async fn planner(&self, calls: &[ModelToolCall]) -> Result<Planner, StoreError> {
        let (around, deps) = (self.around, &self.around.deps);
        let toolbox = self.toolbox.clone();
        let of_agent = match toolbox.recalls(calls.iter().map(|call| call.name.as_str())) {
            true => deps.agents.decisions(&self.turn.agent).await?,
            false => Vec::new(),
        };
        let assigns = merged(&self.definition.assigns, &around.state.assigns, &self.turn.assigns);
        let scope = CallScope {
            conversation: around.id.clone(),
            principal: self.turn.principal.clone(),
            assigns,
            metadata: around.state.metadata.clone(),
        };
        let clock = deps.clock.clone();
        let gate = self.gate().recalling(&around.state, of_agent, clock.now());
        Ok(Planner { toolbox, scope, gate, clock })
    }

    /// Conditions, messages and counting may take a while; unless they are `quick`, they must not
    /// hold up other conversations.
    pub(super) async fn aside<T: Send + 'static>(
        &self,
        quick: bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if quick {
            return Some(work());
        }
        let done = tokio::task::spawn_blocking(work).await;
        let id = &self.around.id;
        done.inspect_err(
            |error| tracing::error!(conversation = %id, said = %error, "work aside failed"),
        )
        .ok()
    }
}

/// Decides about the calls of one message, one after another.
#[derive(Clone)]
struct Planner {
    toolbox: Toolbox,
    scope: CallScope,
    gate: Gate,
    clock: Arc<dyn Clock>,
}

impl Planner {
    fn plan(mut self, calls: &[ModelToolCall]) -> Vec<PlannedCall> {
        let plan = |(place, given): (usize, &ModelToolCall)| match place < MAX_CALLS_PER_MESSAGE
            || given.provider_result.is_some()
        {
            true => {
                let planned = self.toolbox.plan(given, &self.scope, &mut self.gate);
                self.with_child(planned)
            }
            false => too_many(given),
        };
        calls.iter().enumerate().map(plan).collect()
    }

    /// The same calls once more, with what hooks say to them. What was refused stays refused: no
    /// hook was asked about it.
    fn replan(mut self, planned: Vec<PlannedCall>, said: Vec<ToolUseVerdict>) -> Vec<PlannedCall> {
        let replan = |(planned, said): (PlannedCall, ToolUseVerdict)| match is_let_through(&planned)
        {
            true => {
                let planned = self.toolbox.replan(planned, said, &self.scope, &mut self.gate);
                self.with_child(planned)
            }
            false => planned,
        };
        planned.into_iter().zip(said).map(replan).collect()
    }

    fn with_child(&self, mut planned: PlannedCall) -> PlannedCall {
        let asks = self.toolbox.tool(&planned.tool).is_some_and(Tool::asks_a_child);
        if let CallPlan::Execute { child, .. } = &mut planned.plan {
            *child = asks.then(|| ConversationId::new(self.clock.id("conv")));
        }
        planned
    }
}

fn too_many(given: &ModelToolCall) -> PlannedCall {
    let error =
        format!("invalid tool arguments: more than {MAX_CALLS_PER_MESSAGE} calls in one message");
    let outcome = Outcome::Err(error, ErrorType::ValidationError);
    PlannedCall {
        given_id: given.id.clone(),
        tool: given.name.chars().take(LONGEST_NAME).collect(),
        args: Value::Object(Default::default()),
        said: None,
        plan: CallPlan::Answer { executor: Executor::Server, intent: Intent::Compute, outcome },
        gate: None,
    }
}
