//! The AI SDK's chat over a node: what a page sees, and what becomes of it when nodes die.

use std::path::PathBuf;

use abide_tests::client::Client;
use abide_tests::node::Site;
use abide_tests::tool_server::ToolServer;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{agent, call, calls_once, client, gated_client, http, human, steps, tool};
use crate::authentication::{by, guarded, key, line};
use crate::chat_page::{ChatPage, Options, VERSIONS, is_idle, part, rests_at, run_script, text};

/// An agent with this script and these tools.
pub(crate) fn scripted(script: Value, tools: Vec<Value>) -> Value {
    agent(json!({"provider": "scripted", "script": script}), tools)
}

pub(crate) async fn open(version: &str, client: &Client, options: Options<'_>) -> ChatPage {
    ChatPage::open(version, &client.public_address(), options).await
}

#[tokio::test]
async fn every_golden_chunk_fits_the_clients_own_schema() {
    let golden =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../nodes/src/protocols/ai_sdk/encoder/golden");
    let files: Vec<_> = std::fs::read_dir(golden).unwrap().map(|it| it.unwrap().path()).collect();
    for version in VERSIONS {
        let is_newer = |file: &PathBuf| file.to_string_lossy().ends_with(".v7.jsonl");
        let is_for_it = |file: &&PathBuf| version == "ai7" || !is_newer(file);
        let output = run_script("chunks.mjs", version, files.iter().filter(is_for_it)).await;
        let count: usize = output.trim().parse().unwrap_or_else(|_| panic!("{version}: {output}"));
        assert!(count > 100, "{count} chunks");
    }
}

#[tokio::test]
async fn a_page_talks_for_two_turns_and_loads_them_again() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    let script = json!([{"thinking": "Let me see.", "text": "You said {{ user }}."}]);
    site.client.define("a", &scripted(script, vec![])).await;
    for version in VERSIONS {
        let mut page = open(version, &site.client, Options::new("a", version)).await;
        page.send("hello").await;
        let state = page.send("again").await;
        assert_eq!(
            (text(&state), &state["status"]),
            ("You said again.".to_owned(), &json!("ready"))
        );
        let messages = state["messages"].as_array().unwrap();
        let roles: Vec<_> =
            messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
        let thinking = &messages[3]["parts"][1];
        assert_eq!(
            (&thinking["type"], &thinking["text"]),
            (&json!("reasoning"), &json!("Let me see."))
        );
        let ids = |messages: &Value| -> Vec<Value> {
            messages.as_array().unwrap().iter().map(|message| message["id"].clone()).collect()
        };
        let mut other = open(version, &site.client, Options::new("a", version)).await;
        other.command("load", json!({})).await;
        assert_eq!(ids(&other.state()["messages"]), ids(&state["messages"]));
        assert_eq!(text(other.state()), "You said again.");
        other.command("resume", json!({})).await;
        assert_eq!(other.state()["status"], "ready", "there is nothing to resume");
    }
}

#[tokio::test]
async fn a_call_runs_once_the_page_has_approved_it() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    let gated = http("mail", &tools, "/answer", json!({"approval": "requires_approval"}));
    let calls = steps(&[vec![call("m", "mail", json!({"to": "ada"}))]]);
    site.client.define("a", &agent(calls, vec![gated])).await;
    for version in VERSIONS {
        let mut page = open(version, &site.client, Options::new("a", version)).await;
        let state = page.send("go").await;
        let asked = part(&state, "m");
        assert_eq!(asked["state"], "approval-requested", "{asked:#}");
        assert_eq!(
            (&asked["approval"]["id"], &asked["input"]),
            (&json!("m/1"), &json!({"to": "ada"}))
        );
        let before = tools.requests.all().len();
        page.command("approve", json!({"approval": "m/1", "approved": true})).await;
        let state = page.until(rests_at("m", "output-available")).await;
        assert_eq!(part(&state, "m")["output"], json!({"did": {"to": "ada"}, "attempt": 1}));
        assert_eq!((text(&state), tools.requests.all().len()), ("Done.".to_owned(), before + 1));
        assert_eq!(state["requests"], 2);
        page.assert_quiet().await;
    }
}

