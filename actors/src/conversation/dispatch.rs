//! A user's own call of a server tool, which runs in addition to the open turn, if there is one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use abide_conversation::approval::{Approver, Parties, SubjectId, Voter};
use abide_conversation::event::{Event, EventData, Executor, OnInterrupt};
use abide_conversation::permission::{Decision, Verdict};
use abide_conversation::{Action, CallId, ConversationId, Rejection, Transition, command};
use ractor::ActorRef;
use serde_json::Value;

use super::not_done::{HookQuestion, HookQuestions, NotDone};
use super::{ConversationMsg, ExitReason, HookVerdict, LiveConversation};
use crate::access::Access;
use crate::assigns::Assigns;
use crate::definition::Tool;
use crate::hooks::HookContext;
use crate::hooks::tool_use::{self, ApprovalDemand, ToolUse, ToolUseVerdict, invalid_args_rule};
use crate::journal::{StoreError, StoredResponse};
use crate::request::{
    DeliveryOutcome, DispatchRequest, IdempotencyKey, Reply, ReplyPort, Request, RequestContext,
    RequestError,
};
use crate::tools::{CallScope, Gate, Toolbox};

impl LiveConversation {
    /// Begins a user's own call, or joins the running one that the request repeats. The reply comes
    /// with the result.
    pub(super) async fn dispatch(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        request: DispatchRequest,
        (context, reply): (RequestContext, ReplyPort),
        hook_verdict: Option<HookVerdict>,
    ) -> Result<(), ExitReason> {
        let RequestContext { access, idempotency_keys: keys } = &context;
        match self.running_repeat(keys) {
            Ok(Some(call)) => {
                self.waiters.add_dispatch(call, reply);
                return Ok(());
            }
            Ok(None) => {}
            Err(error) => {
                let _ = reply.send(DeliveryOutcome::Failed(error));
                return Ok(());
            }
        }
        match self.begin_dispatch(request, (access, keys), hook_verdict).await {
            Ok((call, transition)) => {
                self.waiters.add_dispatch(call.clone(), reply);
                let responses = self.denied_responses(&transition.events, keys);
                self.commit(transition, responses).await.map_err(|error| {
                    self.waiters.fail_dispatch(&call, &error.clone().into());
                    error.into()
                })
            }
            Err(NotDone::AsksHooks(question)) => {
                self.ask_hooks(myself, *question, context, reply);
                Ok(())
            }
            Err(NotDone::Failed(error)) => {
                let _ = reply.send(DeliveryOutcome::Failed(error));
                Ok(())
            }
            Err(NotDone::Unknown(error)) => {
                let _ = reply.send(DeliveryOutcome::Failed(error.clone().into()));
                Err(error.into())
            }
        }
    }

    /// The responses to store for a dispatch that the gate denied: it never becomes part of the
    /// state, from which the responses to other dispatches are made.
    fn denied_responses(&self, events: &[Event], keys: &[IdempotencyKey]) -> Vec<StoredResponse> {
        let responses = events.iter().filter_map(|event| match &event.data {
            EventData::DispatchFinished(done) => {
                let reply = Reply::Dispatched { outcome: done.result.clone(), ui: done.ui.clone() };
                Some(self.responses(keys, &reply))
            }
            _ => None,
        });
        responses.flatten().collect()
    }

    /// The running call that was begun under one of these keys.
    fn running_repeat(&self, keys: &[IdempotencyKey]) -> Result<Option<CallId>, RequestError> {
        for (id, run) in &self.state.dispatches {
            for key in keys {
                match run.requests.get(&key.key) {
                    Some(fingerprint) if *fingerprint == key.fingerprint => {
                        return Ok(Some(id.clone()));
                    }
                    Some(_) => return Err(RequestError::KeyReused(key.field.clone())),
                    None => {}
                }
            }
        }
        Ok(None)
    }

