//! Every model adapter against its provider's own Python SDK, whose types parse our requests and
//! build our responses.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use abide_tests::journal::Journal;
use abide_tests::node::Site;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::ABIDE;
use crate::agents::{agent, tool};

/// How long the import of an SDK may take: some have thousands of files.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(120);

/// A provider and its features in addition to text, calls and structured answers.
struct Provider {
    name: &'static str,
    model: &'static str,
    thinks: bool,
    hosted: Option<Hosted>,
}

/// A tool that the provider runs, and its one run in the scenario.
struct Hosted {
    options: Value,
    args: Value,
    result: Value,
}

/// A server built on the SDK, which is killed when the value is dropped.
struct Sdk {
    url: String,
    _process: Child,
}

impl Sdk {
    async fn start(provider: &str) -> Self {
        let home = PathBuf::from(std::env::var("HOME").unwrap());
        let cache = std::env::var("XDG_CACHE_HOME").map_or(home.join(".cache"), PathBuf::from);
        let python = cache.join("abide-tests/model-sdks/bin/python");
        assert!(python.exists(), "{} is missing: run .ci/model-sdks", python.display());
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/models/server.py");
        let mut command = Command::new(python);
        command.args(["-B", script, provider]).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = timeout(IMPORT_TIMEOUT, lines.next_line())
            .await
            .expect("the SDK's server did not start");
        let url = line.unwrap().expect("the SDK's server prints its address");
        Self { url, _process: process }
    }
}

const PNG: &str = "iVBORw0KGgo=";

fn definition(provider: &Provider, url: &str) -> Value {
    let model = json!({"provider": provider.name, "name": provider.model, "base_url": url,
        "temperature": 0.5, "max_tokens": 4000});
    let parameters = json!({"type": "object", "properties": {
        "at": {"type": "string"}, "id": {"type": "integer"}}, "required": ["at"]});
    let look = json!({"executor": "client", "requires_response": false,
        "default_result": "a cat", "parameters": parameters});
    let hosted = provider.hosted.as_ref().map(|hosted| {
        let options = json!({provider.name: hosted.options});
        tool("hosted", json!({"executor": "provider", "provider_options": options}))
    });
    let mut agent = agent(model, [tool("look", look)].into_iter().chain(hosted).collect());
    agent["system_prompt"] = "Be brief.".into();
    agent
}

/// Runs two turns: the first sends an image and ends after its calls, the second asks for a
/// structured answer.
async fn run_scenario(provider: &Provider) -> Journal {
    let sdk = Sdk::start(provider.name).await;
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &definition(provider, &sdk.url)).await;
    let image = json!({"type": "image",
        "source": {"type": "base64", "mimeType": "image/png", "data": PNG}});
    let text = json!({"type": "text", "text": "What is on it?"});
    let message = json!({"agent": "a", "content": [text, image]});
    let path = "/v1/conversations/c/messages";
    site.client.post(path, &message).await.expect(202);
    let journal = site.client.wait_until_settled("c", 1).await;
    let ends: Vec<&Value> = journal.of("turn_ended").collect();
    assert_eq!(journal.outcomes(), ["completed"], "{ends:#?}");
    let schema = json!({"type": "object", "properties": {"seen": {"type": "integer"}},
        "required": ["seen"], "additionalProperties": false});
    let message = json!({"text": "How many?", "schema": schema});
    site.client.post(path, &message).await.expect(202);
    site.client.wait_until_settled("c", 2).await
}

/// Runs the scenario, and fails unless the journal has all of it.
async fn assert_scenario_journalled(provider: Provider) {
    let journal = run_scenario(&provider).await;
    let ends: Vec<&Value> = journal.of("turn_ended").collect();
    assert_eq!(journal.outcomes(), ["completed", "completed"], "{ends:#?}");
    let messages: Vec<&Value> = journal.of("assistant_msg").map(|event| &event["data"]).collect();
    let [calls, after, answer] = messages[..] else { panic!("{messages:#?}") };
    let blocks = calls["message"]["content"].as_array().unwrap();
    let of = |kind: &str| -> String {
        let texts = blocks.iter().filter(|block| block["type"] == kind);
        texts.filter_map(|block| block["text"].as_str()).collect()
    };
    assert_eq!(of("text"), "I look.");
    assert_eq!(of("reasoning"), if provider.thinks { "Hm. So." } else { "" });
    let calls_made: Vec<(&Value, &Value)> = journal
        .of("tool_call")
        .filter(|call| call["data"]["tool"] == "look")
        .map(|call| (&call["data"]["args"], &call["data"]["executor"]))
        .collect();
    let client = json!("client");
    let args = [json!({"at": "left"}), json!({"at": "right", "id": 12345678901234567_u64})];
    assert_eq!(calls_made, [(&args[0], &client), (&args[1], &client)]);
    assert_eq!((&calls["stop"], &after["stop"]), (&json!("tool_calls"), &json!("end")));
    assert_eq!(after["message"]["content"], json!([{"type": "text", "text": "Both."}]));
    assert_eq!(answer["message"]["object"], json!({"seen": 2}));
    let usage = &calls["usage"];
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(100), &json!(20)));
    assert_eq!(calls.get("verbatim").is_some(), provider.thinks || provider.hosted.is_some());
    if let Some(hosted) = &provider.hosted {
        let call = journal.of("tool_call").find(|call| call["data"]["tool"] == "hosted");
        let call = &call.unwrap()["data"];
        assert_eq!((&call["executor"], &call["args"]), (&json!("provider"), &hosted.args));
        let result = journal.result(call["call_id"].as_str().unwrap());
        assert_eq!(result["result"], hosted.result, "{result:#}");
    }
}

#[tokio::test]
async fn openai_s_own_types_agree() {
    let hosted = None;
    assert_scenario_journalled(Provider { name: "openai", model: "m", thinks: false, hosted })
        .await;
}

#[tokio::test]
async fn gemini_s_own_types_agree() {
    let hosted = Hosted {
        options: json!({"codeExecution": {}}),
        args: json!({"language": "PYTHON", "code": "print(1)"}),
        result: json!({"id": "run", "outcome": "OUTCOME_OK", "output": "1\n"}),
    };
    let (name, model) = ("gemini", "gemini-3-pro");
    assert_scenario_journalled(Provider { name, model, thinks: true, hosted: Some(hosted) }).await;
}

#[tokio::test]
async fn openai_responses_own_types_agree() {
    let search = json!({"type": "search", "query": "cats", "queries": ["cats"]});
    let run = json!({"id": "w", "type": "web_search_call", "status": "completed",
        "action": search});
    let options = json!({"type": "web_search"});
    let hosted = Some(Hosted { options, args: search, result: run });
    let (name, model) = ("openai_responses", "m");
    assert_scenario_journalled(Provider { name, model, thinks: true, hosted }).await;
}

#[tokio::test]
async fn ollama_s_own_types_agree() {
    let hosted = None;
    assert_scenario_journalled(Provider { name: "ollama", model: "m", thinks: true, hosted }).await;
}

#[tokio::test]
async fn anthropic_s_own_types_agree() {
    let page = json!({"type": "web_search_result", "title": "Cats", "url": "https://cats.example",
        "encrypted_content": "U0VBTEVE"});
    let options = json!({"type": "web_search_20250305", "name": "web_search"});
    let args = json!({"query": "cats"});
    let hosted = Some(Hosted { options, args, result: json!([page]) });
    let (name, model) = ("anthropic", "claude-sonnet-4-5");
    assert_scenario_journalled(Provider { name, model, thinks: true, hosted }).await;
}
