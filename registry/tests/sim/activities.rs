//! The activities of simulated conversations: a scripted model and scripted tools.

use std::rc::Rc;
use std::time::Duration;

use abide_actors::journal::StoreError;
use abide_conversation::command::{
    ApprovalQuestion, CallPlan, Cancel, Create, Dispatch, IfBusy, MessageVerdict, ModelReplied,
    PlannedCall, RememberDecision, ResolutionAnswer, Resolve, Schedule, Send, Start, ToolReturned,
    TurnSettings,
};
use abide_conversation::event::{AnswerFormat, CallKind, Event, EventData, Intent, OnInterrupt};
use abide_conversation::message::{Outcome, text_block};
use abide_conversation::permission::{Decision, Verdict};
use abide_conversation::remembered_decision::{Extent, Match, Scope};
use abide_conversation::{
    Action, Activity, AgentName, Attempt, CallId, ConversationId, DecisionId, MessageId, Principal,
    Revision, ScheduledId, Scoped, Seq, State, Step, Timestamp, TurnId,
};
use jiff::SignedDuration;
use serde_json::json;

use crate::executor::OneShot;
use crate::family;
use crate::mutation::Mutation;
use crate::node::{Node, store_unavailable};
use crate::rollouts;
use crate::workers;

/// How many tool runs store a blob.
const BLOB_PERCENT: u64 = 15;
/// How long a person may take to answer.
const ANSWER_MS: u64 = 1_500;

/// Runs an activity to its end. As in the product, nothing begins on a node that may have been
/// declared dead.
pub async fn run(
    node: &Rc<Node>,
    id: &Scoped<ConversationId>,
    activity: &Activity,
    state: &State,
    pending_commit: Option<OneShot<()>>,
) -> Result<Action, StoreError> {
    let needs_lease = matches!(activity, Activity::CallModel { .. } | Activity::RunTool { .. });
    if needs_lease && !node.is_sound() {
        return Err(store_unavailable());
    }
    match activity {
        Activity::CallModel { .. } => {
            let life = node.world.life(id);
            node.sleep(Duration::from_millis(5 + node.below(40))).await;
            if node.world.mutation != Some(Mutation::ShowsBeforeCommit)
                && let Some(commit) = pending_commit
            {
                commit.wait().await;
            }
            node.world.show(id, life, state);
        }
        Activity::RunTool { call, attempt } => {
            if let Some(child) = family::child_of(state, call) {
                return Ok(family::spawn(node, id, &id.sibling(&child), call, *attempt).await);
            }
            if let Some(handed_out) = workers::hand_out(state, call, *attempt) {
                return Ok(handed_out);
            }
            node.world.run(node, id, call.as_str());
            if node.world.poison.borrow().contains(id) {
                node.world.end_process_of(node, id);
                return std::future::pending().await;
            }
            node.sleep(Duration::from_millis(10 + node.below(300))).await;
            if node.below(100) < BLOB_PERCENT {
                node.store.put_blob(id, &format!("{call} {attempt}")).await?;
            }
        }
        Activity::StopChild { child } => return Ok(family::release(node, id, state, child).await),
        Activity::NotifyParent { turn } => {
            return Ok(family::notify_parent(node, id, state, turn).await);
        }
        Activity::CopyFork { after } => return family::copy_fork(node, id, state, *after).await,
        Activity::PublishDecision { decision } => {
            return family::publish(node, id, state, decision).await;
        }
        Activity::StartTurn { turn } => {
            let revision = rollouts::revision_of(node, id).await?;
            let settings = revision.map(|revision| TurnSettings { revision, ..basis() });
            let settings = settings.unwrap_or_else(basis);
            return Ok(Action::Start(Start { turn: turn.clone(), settings: Some(settings) }));
        }
        Activity::AwaitClient { .. } | Activity::Summarize { .. } => {}
    }
    let child = (state.parent.is_none()).then(|| format!("c{}", node.world.number()));
    let mut outcome = outcome(activity, state.turns_started, child.as_deref());
    if workers::has_programs(node.world.seed)
        && let Action::ModelReplied(reply) = &mut outcome
    {
        workers::hand_over(&mut reply.calls);
    }
    Ok(outcome)
}

/// The outcome of an activity that a server of its own would carry out.
pub fn outcome(activity: &Activity, turns: u64, child: Option<&str>) -> Action {
    match activity {
        Activity::StartTurn { turn } => {
            Action::Start(Start { turn: turn.clone(), settings: Some(basis()) })
        }
        Activity::CallModel { turn, step } => replied(turn, *step, turns, child),
        Activity::RunTool { call, attempt } => returned(call, *attempt),
        Activity::AwaitClient { .. }
        | Activity::StopChild { .. }
        | Activity::NotifyParent { .. }
        | Activity::CopyFork { .. }
        | Activity::Summarize { .. }
        | Activity::PublishDecision { .. } => {
            unreachable!("no conversation of the simulation wants {activity}")
        }
    }
}

fn basis() -> TurnSettings {
    TurnSettings {
        agent: AgentName::new("a"),
        revision: Revision::new("r"),
        max_steps: 5,
        budget: Default::default(),
        summarize_over: None,
    }
}

/// The message, to be delivered up to three seconds later.
pub fn later(message: Action, number: u64, now: Timestamp) -> Action {
    let Action::Send(send) = message else { return message };
    let delay = SignedDuration::from_millis(i64::try_from(number * 97 % 3_000).unwrap());
    let deliver_at = now.checked_add(delay).unwrap();
    Action::Schedule(Schedule {
        scheduled_id: ScheduledId::new(format!("s{number}")),
        deliver_at,
        send,
    })
}

