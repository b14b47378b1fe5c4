//! OpenAI's own clients at a node: what they get, and what they ask for.

use abide_tests::deadline::poll;
use abide_tests::node::Site;
use abide_tests::tool_server::ToolServer;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{agent, calls_once, http};
use crate::authentication::{by, guarded, key, line};
use crate::openai_client::{node, python};

/// An agent with this script and no tools.
pub(crate) fn scripted(script: Value) -> Value {
    agent(json!({"provider": "scripted", "script": script}), vec![])
}

fn echo() -> Value {
    scripted(json!([{"thinking": "Let me see.", "text": "You said {{ user }}."}]))
}

/// An agent that calls each of these tools once, after an approval.
pub(crate) fn gated(tools: &ToolServer, names: &[&str]) -> Value {
    let approval = json!({"approval": "requires_approval"});
    calls_once(names.iter().map(|name| http(name, tools, "/answer", approval.clone())).collect())
}

/// An agent that asks for the page's place, by a tool that only the client declares.
fn asks_client() -> Value {
    scripted(json!([{"calls": [{"id": "at", "name": "locate", "args": {}}]},
        {"text": "At {{ results.locate.result.at }}."}]))
}

fn kinds(response: &Value) -> Vec<&str> {
    let output = response["output"].as_array().unwrap();
    output.iter().map(|item| item["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn agents_are_models_and_a_chat_is_a_conversation() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &echo()).await;
    assert_eq!(node(&site.client, "models", json!({})).await, json!(["a", "demo"]));
    let chat = node(&site.client, "chat", json!({"conversation": "c"})).await;
    assert_eq!(chat, json!({"plain": "You said hello.", "streamed": "You said again."}));
    let journal = site.client.wait_until_settled("c", 2).await;
    assert_eq!(journal.of("user_msg").count(), 2);
}

#[tokio::test]
async fn a_clients_functions_are_called_by_each_of_its_helpers() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &asks_client()).await;
    let tools = node(&site.client, "tools", json!({"conversation": "chat"})).await;
    assert_eq!(tools["content"], "At home.");
    site.client.wait_until_settled("chat", 1).await;
    let agents = node(&site.client, "agentsTool", json!({"conversation": "agents"})).await;
    assert_eq!(agents["output"], "At home.");
    site.client.wait_until_settled("agents", 1).await;
}

#[tokio::test]
async fn what_a_chat_cannot_ask_is_said_and_failures_are_raised() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("gated", &gated(&tools, &["mail"])).await;
    let fails = json!([{"text": "I try. ", "error": {"message": "no model"}}]);
    site.client.define("fails", &scripted(fails)).await;
    let say = |model: &str| json!({"model": model, "text": "hello", "conversation": model});
    let waiting = node(&site.client, "say", say("gated")).await;
    assert!(waiting["content"].as_str().unwrap().contains("[waiting]"), "{waiting:#}");
    // The next message supersedes what waits.
    let next = node(
        &site.client,
        "say",
        json!({"model": "gated", "text": "no, that",
        "conversation": "gated"}),
    )
    .await;
    assert!(next["content"].as_str().unwrap().contains("[waiting]"), "{next:#}");
    let failed = node(&site.client, "say", say("fails")).await;
    assert_eq!(
        (&failed["refused"]["status"], &failed["refused"]["code"]),
        (&json!(502), &json!("turn_failed"))
    );
    let failed = node(&site.client, "sayStreamed", say("fails")).await;
    assert!(failed["refused"]["message"].as_str().unwrap().contains("no model"), "{failed:#}");
    let unknown = node(&site.client, "say", say("missing")).await;
    assert_eq!(unknown["refused"]["code"], "model_not_found");
    // A failure for good is not sent again.
    let mut retried = say("fails");
    retried["retries"] = json!(2);
    retried["conversation"] = json!("once");
    node(&site.client, "say", retried).await;
    assert_eq!(site.client.journal("once").await.of("user_msg").count(), 1);
}

#[tokio::test]
async fn a_response_continues_the_one_before() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &echo()).await;
    let told = node(&site.client, "responses", json!({})).await;
    assert_eq!(told["text"], "You said again.");
    assert_eq!(kinds(&told["first"]), ["reasoning", "message"]);
    let turn = ["message", "reasoning", "message"];
    assert_eq!(told["items"], json!([turn, turn].concat()));
    let ai = node(&site.client, "aiSdk", json!({})).await;
    assert_eq!(ai, json!({"text": "You said hello.", "reasoning": "Let me see."}));
}

