//! The AI SDK's chat over a node: what a page sees, and what becomes of it when nodes die.

use abide_tests::client::Client;
use abide_tests::node::Site;
use abide_tests::tool_server::ToolServer;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{agent, call, http, steps};
use crate::chat_page::{ChatPage, Options, VERSIONS, part, rests_at, text};

/// An agent with this script and these tools.
pub(crate) fn scripted(script: Value, tools: Vec<Value>) -> Value {
    agent(json!({"provider": "scripted", "script": script}), tools)
}

pub(crate) async fn open(version: &str, client: &Client, options: Options<'_>) -> ChatPage {
    ChatPage::open(version, &client.public_address(), options).await
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
