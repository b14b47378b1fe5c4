//! What clients are told of a turn.

use abide_conversation::Seq;
use abide_conversation::Timestamp;
use abide_conversation::TurnId;
use abide_conversation::event::{Executor, Intent};

use super::*;

const IDS: TurnIds<'_> = TurnIds { conversation: "c", turn: "t" };

fn open(may_answer: bool) -> SuspendedCall {
    SuspendedCall {
        call: CallId::new("call_1_1"),
        tool: "send_email".to_owned(),
        executor: Executor::Server,
        kind: SuspensionKind::Approval,
        intent: Intent::default(),
        args: json!({"secret": 1}).into(),
        message: "Send it?".to_owned(),
        suspension: 2,
        expires_at: Timestamp::MAX,
        answer_schema: None,
        may_answer,
    }
}

fn ended(outcome: TurnOutcome, reason: Option<&str>) -> Item {
    Item::End(TurnEnded { outcome, reason: reason.map(str::to_owned), usage: None })
}

#[test]
fn progress_is_told_of_what_happens_now_and_not_of_what_was() {
    let mut turn = AgentTurn::default();
    let started = Item::Started { turn: TurnId::new("t"), seq: Seq::new(2) };
    assert_eq!(turn.take(&started), None);
    assert_eq!(turn.take(&Item::Suspended(Box::new(open(true)))), None);
    assert_eq!(turn.take(&Item::CaughtUp).as_deref(), Some("the turn is open"));
    assert_eq!(turn.take(&Item::CaughtUp), None, "it is told once");
    let told = turn.take(&Item::Suspended(Box::new(open(true))));
    assert_eq!(told.as_deref(), Some("send_email waits: Send it?"));
    let call = CallId::new("call_1_1");
    for (payload, expected) in [
        (json!("half"), "send_email: half"),
        (json!({"message": "half"}), "send_email: half"),
        (json!({"done": 1}), "send_email: {\"done\":1}"),
    ] {
        let progress = Item::Progress { call: call.clone(), payload };
        assert_eq!(turn.take(&progress).as_deref(), Some(expected));
    }
    let long = Item::Progress { call, payload: json!("x".repeat(10_000)) };
    assert_eq!(turn.take(&long).unwrap().chars().count(), MAX_PROGRESS_CHARS);
}

#[test]
fn a_turn_that_went_on_rests_no_more() {
    let mut turn = AgentTurn::default();
    turn.take(&Item::Rest(vec![open(true)]));
    assert_eq!(turn.rest().map(<[_]>::len), Some(1));
    turn.take(&ended(TurnOutcome::Completed, None));
    assert_eq!(turn.rest(), None);
}

#[test]
fn each_end_of_a_turn_has_its_result() {
    for (outcome, reason, text, is_error) in [
        (TurnOutcome::Completed, None, "", false),
        (TurnOutcome::Halted, Some("max_steps"), "halted: max_steps", true),
        (TurnOutcome::Failed, Some("no model"), "failed: no model", true),
        (TurnOutcome::Cancelled, None, "cancelled", true),
    ] {
        let mut turn = AgentTurn::default();
        assert!(turn.result(IDS).is_none());
        turn.take(&ended(outcome, reason));
        let result = json!(turn.result(IDS).unwrap());
        assert_eq!(result["content"][0]["text"], text, "{result:#}");
        assert_eq!(result["isError"], is_error, "{result:#}");
        let structured = &result["structuredContent"];
        assert_eq!(
            (&structured["conversation_id"], &structured["turn_id"]),
            (&json!("c"), &json!("t"))
        );
    }
}

#[test]
fn what_waits_is_no_error_and_says_who_may_answer() {
    let result = json!(IDS.waiting(&[open(false)]));
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("Waits for an approval: Send it?\n"), "{text}");
    assert!(text.contains("conversation_id"), "{text}");
    assert_eq!(result["isError"], false);
    let pending = &result["structuredContent"]["pending"][0];
    assert_eq!((&pending["may_answer"], &pending["suspension"]), (&json!(false), &json!(2)));
    assert!(!result.to_string().contains("secret"), "{result:#}");
}
