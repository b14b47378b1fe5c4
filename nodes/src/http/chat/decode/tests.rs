//! What is read from a page, and what is only its history.

use super::*;

fn action(body: Value) -> Result<ChatAction, String> {
    let request: ChatRequest = serde_json::from_value(body).map_err(|error| error.to_string())?;
    request.action().map_err(|problem| problem.into_document().1["detail"].to_string())
}

fn user(parts: Value) -> Result<UserMessage, String> {
    let message = json!({"id": "m-1", "role": "user", "parts": parts});
    match action(json!({"id": "c", "messages": [{}, message], "theme": "dark"}))? {
        ChatAction::Send(message) => Ok(message),
        ChatAction::Answer { .. } | ChatAction::Regenerate { .. } => {
            panic!("a user's message is only sent")
        }
    }
}

/// A call that waits for this.
fn pending(call: &str, kind: &str, number: u32, executor: &str) -> PendingCall {
    let time = "2026-01-01T00:00:00.000Z";
    let pending = json!({"call_id": call, "tool": "t", "executor": executor, "kind": kind,
        "args": {}, "message": "", "intent": "compute", "suspension": number,
        "suspended_at": time, "expires_at": time});
    serde_json::from_value(pending).unwrap()
}

/// The answers that a page with this part gives to this call.
fn given(part: Value, open: PendingCall) -> Vec<ResolutionAnswer> {
    let mut part = part;
    part["type"] = json!("tool-t");
    part["toolCallId"] = json!("a");
    let page = Page::of_parts(&[part]);
    let requests = answers(&page, &[open], &Principal::new("ada"));
    assert!(requests.iter().all(|request| request.suspension.is_some()));
    requests.into_iter().map(|request| request.answer).collect()
}

fn approval(approved: bool) -> ResolutionAnswer {
    ResolutionAnswer::Approval { approved, reason: None, args: None }
}

