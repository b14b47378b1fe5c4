//! Tests of tools that the provider runs.

use abide_conversation::event::Executor;

use super::*;
use crate::model::ToolSpec;

fn tool(name: &str, options: Value) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: String::new(),
        parameters: json!({}).into(),
        executor: Executor::Provider,
        provider_options: json!({"gemini": options}).as_object().unwrap().clone(),
    }
}

async fn reply(tools: Vec<ToolSpec>, pieces: Vec<String>) -> (Vec<ModelToolCall>, ReplyEnd) {
    let server = TestServer::start([TestResponse::stream(pieces)]).await;
    let request = ModelRequest { tools, ..request_to(&server) };
    let mut parts = all_ok(collect_reply(&gemini(), request).await);
    let Some(ReplyChunk::Done(done)) = parts.pop() else { panic!("no end") };
    let call = |part| if let ReplyChunk::Call(call) = part { Some(call) } else { None };
    (parts.into_iter().filter_map(call).collect(), done)
}

fn hosted_run(id: &str, name: &str, args: Value, result: &Value) -> ModelToolCall {
    let provider_result = Some(result.clone());
    ModelToolCall { id: id.to_owned(), name: name.to_owned(), args: Ok(args), provider_result }
}

#[tokio::test]
async fn code_that_was_run_is_a_call_with_its_result() {
    let code = |id: Value| json!({"id": id, "language": "PYTHON", "code": "print(1)"});
    let result = |id: Value| json!({"id": id, "outcome": "OUTCOME_OK", "output": "1\n"});
    let (first, second) = (code(json!("x")), code(json!("y")));
    let (late, early) = (result(json!("x")), result(json!("y")));
    let items = json!([
        {"text": "Let me see."},
        {"executableCode": first, "thoughtSignature": "c2ln"},
        {"executableCode": second},
        {"codeExecutionResult": early},
        {"codeExecutionResult": late},
        {"text": "One."},
    ]);
    let tools = vec![tool("python", json!({"codeExecution": {}}))];
    let (calls, done) = reply(tools, vec![parts(items.clone()), finish("STOP")]).await;
    let args = json!({"language": "PYTHON", "code": "print(1)"});
    let expected =
        [hosted_run("y", "python", args.clone(), &early), hosted_run("x", "python", args, &late)];
    assert_eq!(calls, expected);
    assert_eq!(
        done,
        ReplyEnd { stop: Some(StopReason::End), verbatim: verbatim(items), usage: None }
    );
}

#[tokio::test]
async fn a_search_is_named_as_its_definition_names_it() {
    let call = json!({"id": "s", "toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["a"]}});
    let result = json!({"id": "s", "toolType": "GOOGLE_SEARCH_WEB", "response": {"hits": 1}});
    let read = json!({"id": "u", "toolType": "URL_CONTEXT", "response": {}});
    let items = json!([{"toolCall": call}, {"toolResponse": result}, {"toolResponse": read}]);
    let tools = vec![tool("web", json!({"google_search": {}}))];
    let (calls, done) = reply(tools, vec![parts(items.clone()), finish("STOP")]).await;
    let expected = [
        hosted_run("s", "web", json!({"queries": ["a"]}), &result),
        hosted_run("u", "url_context", json!({}), &read),
    ];
    assert_eq!(calls, expected);
    assert_eq!(done.verbatim, verbatim(items));
}

#[tokio::test]
async fn grounding_metadata_is_the_result_of_a_search() {
    let found = json!({"webSearchQueries": ["abide"], "searchEntryPoint": {"renderedContent": "x"},
        "groundingChunks": [{"web": {"uri": "https://a.example", "title": "A"}}],
        "groundingSupports": [{"segment": {"endIndex": 3}, "groundingChunkIndices": [0]}]});
    let pages = json!({"urlMetadata": [{"retrievedUrl": "https://b.example",
        "urlRetrievalStatus": "URL_RETRIEVAL_STATUS_SUCCESS"}]});
    let place = json!({"groundingChunks": [{"maps": {"uri": "https://m.example"}}]});
    let end = |grounding: &Value, pages: &Value| {
        event(json!({"candidates": [{"content": {"parts": [{"text": "So."}]},
            "finishReason": "STOP", "groundingMetadata": grounding,
            "urlContextMetadata": pages}]}))
    };
    let tools = || vec![tool("web", json!({"googleSearch": {}}))];
    let (calls, done) = reply(tools(), vec![end(&found, &pages)]).await;
    let expected = [
        hosted_run("", "web", json!({"queries": ["abide"]}), &found),
        hosted_run("", "url_context", json!({"urls": ["https://b.example"]}), &pages),
    ];
    assert_eq!(calls, expected);
    assert_eq!(done.verbatim, verbatim(json!([{"text": "So."}])));
    let (calls, _) = reply(tools(), vec![end(&place, &json!({}))]).await;
    assert_eq!(calls, [hosted_run("", "google_maps", json!({}), &place)]);
}

#[tokio::test]
async fn a_run_without_a_result_is_only_in_the_verbatim_message() {
    let items = json!([{"executableCode": {"language": "PYTHON", "code": "while 1: pass"}}]);
    let (calls, done) = reply(vec![], vec![parts(items.clone()), finish("MAX_TOKENS")]).await;
    assert_eq!(calls, []);
    let stop = Some(StopReason::MaxTokens);
    assert_eq!(done, ReplyEnd { stop, verbatim: verbatim(items), usage: None });
}