    async fn begin_dispatch(
        &mut self,
        request: DispatchRequest,
        (access, keys): (&Access, &[IdempotencyKey]),
        hook_verdict: Option<HookVerdict>,
    ) -> Result<(CallId, Transition), NotDone> {
        let DispatchRequest { tool, input, approved, principal } = request;
        let agent = self.state.agent.clone().ok_or(Rejection::NotFound)?;
        let definition = self.next_definition(&agent).await?;
        let assigns = Assigns::new(&definition.assigns, &self.state.assigns, &Default::default());
        let assigns = Arc::new(assigns);
        let scope = CallScope {
            conversation: self.id.local(),
            principal: principal.clone(),
            identity: access.identity().cloned().map(Arc::new),
            owner: self.state.participants.owner.clone(),
            assigns: assigns.clone(),
            metadata: self.state.metadata.clone(),
        };
        let toolbox = self.toolbox_of(definition.clone());
        let tool_name = toolbox.dispatchable(&tool).map(|(tool, _)| tool.name.as_str());
        let agent_decisions = if toolbox.uses_remembered_decisions(tool_name.into_iter()) {
            self.services.agents.decisions(&self.id.sibling(&agent)).await?
        } else {
            Vec::new()
        };
        let now = self.services.clock.now();
        let gate = Gate::new(definition.clone(), &self.state);
        let gate = gate.with_remembered(&self.state, agent_decisions, now);
        let approval = approved.then(|| DispatchApproval {
            voter: access.voter(now),
            requesters: self.state.requesters_with(access.identity()),
            owner: scope.owner.clone(),
        });
        let identity = scope.identity.clone();
        // A condition may take long; it must not hold up other conversations.
        let checking = tokio::task::spawn_blocking(move || {
            check_call(&toolbox, &gate, (tool, input), approval, &scope, hook_verdict)
        });
        let checked = checking.await.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let CheckedCall { tool, input, on_interrupt, is_sub_agent, verdict, hooks_answered } =
            checked?;
        let is_denied = verdict.decision == Decision::Deny;
        if !hooks_answered && !is_denied && tool_use::is_judged(&definition.hooks, &tool) {
            let context = HookContext {
                conversation_id: self.id.local(),
                turn_id: None,
                principal: Some(principal.clone()),
                assigns: assigns.merged.clone(),
            };
            let tool_use = ToolUse {
                call_id: None,
                tool: tool.clone(),
                executor: Executor::Server,
                args: input.clone(),
            };
            let request = Request::Dispatch(DispatchRequest { tool, input, approved, principal });
            let question = HookQuestion { definition, context, tool_use };
            return Err(NotDone::AsksHooks(HookQuestions::one(request, question)));
        }
        let call = CallId::new(self.services.clock.id("call"));
        let requests: BTreeMap<_, _> =
            keys.iter().map(|key| (key.key.clone(), key.fingerprint.clone())).collect();
        let action = Action::Dispatch(command::Dispatch {
            call: call.clone(),
            tool,
            input: input.into(),
            principal,
            identity,
            revision: definition.revision.clone(),
            on_interrupt,
            requests,
            verdict,
            child: is_sub_agent.then(|| ConversationId::new(self.services.clock.id("conv"))),
        });
        Ok((call, self.decide(action)?))
    }
}

/// A user's own call with the verdicts of the gate and the hooks applied.
struct CheckedCall {
    tool: String,
    input: Value,
    on_interrupt: OnInterrupt,
    is_sub_agent: bool,
    verdict: Verdict,
    hooks_answered: bool,
}

/// The approval of whoever dispatches a call.
struct DispatchApproval {
    /// `None` if nobody was authenticated.
    voter: Option<Voter>,
    requesters: BTreeSet<SubjectId>,
    owner: Option<String>,
}

