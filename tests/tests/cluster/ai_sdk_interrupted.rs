//! The AI SDK's chat whose turn is interrupted: by its page, by another message, or by the death of a
//! node.

use abide_tests::cluster::Plan;
use abide_tests::node::Site;
use abide_tests::redis::Redis;
use abide_tests::tool_server::ToolServer;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{call, calls_once, http};
use crate::ai_sdk::{open, scripted};
use crate::chat_page::{Options, VERSIONS, is_idle, part, rests_at, text};

const WHOLE: &str = "one two three four five six seven eight nine ten eleven twelve";

/// An agent that writes `WHOLE`, slowly.
fn slow() -> Value {
    scripted(json!([{"text": WHOLE, "delay": "100ms"}]), vec![])
}

fn has_text(state: &Value) -> bool {
    state["messages"][1].is_object() && text(state).contains("two")
}

fn is_whole(state: &Value) -> bool {
    is_idle(state) && state["error"].is_null() && text(state) == WHOLE
}

fn gated(tools: &ToolServer) -> Value {
    calls_once(vec![http("mail", tools, "/answer", json!({"approval": "requires_approval"}))])
}

#[tokio::test]
async fn a_page_that_is_loaded_anew_approves_what_was_asked_before() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &gated(&tools)).await;
    for version in VERSIONS {
        let mut page = open(version, &site.client, Options::new("a", version)).await;
        page.send("go").await;
        drop(page);
        let mut page = open(version, &site.client, Options::new("a", version)).await;
        page.command("load", json!({})).await;
        assert_eq!(part(page.state(), "mail")["state"], "approval-requested");
        page.command("resume", json!({})).await;
        let state = page.until(rests_at("mail", "approval-requested")).await;
        assert_eq!(state["messages"].as_array().unwrap().len(), 2);
        page.command("approve", json!({"approval": "mail/1", "approved": true})).await;
        let state = page.until(rests_at("mail", "output-available")).await;
        assert_eq!(text(&state), "Done.");
        // The history of a turn that has ended fits the client's own types.
        page.command("load", json!({})).await;
        assert_eq!(part(page.state(), "mail")["state"], "output-available");
    }
}

#[tokio::test]
async fn a_page_that_is_loaded_anew_goes_on_with_the_message_that_streams() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &slow()).await;
    for version in VERSIONS {
        let mut page = open(version, &site.client, Options::new("a", version)).await;
        let mut other = open(version, &site.client, Options::new("a", version)).await;
        page.begin("send", json!({"text": "go"})).await;
        page.until(has_text).await;
        other.command("load", json!({})).await;
        other.begin("resume", json!({})).await;
        let state = other.until(|state| text(state).contains("two")).await;
        assert_eq!(state["status"], "streaming", "it is told before it is complete");
        let state = other.until(is_whole).await;
        assert_eq!(page.until(is_whole).await["messages"][1]["id"], state["messages"][1]["id"]);
    }
}

#[tokio::test]
async fn a_message_supersedes_an_approval_that_waits() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    let mail = http("mail", &tools, "/answer", json!({"approval": "requires_approval"}));
    let script = json!([
        {"when": "go", "steps": [{"calls": [call("mail", "mail", json!({}))]}]},
        {"steps": [{"text": "Fine."}]},
    ]);
    site.client.define("a", &scripted(script, vec![mail])).await;
    for version in VERSIONS {
        let mut page = open(version, &site.client, Options::new("a", version)).await;
        page.send("go").await;
        let state = page.send("never mind").await;
        assert_eq!((text(&state), &state["error"]), ("Fine.".to_owned(), &Value::Null));
        assert_eq!(state["messages"].as_array().unwrap().len(), 4);
        page.command("load", json!({})).await;
        assert_eq!(part(page.state(), "mail")["state"], "output-error");
        assert!(tools.requests.all().is_empty());
    }
}

#[tokio::test]
async fn a_message_to_a_turn_that_runs_is_refused_or_queued() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &slow()).await;
    for version in VERSIONS {
        let mut page = open(version, &site.client, Options::new("a", version)).await;
        let mut other = open(version, &site.client, Options::new("a", version)).await;
        page.begin("send", json!({"text": "go"})).await;
        page.until(has_text).await;
        let state = other.send("and?").await;
        assert!(state["error"].as_str().unwrap().contains("turn-in-flight"), "{state:#}");
        let extras = json!({"body": {"abide": {"if_busy": "queue"}}});
        other.command("extras", extras).await;
        let state = other.send("and then?").await;
        assert_eq!((text(&state), &state["error"]), (WHOLE.to_owned(), &Value::Null));
        page.until(is_whole).await;
        site.client.wait_until_settled(version, 2).await;
    }
}

