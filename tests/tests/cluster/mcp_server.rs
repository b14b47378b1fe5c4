//! The official MCP clients at a node whose agents are tools, also when nodes die.

use abide_tests::cluster::Plan;
use abide_tests::journal::Journal;
use abide_tests::node::Site;
use abide_tests::redis::Redis;
use abide_tests::tool_server::ToolServer;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{calls_once, human, tool};
use crate::authentication::{guarded, key, line};
use crate::mcp_client::{ERAS, McpSdk, SDKS, text};
use crate::openai::{gated, scripted};

const WHOLE: &str = "one two three four five six seven eight nine ten eleven twelve";

/// An agent that writes `WHOLE`, slowly.
fn slow() -> Value {
    scripted(json!([{"text": WHOLE, "delay": "100ms"}]))
}

fn says(message: &str, conversation: &str) -> Value {
    json!({"message": message, "conversation_id": conversation})
}

fn status(told: &Value) -> &Value {
    &told["result"]["structuredContent"]["status"]
}

/// The name of a conversation of this client's own.
fn own(sdk: McpSdk, name: &str) -> String {
    format!("{sdk:?}-{name}")
}

fn approved(approved: bool) -> Value {
    json!({"approved": approved})
}

/// The options that go on with what a client was asked.
fn goes_on(asked: &Value, arguments: &Value, content: &Value) -> Value {
    let result = &asked["result"];
    assert_eq!(result["resultType"], "input_required", "{asked:#}");
    let response = json!({"action": "accept", "content": content});
    let ids = result["inputRequests"].as_object().unwrap().keys();
    let responses: serde_json::Map<String, Value> =
        ids.map(|id| (id.clone(), response.clone())).collect();
    json!({"arguments": arguments, "requestState": result["requestState"],
        "inputResponses": responses})
}

/// Whether the model has begun its first message.
fn has_begun(journal: &Journal) -> bool {
    journal.of("turn_started").count() > 0
}

#[tokio::test]
async fn each_client_lists_the_agents_and_calls_one() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    let mut echo = scripted(json!([{"thinking": "Let me see.", "text": "You said {{ user }}."}]));
    echo["description"] = json!("Echoes.");
    site.client.define("a", &echo).await;
    for sdk in SDKS {
        for (era, version) in ERAS.into_iter().zip(["2026-07-28", "2025-11-25"]) {
            let told = sdk.succeed(&site.client, "tools", json!({"era": era})).await;
            assert_eq!(told["result"]["version"], version, "{told:#}");
            let tools = told["result"]["tools"].as_array().unwrap();
            let names: Vec<&str> =
                tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
            assert_eq!(names, ["a", "demo", "abide_pending", "abide_conversation"]);
            assert_eq!(tools[0]["description"], "Echoes.");
            let id = own(sdk, era);
            for message in ["hello", "again"] {
                let call = json!({"era": era, "arguments": says(message, &id)});
                let told = sdk.succeed(&site.client, "call", call).await;
                assert_eq!(text(&told), format!("You said {message}."));
                assert!(!told["progress"].as_array().unwrap().is_empty(), "{told:#}");
            }
            let one = json!({"era": era, "path": "/mcp/a", "arguments": {"message": "x"}});
            assert_eq!(text(&sdk.succeed(&site.client, "call", one).await), "You said x.");
            assert_eq!(site.client.journal(&id).await.of("user_msg").count(), 2);
        }
    }
}

#[tokio::test]
async fn each_client_asks_its_person_for_approvals_and_answers() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &gated(&tools, &["x", "y"])).await;
    let schema = json!({"type": "object", "properties": {"seat": {"enum": ["window", "aisle"]}}});
    let seat = tool("seat", json!({"executor": "human", "result_schema": schema}));
    let mut both = gated(&tools, &["x"]);
    both["tools"].as_array_mut().unwrap().extend([seat, human("why")]);
    let calls = json!([{"calls": [{"id": "x", "name": "x", "args": {"n": 1}},
        {"id": "seat", "name": "seat", "args": {}}]}, {"text": "Done."}]);
    both["model"] = json!({"provider": "scripted", "script": calls});
    site.client.define("both", &both).await;
    for sdk in SDKS {
        for (given, runs) in [(approved(true), 2), (approved(false), 0), (json!("decline"), 0)] {
            let before = tools.requests.all().len();
            let id = own(sdk, &given.to_string().replace(['{', '}', '"'], ""));
            let call = json!({"arguments": says("go", &id), "approval": given});
            let told = sdk.succeed(&site.client, "call", call).await;
            assert_eq!(text(&told), "Done.", "{told:#}");
            assert_eq!(told["asked"].as_array().unwrap().len(), 2, "{told:#}");
            let message = told["asked"][0]["message"].as_str().unwrap();
            assert!(message.contains("\"n\": 1"), "the arguments are shown: {message}");
            assert_eq!(tools.requests.all().len() - before, runs, "{sdk:?} {given}");
        }
        let id = own(sdk, "both");
        let call = json!({"tool": "both", "arguments": says("go", &id),
            "approval": approved(true), "answer": {"seat": "aisle"}});
        let told = sdk.succeed(&site.client, "call", call).await;
        assert_eq!((text(&told), told["asked"].as_array().unwrap().len()), ("Done.", 2));
        let journal = site.client.wait_until_settled(&id, 1).await;
        assert_eq!(journal.result("seat")["result"], json!({"seat": "aisle"}));
        assert_eq!(journal.of("resolution").count(), 2);
    }
}

