//! Plans the calls of one message of the model.

use std::sync::Arc;

use abide_conversation::ConversationId;
use abide_conversation::command::{CallPlan, MessageVerdict, PlannedCall};
use abide_conversation::event::{CallKind, Executor, Intent};
use abide_conversation::message::{ErrorType, Outcome};
use serde_json::Value;

use super::ModelStep;
use super::hooks::passed_the_gate;
use crate::assigns::Assigns;
use crate::clock::Clock;
use crate::definition::{MAX_TOOL_NAME_BYTES, Tool};
use crate::hooks::tool_use::ToolUseVerdict;
use crate::journal::StoreError;
use crate::model::{MAX_CALLS_PER_MESSAGE, ModelToolCall};
use crate::tools::{CallScope, Gate, Toolbox};

impl ModelStep<'_> {
    /// Plans the calls, and asks the hooks about those that pass the gate. A hook may halt the
    /// turn, which changes `verdict`. `None` if planning failed.
    pub(super) async fn plan_calls(
        &self,
        calls: Vec<ModelToolCall>,
        verdict: &mut MessageVerdict,
    ) -> Result<Option<Vec<PlannedCall>>, StoreError> {
        if calls.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let planner = self.planner(&calls).await?;
        let replanner = planner.clone();
        let is_quick = self.toolbox.is_cheap_to_plan(&calls);
        let plan = move || planner.plan(&calls);
        let planned = if is_quick { Some(plan()) } else { self.run_blocking(plan).await };
        let Some(planned) = planned else { return Ok(None) };
        if *verdict != MessageVerdict::Accept {
            return Ok(Some(planned));
        }
        let Some(verdicts) = self.judge_calls(&planned).await else { return Ok(Some(planned)) };
        let halt = verdicts.iter().find_map(|verdict| match verdict {
            ToolUseVerdict::Halt(reason) => Some(reason.clone()),
            ToolUseVerdict::GoOn
            | ToolUseVerdict::Args { .. }
            | ToolUseVerdict::Ask { .. }
            | ToolUseVerdict::Deny(_) => None,
        });
        if let Some(reason) = halt {
            *verdict = MessageVerdict::Halt(reason);
        } else if verdicts.iter().any(|verdict| *verdict != ToolUseVerdict::GoOn) {
            let replan = move || replanner.replan(planned, verdicts);
            return Ok(if is_quick { Some(replan()) } else { self.run_blocking(replan).await });
        }
        Ok(Some(planned))
    }

    async fn planner(&self, calls: &[ModelToolCall]) -> Result<Planner, StoreError> {
        let ctx = self.ctx;
        let services = &ctx.services;
        let toolbox = self.toolbox.clone();
        let agent_decisions =
            if toolbox.uses_remembered_decisions(calls.iter().map(|call| call.name.as_str())) {
                services.agents.decisions(&ctx.id.sibling(&self.turn.agent)).await?
            } else {
                Vec::new()
            };
        let assigns =
            Assigns::new(&self.definition.assigns, &ctx.state.assigns, &self.turn.assigns);
        let scope = CallScope {
            conversation: ctx.id.local(),
            principal: self.turn.principal.clone(),
            identity: self.turn.identity.clone(),
            owner: ctx.state.participants.owner.clone(),
            assigns: Arc::new(assigns),
            metadata: ctx.state.metadata.clone(),
        };
        let clock = services.clock.clone();
        let gate = self.gate().with_remembered(&ctx.state, agent_decisions, clock.now());
        Ok(Planner { toolbox, scope, gate, clock })
    }

    /// Runs `work` on a blocking thread. Conditions, schemas and token counts may take long, and must
    /// not hold up other conversations.
    pub(super) async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let result = tokio::task::spawn_blocking(work).await;
        if let Err(error) = &result {
            tracing::error!(conversation = %self.ctx.id, content = %error, "blocking work failed");
        }
        result.ok()
    }
}

/// Plans the calls of one message, one after another.
#[derive(Clone)]
struct Planner {
    toolbox: Toolbox,
    scope: CallScope,
    gate: Gate,
    clock: Arc<dyn Clock>,
}

impl Planner {
    fn plan(mut self, calls: &[ModelToolCall]) -> Vec<PlannedCall> {
        let plan = |(index, call): (usize, &ModelToolCall)| {
            if index >= MAX_CALLS_PER_MESSAGE && call.provider_result.is_none() {
                return too_many(call);
            }
            let planned = self.toolbox.plan(call, &self.scope, &mut self.gate);
            self.with_child(planned)
        };
        calls.iter().enumerate().map(plan).collect()
    }

    /// Plans the calls again with the verdicts of the hooks. A refused call stays refused: no hook
    /// was asked about it.
    fn replan(
        mut self,
        planned: Vec<PlannedCall>,
        verdicts: Vec<ToolUseVerdict>,
    ) -> Vec<PlannedCall> {
        let replan = |(planned, verdict): (PlannedCall, ToolUseVerdict)| {
            if !passed_the_gate(&planned) {
                return planned;
            }
            let planned = self.toolbox.replan(planned, verdict, &self.scope, &mut self.gate);
            self.with_child(planned)
        };
        planned.into_iter().zip(verdicts).map(replan).collect()
    }

    fn with_child(&self, mut planned: PlannedCall) -> PlannedCall {
        let is_sub_agent = self.toolbox.tool(&planned.tool).is_some_and(Tool::is_sub_agent);
        if let CallPlan::Execute { kind: CallKind::Server { child, .. }, .. } = &mut planned.plan {
            *child = is_sub_agent.then(|| ConversationId::new(self.clock.id("conv")));
        }
        planned
    }
}

fn too_many(call: &ModelToolCall) -> PlannedCall {
    let error =
        format!("invalid tool arguments: more than {MAX_CALLS_PER_MESSAGE} calls in one message");
    let outcome = Outcome::Err(error, ErrorType::ValidationError);
    PlannedCall {
        given_id: call.id.clone(),
        tool: call.name.chars().take(MAX_TOOL_NAME_BYTES).collect(),
        args: Value::Object(Default::default()).into(),
        original_args: None,
        plan: CallPlan::Complete { executor: Executor::Server, intent: Intent::Compute, outcome },
        verdict: None,
    }
}