#[test]
fn a_users_message_becomes_blocks() {
    let parts = json!([
        {"type": "text", "text": "What is this?"},
        {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA"},
        {"type": "file", "mediaType": "application/pdf", "url": "https://example.com/a.pdf",
            "filename": "a.pdf"},
    ]);
    let message = user(parts).unwrap();
    assert_eq!(message.message_id, "m-1");
    assert_eq!(
        Value::Array(message.content),
        json!([
            {"type": "text", "text": "What is this?"},
            {"type": "image",
                "source": {"type": "base64", "mimeType": "image/png", "data": "AAAA"}},
            {"type": "document", "title": "a.pdf",
                "source": {"type": "url", "url": "https://example.com/a.pdf"}},
        ])
    );
}

#[test]
fn each_mistake_is_named_with_its_place() {
    let part = |part: Value| user(json!([{"type": "text", "text": "x"}, part])).unwrap_err();
    for (found, expected) in [
        (part(json!({"type": "text"})), "messages[1].parts[1].text: is missing"),
        (part(json!({"type": "tool-t"})), "messages[1].parts[1].type: must be text or file"),
        (
            part(json!({"type": "file", "mediaType": "image/png", "url": "data:image/png,x"})),
            "messages[1].parts[1].url: is a data URL that is not in base64",
        ),
        (
            part(json!({"type": "file", "mediaType": "image/png", "url": "file:///etc/passwd"})),
            "messages[1].parts[1].url: must be a data, https or http URL",
        ),
        (
            part(json!({"type": "file", "url": "https://a.b/c"})),
            "messages[1].parts[1].mediaType: is no media type",
        ),
        (user(json!([])).unwrap_err(), "messages[1].parts: is empty"),
    ] {
        assert!(found.contains(expected), "{found} is not {expected}");
    }
    let message = json!({"id": "m", "role": "user", "parts": [{"type": "text", "text": "x"}]});
    let with = |name: &str, value: Value| {
        let mut body = json!({"id": "c", "messages": [message.clone()]});
        body[name] = value;
        action(body).unwrap_err()
    };
    let system = json!([{"id": "m", "role": "system", "parts": []}]);
    for (found, expected) in [
        (with("messages", json!([])), "messages: is empty"),
        (with("messages", json!([{"id": "m", "role": "user"}])), "messages[0].parts: is no list"),
        (with("messages", system), "messages[0].role: must be user or assistant"),
        (with("trigger", json!("x")), "trigger: must be submit-message or regenerate-message"),
        (with("abide", json!({"if_busy": "x"})), "unknown variant"),
        (with("abide", json!({"busy": "queue"})), "unknown field"),
    ] {
        assert!(found.contains(expected), "{found} is not {expected}");
    }
    let nameless = json!([{"id": "", "role": "user", "parts": []}]);
    assert!(with("messages", nameless).contains("messages[0].id: must be 1 to 255 characters"));
}

#[test]
fn an_approval_answers_only_the_question_that_it_names() {
    let responded = |id: &str, approved: bool| json!({"state": "approval-responded", "approval": {"id": id, "approved": approved}});
    let open = || pending("a", "approval", 1, "server");
    assert_eq!(given(responded("a/1", true), open()), [approval(true)]);
    assert_eq!(given(responded("a/1", false), open()), [approval(false)]);
    let with_reason = json!({"state": "approval-responded",
        "approval": {"id": "a/1", "approved": false, "reason": "no"}});
    let reason = Some("no".to_owned());
    let denial = ResolutionAnswer::Approval { approved: false, reason, args: None };
    assert_eq!(given(with_reason, open()), [denial]);
    for part in [
        responded("a/2", true),
        responded("a", true),
        responded("b/1", true),
        json!({"state": "approval-requested", "approval": {"id": "a/1", "approved": true}}),
        json!({"state": "approval-responded", "approval": {"id": "a/1"}}),
        json!({"state": "output-available", "output": 1}),
    ] {
        assert_eq!(given(part.clone(), open()), [], "{part}");
    }
    // Past the approval, the call waits for a page.
    assert_eq!(given(responded("a/1", true), pending("a", "client_exec", 2, "client")), []);
}

#[test]
fn an_output_answers_the_suspension_that_it_was_asked_for() {
    let output = |output: Value| json!({"state": "output-available", "output": output});
    let asked = |number: u64, output: Value| {
        json!({"state": "output-available", "output": output,
            "toolMetadata": {"abide": {"suspension": number}}})
    };
    let client = || pending("a", "client_exec", 2, "client");
    assert_eq!(given(output(json!(7)), client()), [ResolutionAnswer::Result(json!(7))]);
    assert_eq!(given(asked(2, json!("x")), client()), [ResolutionAnswer::Result(json!("x"))]);
    assert_eq!(given(asked(1, json!("x")), client()), []);
    // A running tool that asks twice.
    let tool = || pending("a", "elicitation", 2, "server");
    assert_eq!(given(output(json!(1)), tool()), []);
    assert_eq!(given(asked(1, json!(1)), tool()), []);
    assert_eq!(given(asked(2, json!(1)), tool()), [ResolutionAnswer::Result(json!(1))]);
    let error = json!({"state": "output-error", "errorText": "no GPS"});
    assert_eq!(given(error, client()), [ResolutionAnswer::Error("no GPS".to_owned())]);
    let empty = json!({"state": "output-error", "errorText": " "});
    assert_eq!(given(empty, client()), [ResolutionAnswer::Error("failed".to_owned())]);
    let object = given(output(json!("{\"seat\":\"window\"}")), client());
    assert_eq!(object, [ResolutionAnswer::Result(json!({"seat": "window"}))]);
    assert_eq!(given(output(json!("42")), client()), [ResolutionAnswer::Result(json!("42"))]);
    assert_eq!(given(json!({"state": "input-available"}), client()), []);
}