#[tokio::test]
async fn a_client_that_cannot_ask_goes_on_when_somebody_else_has_answered() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &gated(&tools, &["mail"])).await;
    for sdk in SDKS {
        for (era, asks) in [("auto", false), ("legacy", true), ("legacy", false)] {
            let id = own(sdk, &format!("{era}-{asks}"));
            let call =
                |message: &str| json!({"era": era, "asks": asks, "arguments": says(message, &id)});
            let waiting = sdk.succeed(&site.client, "call", call("go")).await;
            assert_eq!(*status(&waiting), "waiting", "{waiting:#}");
            assert_eq!(waiting["result"]["isError"], false, "{waiting:#}");
            site.client.resolve(&id, "mail", approved(true)).await.expect(200);
            let told = sdk.succeed(&site.client, "call", call("")).await;
            assert_eq!(text(&told), "Done.");
        }
    }
}

#[tokio::test]
async fn what_fails_reaches_each_client() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("fails", &scripted(json!([{"error": {"message": "no model"}}]))).await;
    site.client.define("a", &calls_once(vec![human("x")])).await;
    for sdk in SDKS {
        for era in ERAS {
            let call = |tool: &str, arguments: Value| {
                let place = json!({"era": era, "tool": tool, "asks": false});
                let mut options = place.as_object().unwrap().clone();
                options.insert("arguments".to_owned(), arguments);
                Value::Object(options)
            };
            let failed = call("fails", json!({"message": "go"}));
            let told = sdk.succeed(&site.client, "call", failed).await;
            assert_eq!(
                (&told["result"]["isError"], status(&told)),
                (&json!(true), &json!("failed"))
            );
            assert!(text(&told).contains("no model"), "{told:#}");
            let unknown = call("missing", json!({"message": "go"}));
            let told = sdk.run(&site.client, "call", unknown).await;
            assert_eq!(told["error"]["code"], -32602, "{told:#}");
            let id = own(sdk, era);
            let waits = sdk.succeed(&site.client, "call", call("a", says("go", &id))).await;
            assert_eq!(*status(&waits), "waiting");
            let busy = sdk.succeed(&site.client, "call", call("a", says("more", &id))).await;
            assert_eq!(busy["result"]["isError"], true, "{busy:#}");
        }
    }
}

#[tokio::test]
async fn a_call_goes_on_after_its_node_was_killed_in_mid_turn() {
    let site = Site::new(ABIDE);
    let mut node = site.start().await;
    site.client.define("a", &slow()).await;
    for sdk in SDKS {
        for era in ERAS {
            let id = own(sdk, era);
            let call = |message: &str| json!({"era": era, "arguments": says(message, &id)});
            let cut = async {
                site.client.wait_for(&id, "the turn to begin", has_begun).await;
                node.kill().await;
            };
            let (told, ()) = tokio::join!(sdk.run(&site.client, "call", call("go")), cut);
            assert!(!told["error"].is_null(), "the connection is cut: {told:#}");
            node = site.start().await;
            let told = sdk.succeed(&site.client, "call", call("")).await;
            assert_eq!(text(&told), WHOLE);
            let journal = site.client.wait_until_settled(&id, 1).await;
            assert_eq!(journal.of("user_msg").count(), 1);
        }
    }
}

