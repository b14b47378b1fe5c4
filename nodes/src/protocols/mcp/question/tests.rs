//! What the forms of questions take.

use abide_conversation::event::{Executor, Intent};
use abide_conversation::{CallId, Timestamp};

use super::*;

fn open(kind: SuspensionKind, answer_schema: Option<Value>) -> SuspendedCall {
    SuspendedCall {
        call: CallId::new("call_1_1"),
        tool: "send_email".to_owned(),
        executor: Executor::Server,
        kind,
        intent: Intent::default(),
        args: json!({"to": "ada@example.com"}).into(),
        message: "Send it?".to_owned(),
        suspension: 1,
        expires_at: Timestamp::MAX,
        answer_schema: answer_schema.as_ref().map(AnswerSchema::from),
        may_answer: true,
    }
}

fn question(kind: SuspensionKind, schema: Option<Value>) -> (Question, Value) {
    let (question, request) = Question::about(&open(kind, schema)).unwrap();
    (question, json!(request))
}

fn accepted(content: Value) -> Value {
    json!({"action": "accept", "content": content})
}

#[test]
fn an_approval_shows_the_arguments_and_takes_a_boolean() {
    let (question, request) = question(SuspensionKind::Approval, Some(json!({"type": "object"})));
    assert_eq!(request["method"], "elicitation/create");
    let message = request["params"]["message"].as_str().unwrap();
    assert!(message.contains("Send it?") && message.contains("ada@example.com"), "{message}");
    let schema = &request["params"]["requestedSchema"];
    assert_eq!(schema["required"], json!(["approved"]));
    let approval = |approved, reason: Option<&str>| {
        let reason = reason.map(str::to_owned);
        Ok(ResolutionAnswer::Approval { approved, reason, args: None })
    };
    let answer = |response: Value| question.answer(&response);
    assert_eq!(answer(accepted(json!({"approved": true}))), approval(true, None));
    let denied = json!({"approved": false, "reason": "no"});
    assert_eq!(answer(accepted(denied)), approval(false, Some("no")));
    for refusal in ["decline", "cancel"] {
        assert_eq!(answer(json!({"action": refusal})), approval(false, Some("cancelled")));
    }
    for (wrong, field) in [
        (json!({"action": "yes"}), "action"),
        (json!("yes"), "action"),
        (json!({"action": "accept"}), "content"),
        (accepted(json!([true])), "content"),
        (accepted(json!({})), "content.approved"),
        (accepted(json!({"approved": "true"})), "content.approved"),
        (accepted(json!({"approved": 1})), "content.approved"),
    ] {
        assert_eq!(answer(wrong.clone()).unwrap_err().0, field, "{wrong}");
    }
}

#[test]
fn a_flat_schema_is_the_form_and_any_other_is_wrapped() {
    let seat = json!({"type": "object", "properties": {"seat": {"enum": ["window", "aisle"]}}});
    let nested = json!({"type": "object", "properties": {"at": {"type": "object"}}});
    for (schema, form, content, result) in [
        (Some(seat), Form::Object, json!({"seat": "aisle"}), json!({"seat": "aisle"})),
        (Some(json!({"type": "integer"})), Form::Value, json!({"answer": 7}), json!(7)),
        (Some(json!({"enum": ["a"]})), Form::Value, json!({"answer": "a"}), json!("a")),
        (Some(nested), Form::Json, json!({"answer": "{\"at\":{}}"}), json!({"at": {}})),
        (Some(json!({})), Form::Json, json!({"answer": "plain"}), json!("plain")),
        (None, Form::Text, json!({"answer": "[1]"}), json!([1])),
        (None, Form::Text, json!({"answer": "7"}), json!("7")),
    ] {
        let (question, request) = question(SuspensionKind::Elicitation, schema.clone());
        assert_eq!(question.form, form, "{schema:?}: {request:#}");
        let answer = question.answer(&accepted(content));
        assert_eq!(answer, Ok(ResolutionAnswer::Result(result)), "{schema:?}");
    }
    let (question, _) = question(SuspensionKind::Elicitation, None);
    assert_eq!(question.answer(&accepted(json!({}))).unwrap_err().0, "content.answer");
    let declined = question.answer(&json!({"action": "decline"}));
    assert_eq!(declined, Ok(ResolutionAnswer::Error("cancelled by the user".to_owned())));
}