#[tokio::test]
async fn approvals_are_given_by_each_client() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &gated(&tools, &["x", "y"])).await;
    let told = node(&site.client, "approval", json!({"conversation": "c"})).await;
    assert_eq!(kinds(&told["asked"]), ["mcp_approval_request", "mcp_approval_request"]);
    assert_eq!(kinds(&told["given"]), ["mcp_call", "mcp_call", "message"]);
    assert_eq!(told["given"]["output_text"], "Done.");
    for (index, name) in ["asked", "given"].into_iter().enumerate() {
        assert_eq!(
            told["again"][index]["output"].as_array().map(Vec::len),
            told[name]["output"].as_array().map(Vec::len),
            "{name}"
        );
    }
    let late = &told["late"]["refused"];
    assert_eq!((&late["status"], &late["code"]), (&json!(409), &json!("call_not_open")));
    let agents = node(&site.client, "agentsApproval", json!({"conversation": "agents"})).await;
    assert_eq!(agents, json!({"interruptions": 2, "output": "Done."}));
    let request = "mcp_approval_request";
    let one_by_one = python(&site.client, "one_by_one", json!({})).await;
    assert_eq!(
        one_by_one["kinds"],
        json!([[request, request], ["mcp_call", request], ["mcp_call", "message"]])
    );
    let at_once = python(&site.client, "at_once", json!({})).await;
    assert_eq!(
        at_once,
        json!({"text": "Done.",
        "kinds": [[request, request], ["mcp_call", "mcp_call", "message"]]})
    );
}

#[tokio::test]
async fn a_response_in_the_background_is_polled_and_cancelled() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    let slow = json!([{"text": "one two three", "delay": "100ms"}]);
    site.client.define("a", &scripted(slow)).await;
    let told = node(&site.client, "background", json!({})).await;
    assert_eq!((&told["begun"], &told["cancelled"]), (&json!("queued"), &json!("cancelled")));
    assert_eq!(told["polled"]["output_text"], "one two three");
    let busy = node(&site.client, "busy", json!({"conversation": "c"})).await;
    assert_eq!(
        (&busy["refused"]["status"], &busy["refused"]["code"]),
        (&json!(409), &json!("conversation_locked"))
    );
}

#[tokio::test]
async fn the_client_for_python_has_conversations_structures_and_images() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &echo()).await;
    let told = python(&site.client, "conversations", json!({})).await;
    assert_eq!(
        told,
        json!({"text": "You said hello.", "same": true, "deleted": true,
        "status": 404, "items": ["message", "reasoning", "message"]})
    );
    let refused = python(&site.client, "refused", json!({})).await;
    assert_eq!(
        refused,
        json!([
            [404, "model_not_found"],
            [400, "invalid_request"],
            [400, "previous_response_not_found"]
        ])
    );
    let image = python(&site.client, "image", json!({})).await;
    assert_eq!(image["parts"], json!(["input_text", "input_image"]));
    let trip = json!([{"text": "{\"city\": \"Graz\", \"nights\": 2}"}]);
    site.client.define("a", &scripted(trip)).await;
    let parsed = json!({"city": "Graz", "nights": 2});
    assert_eq!(python(&site.client, "parse", json!({})).await, json!([parsed, parsed]));
}

#[tokio::test]
async fn a_question_of_a_person_is_a_function() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &calls_once(vec![crate::agents::human("seat")])).await;
    let asked = node(&site.client, "ask", json!({"conversation": "c"})).await;
    assert_eq!(
        (kinds(&asked), &asked["output"][0]["name"]),
        (vec!["function_call"], &json!("seat"))
    );
    let more = json!({"previous": asked["id"], "output": "aisle"});
    let answered = node(&site.client, "answer", more).await;
    assert_eq!(answered["output_text"], "Done.");
    assert_eq!(site.client.journal("c").await.result("seat")["result"], "aisle");
}

#[tokio::test]
async fn who_may_not_approve_is_not_asked() {
    let tools = ToolServer::start().await;
    let by_services = json!({"approval": {"by": {"services": true}}});
    let agent = calls_once(vec![http("mail", &tools, "/answer", by_services)]);
    let keys = [line("ada", &["user"]), line("ann", &["approver"])];
    let site = guarded(Site::new(ABIDE), &keys, &[("a", agent)]);
    let _node = site.start().await;
    let options = json!({"key": key("ada"), "conversation": "c"});
    let (response, ()) = tokio::join!(node(&site.client, "ask", options), async {
        let inbox = async || by(&site, "ann").get("/v1/pending").await.expect(200);
        let asked = async || inbox().await["pending"].get(0).map(|_| ());
        poll("the approval to be asked for", asked).await;
        by(&site, "ann").resolve("c", "mail", json!({"approved": true})).await.expect(200);
    });
    assert_eq!(kinds(&response), ["mcp_call", "message"], "{response:#}");
}