#[tokio::test]
async fn a_call_goes_on_where_its_node_has_moved_to() {
    let site = Site::new(ABIDE).with(&["--drain-timeout", "100ms"]);
    let mut node = site.start().await;
    site.client.define("a", &slow()).await;
    for sdk in SDKS {
        let id = own(sdk, "moves");
        let call = |message: &str| json!({"asks": false, "arguments": says(message, &id)});
        let leaves = async {
            site.client.wait_for(&id, "the turn to begin", has_begun).await;
            node.terminate();
        };
        let (told, ()) = tokio::join!(sdk.run(&site.client, "call", call("go")), leaves);
        // The client for Python lists the tools after a call, and the node is gone by then.
        if sdk == McpSdk::Node {
            let is_error = &told["result"]["isError"];
            assert_eq!((status(&told), is_error), (&json!("running"), &json!(false)), "{told:#}");
        }
        assert_eq!(node.wait_for_exit().await.code(), Some(0));
        node = site.start().await;
        assert_eq!(text(&sdk.succeed(&site.client, "call", call("")).await), WHOLE);
        let journal = site.client.wait_until_settled(&id, 1).await;
        assert_eq!(journal.of("user_msg").count(), 1);
    }
}

#[tokio::test]
async fn a_question_is_answered_after_its_node_was_killed_while_the_call_waited() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let mut node = site.start().await;
    site.client.define("a", &gated(&tools, &["mail"])).await;
    for (number, sdk) in SDKS.into_iter().enumerate() {
        let arguments = says("go", &own(sdk, "c"));
        let asked = sdk.succeed(&site.client, "ask", json!({"arguments": arguments})).await;
        node.kill().await;
        node = site.start().await;
        let answer = goes_on(&asked, &arguments, &approved(true));
        let told = sdk.succeed(&site.client, "answer", answer.clone()).await;
        assert_eq!(text(&told), "Done.", "{told:#}");
        // A repeat of the answer runs nothing again.
        assert_eq!(text(&sdk.succeed(&site.client, "answer", answer).await), "Done.");
        assert_eq!(tools.requests.all().len(), number + 1);
    }
}

#[tokio::test]
async fn calls_go_on_at_another_node_of_a_cluster() {
    for sdk in SDKS {
        let tools = ToolServer::start().await;
        let mut cluster = Plan::new(ABIDE).start(Redis::start().await, 3).await;
        cluster.client(0).define("slow", &slow()).await;
        cluster.client(0).define("a", &gated(&tools, &["mail"])).await;
        let waits = says("go", "waits");
        let asked = sdk.succeed(cluster.client(0), "ask", json!({"arguments": waits})).await;
        let runs = |message: &str| json!({"tool": "slow", "arguments": says(message, "runs")});
        let first = cluster.client(0).clone();
        let begun = async {
            let journals = cluster.client(1);
            journals.wait_for("runs", "the turn to begin", has_begun).await;
        };
        let call = sdk.run(&first, "call", runs("go"));
        tokio::pin!(call);
        tokio::select! {
            told = &mut call => panic!("it ended before its node did: {told:#}"),
            () = begun => {}
        }
        cluster.kill(0).await;
        let told = call.await;
        assert!(!told["error"].is_null(), "the connection is cut: {told:#}");
        let told = sdk.succeed(cluster.client(1), "call", runs("")).await;
        assert_eq!(text(&told), WHOLE);
        // The node that answers has never seen the call.
        let answer = goes_on(&asked, &waits, &approved(true));
        let told = sdk.succeed(cluster.client(2), "answer", answer).await;
        assert_eq!(text(&told), "Done.", "{told:#}");
        assert_eq!(tools.requests.all().len(), 1);
    }
}

#[tokio::test]
async fn each_client_is_refused_without_a_credential_and_approves_only_what_it_may() {
    let tools = ToolServer::start().await;
    let by = json!({"approval": {"by": {"services": true, "not": []}}});
    let mut agent = gated(&tools, &["mail"]);
    agent["tools"][0]["approval"] = by["approval"].clone();
    let keys = [line("ada", &["user"]), line("ann", &["user", "approver"])];
    let site = guarded(Site::new(ABIDE), &keys, &[("a", agent)]);
    let _node = site.start().await;
    for sdk in SDKS {
        for credential in [None, Some("nonsense")] {
            let told = sdk.run(&site.client, "tools", json!({"credential": credential})).await;
            assert!(!told["error"].is_null(), "{told:#}");
        }
        let call = |id: &str| {
            json!({"credential": key(id), "approval": {"approved": true},
                "arguments": says("go", &own(sdk, id))})
        };
        let told = sdk.succeed(&site.client, "call", call("ada")).await;
        assert_eq!((status(&told), &told["asked"]), (&json!("waiting"), &json!([])), "{told:#}");
        let told = sdk.succeed(&site.client, "call", call("ann")).await;
        assert_eq!((text(&told), told["asked"].as_array().unwrap().len()), ("Done.", 1));
    }
}
