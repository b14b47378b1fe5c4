//! A2A's own clients at a node: what they are told, what they are asked, and who may answer.

use abide_tests::node::Site;
use abide_tests::tool_server::ToolServer;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::a2a_client::Sdk;
use crate::authentication::{guarded, key, line};
use crate::openai::{gated, scripted};

fn echo() -> Value {
    scripted(json!([{"thinking": "Let me see.", "text": "You said {{ user }}."}]))
}

/// An agent that asks a person for a seat.
pub(crate) fn asks() -> Value {
    let mut agent = scripted(json!([{"calls": [{"name": "seat", "args": {}}]},
        {"text": "It is {{ results.seat.result }}."}]));
    agent["tools"] = json!([{"name": "seat", "description": "Which seat?", "executor": "human",
        "parameters": {"type": "object"},
        "result_schema": {"type": "string", "enum": ["window", "aisle"]}}]);
    agent
}

pub(crate) fn text(task: &Value) -> String {
    let artifacts = task["artifacts"].as_array().into_iter().flatten();
    artifacts.map(|it| it["parts"][0]["text"].as_str().unwrap()).collect()
}

pub(crate) fn last(told: &Value) -> &Value {
    told["states"].as_array().unwrap().last().unwrap()
}

#[tokio::test]
async fn a_message_is_a_task_and_a_stream_tells_it_in_pieces() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &echo()).await;
    assert_eq!(Sdk::Node.run(&site.client, "card", json!({})).await, "a");
    let task = Sdk::Node.run(&site.client, "send", json!({})).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(text(&task), "You said hello.");
    let sent = Sdk::Python.run(&site.client, "send", json!({})).await;
    assert_eq!(
        (last(&sent), &sent["text"]),
        (&json!("TASK_STATE_COMPLETED"), &json!("You said hello."))
    );
    for sdk in Sdk::BOTH {
        let context = sdk.name();
        let told = sdk.run(&site.client, "stream", json!({"context": context})).await;
        assert_eq!(told["text"], "You said hello.");
        assert_eq!(last(&told), "TASK_STATE_COMPLETED");
        assert_eq!(told["task"]["contextId"], context);
        let options = json!({"task": told["task"]["id"]});
        let read = sdk.run(&site.client, "get", options).await;
        assert_eq!(text(&read), "You said hello.");
        assert_eq!(read["history"][0]["parts"][0]["text"], "hello");
        // Only the context: the next task.
        let next = json!({"context": context, "text": "again"});
        assert_eq!(sdk.run(&site.client, "stream", next).await["text"], "You said again.");
        let journal = site.client.wait_until_settled(context, 2).await;
        assert_eq!(journal.of("user_msg").count(), 2);
    }
}

#[tokio::test]
async fn free_text_approves_nothing_and_data_does() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &gated(&tools, &["mail"])).await;
    let told = Sdk::Node.run(&site.client, "gate", json!({"context": "node"})).await;
    assert_eq!(told["asked"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    assert_eq!(told["words"]["refused"]["code"], -32_602);
    assert_eq!(told["given"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(text(&told["given"]), "Done.");
    assert_eq!(told["late"]["refused"]["code"], -32_004);
    assert_eq!(tools.requests.all().len(), 1);
    let told = Sdk::Python.run(&site.client, "gate", json!({"context": "python"})).await;
    assert_eq!(told["words"]["refused"], "InvalidParamsError");
    assert_eq!(
        (last(&told["given"]), &told["given"]["text"]),
        (&json!("TASK_STATE_COMPLETED"), &json!("Done."))
    );
    assert_eq!(told["late"]["refused"], "UnsupportedOperationError");
    assert_eq!(tools.requests.all().len(), 2);
}

#[tokio::test]
async fn a_question_is_answered_with_a_value_and_several_approvals_at_once() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("seats", &asks()).await;
    site.client.define("mails", &gated(&tools, &["x", "y"])).await;
    for sdk in Sdk::BOTH {
        for (agent, answer, text) in [
            ("seats", json!({"result": "aisle"}), "It is aisle."),
            ("mails", json!({"approved": true}), "Done."),
        ] {
            let asked = sdk.run(&site.client, "stream", json!({"agent": agent})).await;
            assert_eq!(last(&asked), "TASK_STATE_INPUT_REQUIRED");
            let options = json!({"agent": agent, "task": asked["task"]["id"], "answer": answer});
            let given = sdk.run(&site.client, "answer", options).await;
            assert_eq!(
                (last(&given), &given["text"]),
                (&json!("TASK_STATE_COMPLETED"), &json!(text))
            );
        }
    }
    assert_eq!(tools.requests.all().len(), 4);
}

#[tokio::test]
async fn a_task_is_canceled_and_what_cannot_be_is_an_error_of_the_protocol() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &asks()).await;
    site.client.define("echo", &echo()).await;
    let asked = Sdk::Node.run(&site.client, "stream", json!({})).await;
    let canceled =
        Sdk::Node.run(&site.client, "cancel", json!({"task": asked["task"]["id"]})).await;
    assert_eq!(canceled["canceled"]["status"]["state"], "TASK_STATE_CANCELED");
    assert_eq!(canceled["again"]["refused"]["code"], -32_002);
    let refused = Sdk::Node.run(&site.client, "refused", json!({"agent": "echo"})).await;
    for (case, code) in
        [("missing", -32_001), ("over", -32_004), ("empty", -32_602), ("push", -32_003)]
    {
        assert_eq!(refused[case]["code"], code, "{case}: {refused:#}");
    }
    let refused = Sdk::Python.run(&site.client, "refused", json!({"agent": "echo"})).await;
    let names: Vec<&Value> = refused.as_array().unwrap().iter().map(|it| &it["refused"]).collect();
    let expected = [
        "TaskNotFoundError",
        "TaskNotCancelableError",
        "UnsupportedOperationError",
        "InvalidParamsError",
    ];
    assert_eq!(names, expected);
}

#[tokio::test]
async fn a_peer_is_asked_only_what_its_credential_may_answer() {
    let tools = ToolServer::start().await;
    let lines = [line("peer", &["backend"]), line("approver", &["backend", "approver"])];
    let mut agent = gated(&tools, &["mail"]);
    agent["tools"][0]["approval"] = json!({"by": {"services": true}});
    let site = guarded(Site::new(ABIDE), &lines, &[("a", agent)]);
    let _node = site.start().await;
    let options = |who: &str| json!({"key": key(who), "context": "c"});
    let mut follow = options("approver");
    let mut sent = options("peer");
    sent["until"] = json!("TASK_STATE_WORKING");
    let begun = Sdk::Node.run(&site.client, "stream", sent).await;
    follow["task"] = begun["task"]["id"].clone();
    follow["until"] = json!("TASK_STATE_INPUT_REQUIRED");
    let asked = Sdk::Node.run(&site.client, "subscribe", follow.clone()).await;
    assert_eq!(last(&asked), "TASK_STATE_INPUT_REQUIRED");
    let mut own = options("peer");
    own["task"] = begun["task"]["id"].clone();
    let read = Sdk::Python.run(&site.client, "get", own).await;
    assert_eq!(read["status"]["state"], "TASK_STATE_WORKING", "{read:#}");
    assert!(!read.to_string().contains("call_id"), "{read:#}");
    follow["answer"] = json!({"approved": true});
    let given = Sdk::Python.run(&site.client, "answer", follow).await;
    assert_eq!(last(&given), "TASK_STATE_COMPLETED");
}