impl DispatchApproval {
    /// The approver, if the tool needs no other.
    fn check(&self, tool: &Tool) -> Result<Vec<Approver>, RequestError> {
        let (Some(voter), Some(policy)) = (&self.voter, tool.approval_policy(true)) else {
            return Ok(Vec::new());
        };
        let parties = Parties { requesters: &self.requesters, owner: self.owner.as_deref() };
        policy.check(voter, parties, false).map_err(Rejection::VoteRefused)?;
        if policy.quorum > 1 {
            let why =
                format!("{} needs {} approvals: a dispatch has one", tool.name, policy.quorum);
            return Err(RequestError::invalid("approved", why));
        }
        Ok(vec![Approver::from(voter)])
    }
}

/// Why a tool cannot be dispatched.
fn not_dispatchable(toolbox: &Toolbox, name: String) -> RequestError {
    let is_named = |tool: &&Tool| tool.name == name || tool.aliases.contains(&name);
    let executor = toolbox.tools().find(is_named).map(Tool::executor);
    let kind = match executor {
        None => return RequestError::ToolNotFound(name),
        Some(Executor::Server) => "a tool of the server",
        Some(Executor::Human) => "answered by a person",
        Some(Executor::Client) => "run by a client",
        Some(Executor::Provider) => "run by the model's provider",
    };
    let why = format!("{name} is {kind}: only tools that run on the server can be dispatched");
    RequestError::invalid("tool", why)
}

fn check_call(
    toolbox: &Toolbox,
    gate: &Gate,
    (tool, input): (String, Value),
    approval: Option<DispatchApproval>,
    scope: &CallScope,
    hook_verdict: Option<HookVerdict>,
) -> Result<CheckedCall, RequestError> {
    let (found, server) =
        toolbox.dispatchable(&tool).ok_or_else(|| not_dispatchable(toolbox, tool))?;
    let check = |input: &Value, question: Option<&ApprovalDemand>| {
        found.check_args(input).map_err(|why| RequestError::invalid("input", why))?;
        let verdict = gate.decide_asking(found, input, scope, question);
        match (verdict.decision, &approval) {
            (Decision::Ask, None) => Err(RequestError::ApprovalRequired(found.name.clone())),
            (Decision::Ask, Some(approval)) => {
                Ok(Verdict { approvals: approval.check(found)?, ..verdict })
            }
            (Decision::Allow | Decision::Deny, _) => Ok(verdict),
        }
    };
    let with_args =
        |hook: String, args: Value, question: Option<&ApprovalDemand>| match check(&args, question)
        {
            Ok(verdict) => Ok((args, verdict)),
            Err(RequestError::Invalid { .. }) => {
                let denied = gate.deny(found, &input, &invalid_args_rule(&hook));
                Ok((input.clone(), denied))
            }
            Err(error) => Err(error),
        };
    let verdict = check(&input, None)?;
    let tool_use_verdict =
        hook_verdict.and_then(|hooks| hooks.verdict_on(toolbox.definition(), &found.name));
    let hooks_answered = tool_use_verdict.is_some();
    let (input, verdict) = match tool_use_verdict.filter(|_| verdict.decision != Decision::Deny) {
        None | Some(ToolUseVerdict::GoOn) => (input, verdict),
        Some(ToolUseVerdict::Args { hook, args }) => with_args(hook, args, None)?,
        Some(ToolUseVerdict::Ask { question, args: Some((hook, args)) }) => {
            with_args(hook, args, Some(&question))?
        }
        Some(ToolUseVerdict::Ask { question, args: None }) => {
            let verdict = check(&input, Some(&question))?;
            (input, verdict)
        }
        Some(ToolUseVerdict::Deny(rule) | ToolUseVerdict::Halt(rule)) => {
            let denied = gate.deny(found, &input, &rule);
            (input, denied)
        }
    };
    Ok(CheckedCall {
        tool: found.name.clone(),
        input,
        on_interrupt: server.on_interrupt,
        is_sub_agent: found.is_sub_agent(),
        verdict,
        hooks_answered,
    })
}
