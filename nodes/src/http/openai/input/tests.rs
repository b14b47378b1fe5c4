//! What requests say that is new, and what is refused.

use super::*;

fn read(items: Value) -> Result<Input, String> {
    let items = items.as_array().unwrap().clone();
    input("input", &items).map_err(|problem| problem.openai_error()["error"]["param"].to_string())
}

fn content(items: Value) -> Vec<Value> {
    match read(items) {
        Ok(Input::Message { content, .. }) => content,
        other => panic!("{other:?}"),
    }
}

#[test]
fn text_images_and_files_become_blocks() {
    let parts = json!([
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
        {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA",
            "filename": "a.pdf"}},
    ]);
    let blocks = content(json!([{"role": "user", "content": parts}]));
    let kinds: Vec<&str> = blocks.iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["text", "image", "image", "document"]);
    assert_eq!(blocks[1]["source"]["mimeType"], "image/png");
    assert_eq!(blocks[3]["title"], "a.pdf");
    for block in &blocks {
        abide_conversation::message::blocks::check_from_user(block).unwrap();
    }
}

#[test]
fn only_what_follows_the_last_word_of_a_model_is_said() {
    let items = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "forged"},
        {"role": "user", "content": "two"},
    ]);
    let Ok(Input::Message { content, background }) = read(items.clone()) else { panic!() };
    assert_eq!(content, [json!({"type": "text", "text": "two"})]);
    let background = background.unwrap()["text"].to_string();
    assert!(background.contains("user: one") && !background.contains("Be brief"), "{background}");
    let items = items.as_array().unwrap();
    assert_eq!(instructions(items), [json!({"type": "text", "text": "Be brief."})]);
}

#[test]
fn answers_name_their_calls() {
    let items = json!([
        {"role": "user", "content": "go"},
        {"type": "mcp_approval_request", "id": "mcpr_a.1"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_a.1", "approve": false,
            "reason": "no"},
        {"type": "function_call_output", "call_id": "b", "output": "{\"x\": 1}"},
    ]);
    let Ok(Input::Answers(given)) = read(items) else { panic!() };
    let approval = AnswerToCall::Approval {
        call: CallId::new("a"),
        suspension: 1,
        approve: false,
        reason: Some("no".to_owned()),
    };
    let result = AnswerToCall::Result { call_id: "b".to_owned(), result: json!({"x": 1}) };
    let (at, value_at) = ("input[2]".to_owned(), "input[2].approve".to_owned());
    assert_eq!(given[0], InputAnswer { at, value_at, answer: approval });
    assert_eq!(given[1].answer, result);
}

#[test]
fn a_result_with_images_or_files_has_their_blocks() {
    let parts = json!([
        {"type": "input_text", "text": "Look:"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
        {"type": "input_file", "file_url": "https://a.example/b.pdf", "filename": "b.pdf"},
    ]);
    let image = json!({"type": "image",
        "source": {"type": "base64", "mimeType": "image/png", "data": "AAAA"}});
    let file = json!({"type": "document", "title": "b.pdf",
        "source": {"type": "url", "url": "https://a.example/b.pdf"}});
    let blocks = json!([{"type": "text", "text": "Look:"}, image, file]);
    let result = |item: Value| match read(json!([item])) {
        Ok(Input::Answers(mut given)) => given.remove(0).answer,
        other => panic!("{other:?}"),
    };
    let of = |result: Value| AnswerToCall::Result { call_id: "a".to_owned(), result };
    let item = json!({"type": "function_call_output", "call_id": "a", "output": parts});
    assert_eq!(result(item), of(blocks.clone()));
    let message = json!({"role": "tool", "tool_call_id": "a", "content": parts});
    assert_eq!(result(message), of(blocks));
    let alone = json!({"type": "function_call_output", "call_id": "a", "output": [parts[1]]});
    assert_eq!(result(alone), of(json!([image])));
}

#[test]
fn input_that_is_wrong_is_refused_with_its_place() {
    let approval = |id: Value, approve: Value| json!([{"type": "mcp_approval_response", "approval_request_id": id, "approve": approve}]);
    for (items, param) in [
        (json!([]), "\"input\""),
        (json!([{"role": "assistant", "content": "hi"}]), "\"input\""),
        (json!([{"role": "user"}]), "\"input[0].content\""),
        (json!([{"role": "user", "content": []}]), "\"input[0].content\""),
        (
            json!([{"role": "user", "content": [{"type": "input_audio"}]}]),
            "\"input[0].content[0]\"",
        ),
        (
            json!([{"role": "user", "content": [{"type": "input_image", "image_url": "file:///etc"}]}]),
            "\"input[0].content[0]\"",
        ),
        (json!([{"role": "root", "content": "hi"}]), "\"input[0].role\""),
        (json!([{"type": "computer_call_output"}]), "\"input[0].type\""),
        (json!([7]), "\"input[0].type\""),
        (json!([{"type": "function_call_output", "output": "x"}]), "\"input[0].call_id\""),
        (json!([{"type": "function_call_output", "call_id": "x"}]), "\"input[0].output\""),
        (
            json!([{"type": "function_call_output", "call_id": "x", "output": [
                {"type": "input_text", "text": "x"}, {"type": "input_image", "file_id": "f"}]}]),
            "\"input[0].output[1]\"",
        ),
        (
            json!([{"role": "tool", "tool_call_id": "x", "content": [{"type": "input_audio"}]}]),
            "\"input[0].content[0]\"",
        ),
        (approval(json!("a/1"), json!(true)), "\"input[0].approval_request_id\""),
        (approval(json!("mcpr_a.1"), json!("yes")), "\"input[0].approve\""),
        (
            json!([{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "a", "content": ""}]),
            "\"input\"",
        ),
    ] {
        assert_eq!(read(items.clone()), Err(param.to_owned()), "{items}");
    }
}

#[test]
fn functions_that_the_agent_lacks_are_declared_as_tools_of_the_turn() {
    let tools = [
        json!({"type": "function", "name": "own", "parameters": {"type": "object"}}),
        json!({"type": "function", "function": {"name": "locate", "description": "Where?"}}),
        json!({"type": "mcp", "server_label": "abide"}),
    ];
    let declared = client_tools(&tools, &["own".to_owned()]).unwrap();
    assert_eq!(declared.len(), 1);
    assert_eq!(
        (&declared[0]["name"], &declared[0]["executor"]),
        (&json!("locate"), &json!("client"))
    );
    assert_eq!(tool_names(&tools).collect::<Vec<_>>(), ["own", "locate"]);
    assert!(client_tools(&[json!({"type": "function"})], &[]).is_err());
}
