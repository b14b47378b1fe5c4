//! Frames of single events.

use abide_conversation::event::{ToolResult, TurnEnded, TurnOutcome};
use abide_conversation::message::Ui;
use serde_json::json;

use super::*;

fn event(data: EventData) -> Event {
    Event {
        seq: Seq::new(7),
        at: Timestamp::UNIX_EPOCH,
        turn_id: Some(TurnId::new("turn_1")),
        data,
    }
}

#[test]
fn of_several_frames_only_the_last_has_the_id() {
    let ui = Ui { kind: "card".to_owned(), payload: json!({"n": 1}) };
    let done = ToolResult {
        call_id: CallId::new("c"),
        outcome: Outcome::Ok(json!(1)),
        ui: Some(ui),
        effective_args: None,
    };
    let event = event(EventData::ToolResult(done));
    let frames = event_frames(&event);
    let payloads: Vec<_> = frames.iter().map(|frame| (json!(frame.payload), frame.id)).collect();
    let resolved = json!({"event": "tool_call_resolved",
        "data": {"call_id": "c", "result": {"ok": true, "result": 1}}});
    let ui_frame = json!({"event": "tool_ui",
        "data": {"call_id": "c", "kind": "card", "payload": {"n": 1}}});
    assert_eq!(payloads, [(resolved, None), (ui_frame, Some(Seq::new(7)))]);
}

#[test]
fn a_turn_ends_with_the_frame_of_its_outcome() {
    for (outcome, name) in [
        (TurnOutcome::Completed, "turn_completed"),
        (TurnOutcome::Cancelled, "turn_cancelled"),
        (TurnOutcome::Halted, "turn_halted"),
        (TurnOutcome::Failed, "turn_failed"),
    ] {
        let usage = Some(Usage { input_tokens: 7, ..Usage::default() });
        let ended = TurnEnded { outcome, reason: Some("so".to_owned()), usage };
        let event = event(EventData::TurnEnded(ended));
        let frames = event_frames(&event);
        let frame = json!(frames[0].payload);
        assert_eq!((frames.len(), &frame["event"]), (1, &json!(name)));
        let has_reason = matches!(outcome, TurnOutcome::Halted | TurnOutcome::Failed);
        assert_eq!(frame["data"].get("reason").is_some(), has_reason, "{name}");
        assert_eq!(frame["data"]["usage"]["input_tokens"], 7, "{name}");
    }
}

#[test]
fn a_users_message_is_told_with_the_id_that_the_client_gave_it() {
    for (given, told) in [(json!("m-1"), json!("m-1")), (Value::Null, Value::Null)] {
        let message = json!({"id": "msg_1", "role": "user", "content": []});
        let data = json!({"message": message, "message_id": given, "principal": "ada"});
        let user = serde_json::from_value(data).unwrap();
        let frame = json!(event_frames(&event(EventData::UserMsg(user)))[0].payload);
        assert_eq!(frame["event"], "user_message");
        assert_eq!(frame["data"]["turn_id"], "turn_1");
        assert_eq!(frame["data"]["message"]["id"], "msg_1");
        assert_eq!(frame["data"]["message"]["client_id"], told);
    }
}

#[test]
fn the_assistants_message_is_told_with_one_status() {
    for status in ["complete", "cancelled"] {
        for own in [json!("error"), Value::Null] {
            let message = json!({"id": "msg_1", "role": "assistant", "content": [], "status": own});
            let data = json!({"message": message, "status": status, "step": 1});
            let reply = serde_json::from_value(data).unwrap();
            let bytes = encode_event(&event(EventData::AssistantMsg(reply)));
            let frame = str::from_utf8(&bytes).unwrap();
            assert!(frame.starts_with("event: message_completed\n"), "{frame}");
            assert_eq!(frame.matches("\"status\":").count(), 1, "{frame}");
            assert!(frame.contains(&format!("\"status\":\"{status}\"")), "{frame}");
        }
    }
}

#[test]
fn an_answer_is_told_with_who_gave_it() {
    let data = json!({"call_id": "c", "kind": "approval", "suspension": 1, "by": "ada",
        "approved": false, "reason": "late"});
    let resolution = serde_json::from_value(data.clone()).unwrap();
    let event = event(EventData::Resolution(resolution));
    let frames = event_frames(&event);
    assert_eq!(json!(frames[0].payload), json!({"event": "answered", "data": data}));
    assert_eq!(frames[0].id, Some(Seq::new(7)));
}
