//! The activities of simulated conversations: a scripted model and scripted tools.

use std::time::Duration;

use abide_actors::journal::StoreError;
use abide_conversation::command::{
    CallPlan, Cancel, Create, IfBusy, MessageVerdict, ModelReplied, PlannedCall, ResolutionAnswer,
    Resolve, Send, Start, ToolReturned, TurnSettings,
};
use abide_conversation::event::{AnswerFormat, CallKind, Intent, OnInterrupt};
use abide_conversation::message::{Outcome, text_block};
use abide_conversation::permission::{Decision, Verdict};
use abide_conversation::{
    Action, Activity, AgentName, Attempt, CallId, ConversationId, MessageId, Principal, Revision,
    Seq, Step, TurnId,
};
use serde_json::json;

use crate::node::{Node, store_unavailable};

/// How long a person may take to answer.
const ANSWER_MS: u64 = 1_500;

/// Runs an activity to its end. As in the product, nothing begins on a node that may have been
/// declared dead.
pub async fn run(
    node: &Node,
    id: &ConversationId,
    activity: &Activity,
    turns: u64,
) -> Result<Action, StoreError> {
    let needs_lease = matches!(activity, Activity::CallModel { .. } | Activity::RunTool { .. });
    if needs_lease && !node.is_sound() {
        return Err(store_unavailable());
    }
    match activity {
        Activity::StartTurn { turn } => {
            Ok(Action::Start(Start { turn: turn.clone(), settings: Some(basis()) }))
        }
        Activity::CallModel { turn, step } => {
            node.sleep(Duration::from_millis(5 + node.below(40))).await;
            Ok(replied(turn, *step, turns))
        }
        Activity::RunTool { call, attempt } => {
            node.world.run(node, id, call.as_str());
            node.sleep(Duration::from_millis(10 + node.below(300))).await;
            Ok(returned(call, *attempt))
        }
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

/// A user message, which creates the conversation if it does not exist.
pub fn send(number: u64, text: &str, if_busy: IfBusy) -> Action {
    let create = Create {
        agent: AgentName::new("a"),
        assigns: Default::default(),
        metadata: Default::default(),
        tools: Vec::new(),
        parent: None,
        fork: None,
    };
    Action::Send(Send {
        create: Some(create),
        settings: basis(),
        turn_id: TurnId::new(format!("t{number}")),
        id: MessageId::new(format!("m{number}")),
        content: vec![text_block(text)],
        message_id: None,
        principal: Principal::new("ada"),
        assigns: Default::default(),
        answer_format: AnswerFormat::Agent,
        if_busy,
        partial: None,
    })
}

pub fn approve(call: CallId) -> Action {
    Action::Resolve(Resolve {
        call,
        suspension: None,
        by: Principal::new("bob"),
        answer: ResolutionAnswer::Approval { approved: true, reason: None, args: None },
        verdict: Some(verdict(Decision::Allow)),
        remember: None,
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
    }
}

/// The first step of a turn has calls, the second ends the turn; turns cycle through the kinds of
/// calls.
fn replied(turn: &TurnId, step: Step, ordinal: u64) -> Action {
    let calls = match (step.get(), ordinal % 3) {
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
        context_tokens: None,
        context_seq: Seq::MAX,
        object: None,
        verdict: MessageVerdict::Accept,
    })
}

fn call(tool: &str, gated: bool, once: bool) -> PlannedCall {
    let on_interrupt = if once { OnInterrupt::Fail } else { OnInterrupt::Redispatch };
    let plan = CallPlan::Execute {
        kind: CallKind::Server { on_interrupt, child: None, lane: None },
        intent: Intent::Action,
        gate: gated.then(|| "May it?".to_owned()),
        message: String::new(),
        timeout_ms: ANSWER_MS,
    };
    let verdict = Some(verdict(if gated { Decision::Ask } else { Decision::Allow }));
    let (given_id, tool) = (tool.to_owned(), tool.to_owned());
    PlannedCall { given_id, tool, args: json!({}), original_args: None, plan, verdict }
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