/// A user message, which creates the conversation if it does not exist.
pub fn send(number: u64, text: &str, if_busy: IfBusy) -> Action {
    let create = Create {
        agent: AgentName::new("a"),
        assigns: Default::default(),
        metadata: Default::default(),
        tools: Vec::new(),
        parent: None,
        fork: None,
        title: None,
        expires_at: None,
        participants: Default::default(),
    };
    Action::Send(Send {
        create: Some(create),
        settings: basis(),
        turn_id: TurnId::new(format!("t{number}")),
        id: MessageId::new(format!("m{number}")),
        content: vec![text_block(text)],
        message_id: None,
        principal: Principal::new("ada"),
        identity: None,
        assigns: Default::default(),
        answer_format: AnswerFormat::Agent,
        tools: Default::default(),
        context: Vec::new(),
        if_busy,
        partial: None,
    })
}

/// A user's own call of a tool.
pub fn dispatch(number: u64, child: bool) -> Action {
    Action::Dispatch(Dispatch {
        call: CallId::new(format!("d{number}")),
        tool: "nap".to_owned(),
        input: json!({}).into(),
        principal: Principal::new("ada"),
        identity: None,
        revision: Revision::new("r"),
        on_interrupt: OnInterrupt::Redispatch,
        requests: Default::default(),
        verdict: verdict(Decision::Allow),
        child: child.then(|| ConversationId::new(format!("c{number}"))),
    })
}

/// An approval; the agent remembers one with a number.
pub fn approve(call: CallId, remember: Option<u64>) -> Action {
    let remember = remember.map(|number| RememberDecision {
        id: DecisionId::new(format!("dec{number}")),
        extent: Extent { scope: Scope::Agent, matching: Match::Exact, for_ms: 1_000_000 },
        tool_digest: String::new(),
    });
    Action::Resolve(Resolve {
        call,
        suspension: None,
        by: Principal::new("bob"),
        identity: None,
        mfa_at: None,
        args_fingerprint: String::new(),
        revoked: Default::default(),
        answer: ResolutionAnswer::Approval { approved: true, reason: None, args: None },
        verdict: Some(verdict(Decision::Allow)),
        remember,
        halt: None,
    })
}

pub fn cancel() -> Action {
    Action::Cancel(Cancel { partial: None })
}

fn verdict(decision: Decision) -> Verdict {
    Verdict {
        decision,
        rule: "auto".to_owned(),
        phase: Default::default(),
        fingerprint: String::new(),
        by: None,
        approvals: Vec::new(),
    }
}

/// The first step of a turn has calls, the second ends the turn; turns cycle through the kinds of
/// calls.
fn replied(turn: &TurnId, step: Step, ordinal: u64, child: Option<&str>) -> Action {
    let calls = match (step.get(), ordinal % 4) {
        (1, 3) => {
            let mut spawn = call("spawn", false, false);
            if let CallPlan::Execute { kind: CallKind::Server { child: of_call, .. }, .. } =
                &mut spawn.plan
            {
                *of_call = child.map(ConversationId::new);
            }
            vec![spawn, call("nap", false, false)]
        }
        (1, 0) => vec![call("nap", false, false), call("gate", true, true)],
        (1, 1) => vec![call("once", false, true), call("gate", true, false)],
        (1, _) => vec![call("nap", false, false), call("once", false, true)],
        (_, _) => Vec::new(),
    };
    Action::ModelReplied(ModelReplied {
        turn: turn.clone(),
        step,
        id: MessageId::new(format!("{turn}-{step}")),
        content: Vec::new(),
        calls,
        usage: None,
        stop: None,
        verbatim: None,
        fallback: None,
        context_tokens: None,
        context_seq: Seq::MAX,
        object: None,
        verdict: MessageVerdict::Accept,
    })
}

fn call(tool: &str, gated: bool, once: bool) -> PlannedCall {
    let on_interrupt = if once { OnInterrupt::Fail } else { OnInterrupt::Redispatch };
    let plan = CallPlan::Execute {
        kind: CallKind::Server { on_interrupt, child: None, lane: None, answerers: None },
        intent: Intent::Action,
        gate: gated.then(|| ApprovalQuestion {
            message: "May it?".to_owned(),
            policy: None,
            answer_schema: None,
        }),
        message: String::new(),
        answer_schema: None,
        timeout_ms: ANSWER_MS,
        waiting_rules: None,
    };
    let verdict = Some(verdict(if gated { Decision::Ask } else { Decision::Allow }));
    let (given_id, tool) = (tool.to_owned(), tool.to_owned());
    PlannedCall { given_id, tool, args: json!({}).into(), original_args: None, plan, verdict }
}

fn returned(call: &CallId, attempt: Attempt) -> Action {
    Action::ToolReturned(ToolReturned {
        call: call.clone(),
        attempt,
        outcome: Outcome::Ok(json!(1)),
        ui: None,
        halt: None,
        changes: Vec::new(),
        input_request: None,
        effective_args: None,
    })
}

/// Whether a call's tool must not run twice.
pub fn runs_once(events: &[Event], call: &str) -> bool {
    events.iter().any(|event| match &event.data {
        EventData::ToolCall(made) => made.call_id.as_str() == call && made.kind.runs_once(),
        _ => false,
    })
}