#[tokio::test]
async fn a_message_that_was_sent_before_is_told_again_and_another_answer_replaces_the_first() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &scripted(json!([{"text": "Hello."}]), vec![])).await;
    for version in VERSIONS {
        let mut ids = Vec::new();
        for _ in 0..2 {
            let mut page = open(version, &site.client, Options::new("a", version)).await;
            page.command("send", json!({"text": "hi", "messageId": "mine"})).await;
            let state = page.until(is_idle).await;
            assert_eq!(text(&state), "Hello.");
            ids.push(state["messages"][1]["id"].clone());
        }
        assert_eq!(ids[0], ids[1]);
        let journal = site.client.wait_until_settled(version, 1).await;
        assert_eq!(journal.of("user_msg").count(), 1);
        let mut page = open(version, &site.client, Options::new("a", version)).await;
        page.command("load", json!({})).await;
        page.command("regenerate", json!({})).await;
        let state = page.until(is_idle).await;
        assert_eq!((text(&state).as_str(), &state["error"]), ("Hello.", &Value::Null));
        assert_ne!(state["messages"][1]["id"], ids[0], "the turn began anew");
        let journal = site.client.wait_until_settled(version, 2).await;
        assert_eq!(journal.of("rewound").count(), 1);
    }
}

#[tokio::test]
async fn each_end_of_a_turn_reaches_the_page_once() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    let error = json!([{"text": "I try. ", "error": {"message": "no model"}}]);
    site.client.define("fails", &scripted(error, vec![])).await;
    let hold = http("hold", &tools, "/hold", json!({}));
    let answer = http("look", &tools, "/answer", json!({}));
    let mut halts = calls_once(vec![answer]);
    halts["max_steps"] = json!(1);
    site.client.define("halts", &halts).await;
    site.client.define("holds", &calls_once(vec![hold])).await;
    for version in VERSIONS {
        for (agent, expected) in [("fails", "no model"), ("halts", "halted: max_steps")] {
            let id = format!("{version}-{agent}");
            let mut page = open(version, &site.client, Options::new(agent, &id)).await;
            let state = page.send("go").await;
            let error = state["error"].as_str().unwrap();
            assert!(error.contains(expected), "{state:#}");
            page.assert_quiet().await;
        }
        let id = format!("{version}-holds");
        let mut page = open(version, &site.client, Options::new("holds", &id)).await;
        page.begin("send", json!({"text": "go"})).await;
        page.until(|state| part(state, "hold")["state"] == "input-available").await;
        let stopped = page.command("stop", json!({})).await;
        assert_eq!(stopped["body"], json!({"stopped": true}));
        let state = page.until(rests_at("hold", "output-error")).await;
        assert_eq!(part(&state, "hold")["errorText"], "[cancelled]");
        // All calls of its last step have results: it does not send them.
        page.assert_quiet().await;
        let stopped = page.command("stop", json!({})).await;
        assert_eq!(stopped["body"], json!({"stopped": false}));
    }
}

#[tokio::test]
async fn a_page_goes_on_with_a_node_that_was_killed_in_mid_message() {
    for version in VERSIONS {
        let site = Site::new(ABIDE);
        let node = site.start().await;
        site.client.define("a", &slow()).await;
        let mut page = open(version, &site.client, Options::new("a", "c")).await;
        page.begin("send", json!({"text": "go"})).await;
        page.until(has_text).await;
        node.kill().await;
        page.until(|state| state["status"] == "error").await;
        let _node = site.start().await;
        page.aim(&site.client.public_address()).await;
        page.begin("resume", json!({})).await;
        let state = page.until(is_whole).await;
        assert_eq!(state["messages"].as_array().unwrap().len(), 2, "{state:#}");
        site.client.wait_until_settled("c", 1).await;
    }
}

#[tokio::test]
async fn a_page_approves_after_its_node_was_killed_while_the_call_waited() {
    let tools = ToolServer::start().await;
    for version in VERSIONS {
        let site = Site::new(ABIDE);
        let node = site.start().await;
        site.client.define("a", &gated(&tools)).await;
        let mut page = open(version, &site.client, Options::new("a", "c")).await;
        page.send("go").await;
        node.kill().await;
        let _node = site.start().await;
        page.aim(&site.client.public_address()).await;
        page.command("approve", json!({"approval": "mail/1", "approved": true})).await;
        let state = page.until(rests_at("mail", "output-available")).await;
        assert_eq!((text(&state), &state["error"]), ("Done.".to_owned(), &Value::Null));
        page.assert_quiet().await;
    }
}

#[tokio::test]
async fn a_page_goes_on_with_another_node_of_a_cluster() {
    let tools = ToolServer::start().await;
    let mut cluster = Plan::new(ABIDE).start(Redis::start().await, 3).await;
    cluster.client(0).define("slow", &slow()).await;
    cluster.client(0).define("gated", &gated(&tools)).await;
    for (version, (first, second)) in VERSIONS.into_iter().zip([(0, 1), (1, 2)]) {
        let waits = format!("waits-{version}");
        let mut waiting = open(version, cluster.client(first), Options::new("gated", &waits)).await;
        waiting.send("go").await;
        let mut page = open(version, cluster.client(first), Options::new("slow", version)).await;
        page.begin("send", json!({"text": "go"})).await;
        page.until(has_text).await;
        cluster.kill(first).await;
        page.until(|state| state["status"] == "error").await;
        page.aim(&cluster.client(second).public_address()).await;
        page.begin("resume", json!({})).await;
        page.until(is_whole).await;
        waiting.aim(&cluster.client(second).public_address()).await;
        waiting.command("approve", json!({"approval": "mail/1", "approved": true})).await;
        let state = waiting.until(rests_at("mail", "output-available")).await;
        assert_eq!((text(&state), &state["error"]), ("Done.".to_owned(), &Value::Null));
        waiting.assert_quiet().await;
    }
}