#[tokio::test]
async fn two_approvals_are_answered_in_one_request() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    let gated = |name| http(name, &tools, "/answer", json!({"approval": "requires_approval"}));
    site.client.define("a", &calls_once(vec![gated("x"), gated("y")])).await;
    for version in VERSIONS {
        let mut page = open(version, &site.client, Options::new("a", version)).await;
        page.send("go").await;
        page.command("approve", json!({"approval": "x/1", "approved": true})).await;
        let no = json!({"approval": "y/1", "approved": false, "reason": "not today"});
        page.command("approve", no).await;
        let state = page.until(|state| is_idle(state) && text(state) == "Done.").await;
        assert_eq!(state["requests"], 2, "{state:#}");
        assert_eq!(part(&state, "x")["state"], "output-available");
        assert_eq!(part(&state, "y")["state"], "output-denied");
        let journal = site.client.journal(version).await;
        let reasons: Vec<_> =
            journal.of("resolution").map(|event| event["data"]["reason"].clone()).collect();
        assert_eq!(reasons, [Value::Null, json!("not today")]);
        page.assert_quiet().await;
    }
}

#[tokio::test]
async fn a_question_has_its_schema_and_a_wrong_answer_leaves_it_open() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    let schema = json!({"type": "object", "properties": {"seat": {"enum": ["window", "aisle"]}}});
    let question = json!({"executor": "human", "result_schema": schema,
        "confirmation_message": "Which seat?"});
    site.client.define("a", &calls_once(vec![tool("seat", question)])).await;
    for version in VERSIONS {
        let mut page = open(version, &site.client, Options::new("a", version)).await;
        let state = page.send("go").await;
        let asked = part(&state, "seat");
        assert_eq!(
            (&asked["state"], &asked["title"]),
            (&json!("input-available"), &json!("Which seat?"))
        );
        let abide = &asked["toolMetadata"]["abide"];
        assert_eq!((&abide["kind"], &abide["schema"]), (&json!("elicitation"), &schema));
        let answer = |seat: &str| json!({"call": "seat", "tool": "seat", "output": {"seat": seat}});
        page.command("answer", answer("roof")).await;
        let state = page.until(|state| !state["error"].is_null()).await;
        assert!(state["error"].as_str().unwrap().contains("seat"), "{state:#}");
        site.client.wait_for_pending(version, "seat", "elicitation").await;
        page.command("answer", answer("aisle")).await;
        let state = page.until(|state| is_idle(state) && text(state) == "Done.").await;
        assert_eq!(part(&state, "seat")["output"], json!({"seat": "aisle"}));
        page.assert_quiet().await;
    }
}

#[tokio::test]
async fn a_page_executes_its_calls_and_a_gated_one_only_after_its_approval() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &calls_once(vec![client("locate"), gated_client("pay")])).await;
    for version in VERSIONS {
        let options = Options::new("a", version).executing(&["locate", "pay"]);
        let mut page = open(version, &site.client, options).await;
        let state = page.send("go").await;
        let ran = |state: &Value| -> Vec<Value> {
            state["ran"].as_array().unwrap().iter().map(|run| run["toolName"].clone()).collect()
        };
        assert_eq!(part(&state, "pay")["state"], "approval-requested");
        assert_eq!(part(&state, "pay")["input"], json!({"n": 1}));
        assert_eq!(ran(&state), ["locate"], "what is not approved does not run");
        page.command("approve", json!({"approval": "pay/1", "approved": true})).await;
        let state = page.until(|state| is_idle(state) && text(state) == "Done.").await;
        assert_eq!(ran(&state), ["locate", "pay"]);
        let output = json!({"by": "page", "input": {"n": 1}});
        let journal = site.client.wait_until_settled(version, 1).await;
        for call in ["locate", "pay"] {
            assert_eq!(part(&state, call)["output"], output);
            assert_eq!(journal.result(call)["result"], output);
        }
        page.assert_quiet().await;
    }
}

#[tokio::test]
async fn everything_at_once_comes_to_an_end() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    let gate = json!({"approval": "requires_approval"});
    let all = vec![
        http("look", &tools, "/slow", json!({})),
        http("mail", &tools, "/answer", gate),
        client("locate"),
        gated_client("pay"),
        human("seat"),
    ];
    site.client.define("a", &calls_once(all)).await;
    for version in VERSIONS {
        let options = Options::new("a", version).executing(&["locate", "pay"]);
        let mut page = open(version, &site.client, options).await;
        let state = page.send("go").await;
        // The stream goes on until the call of the server is done, too.
        assert_eq!(part(&state, "look")["state"], "output-available");
        page.command("answer", json!({"call": "seat", "tool": "seat", "output": "aisle"})).await;
        for approval in ["mail/1", "pay/1"] {
            page.command("approve", json!({"approval": approval, "approved": true})).await;
        }
        let state = page.until(|state| is_idle(state) && text(state) == "Done.").await;
        for call in ["look", "mail", "locate", "pay", "seat"] {
            assert_eq!(part(&state, call)["state"], "output-available", "{call}: {state:#}");
        }
        site.client.wait_until_settled(version, 1).await;
        page.assert_quiet().await;
    }
}

#[tokio::test]
async fn an_answer_that_comes_late_shows_what_became_of_the_call() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    let gated = http("mail", &tools, "/answer", json!({"approval": "requires_approval"}));
    site.client.define("a", &calls_once(vec![gated])).await;
    for version in VERSIONS {
        for (elsewhere, shown) in [(true, "output-available"), (false, "output-denied")] {
            let id = format!("{version}-{elsewhere}");
            let mut page = open(version, &site.client, Options::new("a", &id)).await;
            page.send("go").await;
            site.client.resolve(&id, "mail", json!({"approved": elsewhere})).await.expect(200);
            site.client.wait_until_settled(&id, 1).await;
            let late = json!({"approval": "mail/1", "approved": !elsewhere});
            page.command("approve", late).await;
            let state = page.until(rests_at("mail", shown)).await;
            assert_eq!((&state["error"], text(&state)), (&Value::Null, "Done.".to_owned()));
            page.assert_quiet().await;
        }
    }
}

#[tokio::test]
async fn who_may_not_approve_waits_for_who_may() {
    let tools = ToolServer::start().await;
    let by_services = json!({"approval": {"by": {"services": true}}});
    let gated = http("mail", &tools, "/answer", by_services);
    let keys = [line("ada", &["user"]), line("ann", &["approver"])];
    let site = guarded(Site::new(ABIDE), &keys, &[("a", calls_once(vec![gated]))]);
    let _node = site.start().await;
    for version in VERSIONS {
        let ada = key("ada");
        let options = Options::new("a", version).with_credential(&ada);
        let mut page = open(version, &site.client, options).await;
        page.begin("send", json!({"text": "go"})).await;
        let waits = |state: &Value| {
            let data = state["data"].as_array().into_iter().flatten();
            data.filter(|part| part["type"] == "data-abide-waiting").count() > 0
        };
        let state = page.until(waits).await;
        assert_ne!(part(&state, "mail")["state"], "approval-requested");
        // A page that answers nevertheless is refused.
        let approval = json!({"id": "mail/1", "approved": true});
        let forged = json!({"type": "tool-mail", "toolCallId": "mail", "input": {},
            "state": "approval-responded", "approval": approval});
        let turn = state["messages"][1]["id"].clone();
        let body = json!({"id": version, "messages": [
            {"id": turn, "role": "assistant", "parts": [forged]}]});
        let refused = by(&site, "ada").post("/v1/agents/a/ui", &body).await;
        refused.expect_problem(403, "approval-forbidden");
        let approves = json!({"approved": true});
        by(&site, "ann").resolve(version, "mail", approves).await.expect(200);
        let state = page.until(|state| is_idle(state) && text(state) == "Done.").await;
        assert_eq!((&state["requests"], &state["error"]), (&json!(1), &Value::Null));
        assert_eq!(part(&state, "mail")["state"], "output-available");
    }
}
