//! The official client of AG-UI over a node: what it has after each run, and when nodes die.

use abide_tests::cluster::Plan;
use abide_tests::node::Site;
use abide_tests::redis::Redis;
use abide_tests::tool_server::ToolServer;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::ag_ui_agent::{AgUiAgent, VERSIONS, last_event, last_text, result};
use crate::agents::{calls_once, client, gated_client, http, tool};
use crate::ai_sdk::scripted;
use crate::authentication::{by, guarded, key, line};

const WHOLE: &str = "one two three four five six seven eight nine ten eleven twelve";

/// An agent that writes `WHOLE`, slowly.
fn slow() -> Value {
    scripted(json!([{"text": WHOLE, "delay": "100ms"}]), vec![])
}

fn gated(name: &str, tools: &ToolServer) -> Value {
    http(name, tools, "/answer", json!({"approval": "requires_approval"}))
}

async fn open(version: &str, address: &str, thread: &str, tools: &[&str]) -> AgUiAgent {
    AgUiAgent::open(version, address, ("a", thread), tools, None).await
}

fn answer(interrupt: &str, payload: Value) -> Value {
    json!({"interruptId": interrupt, "status": "resolved", "payload": payload})
}

fn interrupts(report: &Value) -> Vec<String> {
    let all = report["interrupts"].as_array().unwrap();
    all.iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_client_talks_for_two_turns_and_a_fresh_one_sees_them() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    let script = json!([{"thinking": "Let me see.", "text": "You said {{ user }}."}]);
    site.client.define("a", &scripted(script, vec![])).await;
    let address = site.client.public_address();
    for version in VERSIONS {
        let mut agent = open(version, &address, version, &[]).await;
        agent.say("m-1", "hello").await;
        let report = agent.say("m-2", "again").await;
        assert_eq!(
            (last_text(&report), &report["failed"]),
            ("You said again.".into(), &Value::Null)
        );
        let talk = |report: &Value| -> Vec<Value> {
            let all = report["messages"].as_array().unwrap().iter();
            all.filter(|it| it["role"] != "reasoning").cloned().collect()
        };
        assert_eq!(talk(&report).len(), 4, "{report:#}");
        let mut fresh = open(version, &address, version, &[]).await;
        let seen = fresh.run(json!({})).await;
        assert_eq!(talk(&seen), talk(&report));
        // The same message again tells its turn again, once.
        let again = agent.run(json!({})).await;
        assert_eq!(talk(&again), talk(&report));
        assert_eq!(site.client.journal(version).await.of("user_msg").count(), 2);
    }
}

#[tokio::test]
async fn an_approval_with_edits_runs_with_them() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &calls_once(vec![gated("mail", &tools)])).await;
    for version in VERSIONS {
        let mut agent = open(version, &site.client.public_address(), version, &[]).await;
        let asked = agent.say("m-1", "go").await;
        assert_eq!(interrupts(&asked), ["mail/1"], "{asked:#}");
        let refused = agent.say("m-2", "and?").await;
        assert!(refused["failed"].as_str().unwrap().contains("pending interrupt"), "{refused:#}");
        let edited = json!({"approved": true, "editedArgs": {"n": 7}});
        let done = agent.run(json!({"resume": [answer("mail/1", edited)]})).await;
        assert_eq!(done["failed"], Value::Null, "{done:#}");
        assert!(result(&done, "mail")["content"].as_str().unwrap().contains("\"n\":7"), "{done:#}");
        // The message that came with the answer had its turn after it, in the same run.
        assert_eq!(interrupts(&done), ["mail~2/1"], "{done:#}");
        assert_eq!(site.client.journal(version).await.of("user_msg").count(), 2);
    }
}

#[tokio::test]
async fn two_interrupts_are_denied_and_cancelled_in_one_run() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &calls_once(vec![gated("x", &tools), gated("y", &tools)])).await;
    for version in VERSIONS {
        let mut agent = open(version, &site.client.public_address(), version, &[]).await;
        let asked = agent.say("m-1", "go").await;
        assert_eq!(interrupts(&asked), ["x/1", "y/1"]);
        let resume = json!([answer("x/1", json!({"approved": false, "reason": "no"})),
            {"interruptId": "y/1", "status": "cancelled"}]);
        let done = agent.run(json!({"resume": resume})).await;
        assert_eq!((last_text(&done), &done["failed"]), ("Done.".into(), &Value::Null), "{done:#}");
        assert!(result(&done, "x").is_object() && result(&done, "y").is_object(), "{done:#}");
        assert!(tools.requests.all().is_empty());
    }
}

#[tokio::test]
async fn a_wrong_answer_to_a_question_leaves_it_open() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    let schema = json!({"type": "object", "properties": {"seat": {"enum": ["window", "aisle"]}}});
    let question = json!({"executor": "human", "result_schema": schema});
    site.client.define("a", &calls_once(vec![tool("seat", question)])).await;
    for version in VERSIONS {
        let mut agent = open(version, &site.client.public_address(), version, &[]).await;
        let asked = agent.say("m-1", "go").await;
        assert_eq!(asked["interrupts"][0]["responseSchema"], schema, "{asked:#}");
        let wrong = json!({"resume": [answer("seat/1", json!({"seat": "roof"}))]});
        let refused = agent.run(wrong).await;
        assert_eq!(last_event(&refused)["code"], "invalid_resume", "{refused:#}");
        site.client.wait_for_pending(version, "seat", "elicitation").await;
        let right = json!({"resume": [answer("seat/1", json!({"seat": "aisle"}))]});
        let done = agent.run(right).await;
        assert_eq!(last_text(&done), "Done.", "{done:#}");
    }
}

#[tokio::test]
async fn a_client_executes_its_calls_and_a_gated_one_only_after_its_approval() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &calls_once(vec![client("locate"), gated_client("pay")])).await;
    for version in VERSIONS {
        let tools = ["locate", "pay"];
        let mut agent = open(version, &site.client.public_address(), version, &tools).await;
        let first = agent.say("m-1", "go").await;
        let calls = |report: &Value| -> Vec<Value> {
            let events = report["events"].as_array().unwrap().iter();
            let starts = events.filter(|it| it["type"] == "TOOL_CALL_START");
            starts.map(|it| it["toolCallId"].clone()).collect()
        };
        assert_eq!(calls(&first), ["locate"], "what is not approved is not told: {first:#}");
        assert!(!first["messages"].to_string().contains("\"pay\""), "{first:#}");
        agent.command("result", json!({"call": "locate", "content": "{\"at\":1}"})).await;
        let asked = agent.run(json!({})).await;
        assert_eq!(interrupts(&asked), ["pay/1"], "{asked:#}");
        assert!(!asked["messages"].to_string().contains("\"pay\""), "{asked:#}");
        let yes = json!({"resume": [answer("pay/1", json!({"approved": true}))]});
        let approved = agent.run(yes).await;
        assert_eq!(calls(&approved), ["pay"], "{approved:#}");
        agent.command("result", json!({"call": "pay", "content": "paid"})).await;
        let done = agent.run(json!({})).await;
        assert_eq!((last_text(&done), &done["failed"]), ("Done.".into(), &Value::Null), "{done:#}");
        let journal = site.client.wait_until_settled(version, 1).await;
        assert_eq!(journal.result("locate")["result"], json!({"at": 1}));
        assert_eq!(journal.result("pay")["result"], "paid");
    }
}

#[tokio::test]
async fn a_late_answer_shows_what_became_of_the_call() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &calls_once(vec![gated("mail", &tools)])).await;
    for version in VERSIONS {
        let mut agent = open(version, &site.client.public_address(), version, &[]).await;
        agent.say("m-1", "go").await;
        site.client.resolve(version, "mail", json!({"approved": false})).await.expect(200);
        site.client.wait_until_settled(version, 1).await;
        let late = json!({"resume": [answer("mail/1", json!({"approved": true}))]});
        let told = agent.run(late).await;
        assert_eq!((last_text(&told), &told["failed"]), ("Done.".into(), &Value::Null), "{told:#}");
        assert!(result(&told, "mail").is_object());
        assert!(tools.requests.all().is_empty());
    }
}

#[tokio::test]
async fn each_end_of_a_turn_reaches_the_client() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    let error = json!([{"text": "I try. ", "error": {"message": "no model"}}]);
    site.client.define("fails", &scripted(error, vec![])).await;
    let mut halts = calls_once(vec![http("look", &tools, "/answer", json!({}))]);
    halts["max_steps"] = json!(1);
    site.client.define("halts", &halts).await;
    for version in VERSIONS {
        for (agent, expected) in [("fails", "no model"), ("halts", "halted: max_steps")] {
            let id = format!("{version}-{agent}");
            let address = site.client.public_address();
            let mut client = AgUiAgent::open(version, &address, (agent, &id), &[], None).await;
            let report = client.say("m-1", "go").await;
            let last = last_event(&report);
            assert_eq!(last["type"], "RUN_ERROR", "{report:#}");
            assert!(last["message"].as_str().unwrap().contains(expected), "{last}");
        }
    }
}

#[tokio::test]
async fn interrupts_are_for_those_who_may_answer_them() {
    let tools = ToolServer::start().await;
    let by_services = json!({"approval": {"by": {"services": true}}});
    let mail = http("mail", &tools, "/answer", by_services);
    let keys = [line("ada", &["user"]), line("ann", &["approver"])];
    let site = guarded(Site::new(ABIDE), &keys, &[("a", calls_once(vec![mail]))]);
    let _node = site.start().await;
    for version in VERSIONS {
        let (ada, address) = (key("ada"), site.client.public_address());
        let mut agent = AgUiAgent::open(version, &address, ("a", version), &[], Some(&ada)).await;
        agent.command("say", json!({"id": "m-1", "text": "go"})).await;
        agent.begin("run", json!({})).await;
        agent.until_call().await;
        let forged = json!({"threadId": version, "runId": "r", "messages": [],
            "resume": [answer("mail/1", json!({"approved": true}))]});
        let refused = by(&site, "ada").post("/v1/agents/a/ag-ui", &forged).await;
        refused.expect_problem(403, "approval-forbidden");
        by(&site, "ann").resolve(version, "mail", json!({"approved": true})).await.expect(200);
        let done = agent.done("run").await;
        assert_eq!((last_text(&done), &done["failed"]), ("Done.".into(), &Value::Null), "{done:#}");
        assert_eq!(interrupts(&done), [""; 0]);
    }
}

/// Runs until the message streams.
async fn stream(agent: &mut AgUiAgent) {
    agent.command("say", json!({"id": "m-1", "text": "go"})).await;
    agent.begin("run", json!({})).await;
    while !agent.report().await["event"]["delta"].as_str().unwrap_or_default().contains("two") {}
}

#[tokio::test]
async fn the_same_run_goes_on_after_its_node_was_killed_in_mid_message_or_while_it_waited() {
    let tools = ToolServer::start().await;
    for version in VERSIONS {
        let site = Site::new(ABIDE);
        let node = site.start().await;
        site.client.define("a", &slow()).await;
        site.client.define("gated", &calls_once(vec![gated("mail", &tools)])).await;
        let address = site.client.public_address();
        let mut waiting = AgUiAgent::open(version, &address, ("gated", "w"), &[], None).await;
        waiting.say("m-1", "go").await;
        let mut agent = open(version, &address, "c", &[]).await;
        stream(&mut agent).await;
        node.kill().await;
        assert!(agent.done("run").await["failed"].is_string());
        let _node = site.start().await;
        let address = site.client.public_address();
        agent.aim(&address).await;
        let whole = agent.run(json!({})).await;
        assert_eq!(
            (last_text(&whole), &whole["failed"]),
            (WHOLE.into(), &Value::Null),
            "{whole:#}"
        );
        assert_eq!(whole["messages"].as_array().unwrap().len(), 2, "{whole:#}");
        waiting.aim(&address).await;
        let yes = json!({"resume": [answer("mail/1", json!({"approved": true}))]});
        let done = waiting.run(yes).await;
        assert_eq!((last_text(&done), &done["failed"]), ("Done.".into(), &Value::Null), "{done:#}");
    }
}

#[tokio::test]
async fn the_same_run_goes_on_at_another_node_of_a_cluster() {
    let tools = ToolServer::start().await;
    let mut cluster = Plan::new(ABIDE).start(Redis::start().await, 3).await;
    cluster.client(0).define("a", &slow()).await;
    cluster.client(0).define("gated", &calls_once(vec![gated("mail", &tools)])).await;
    for (version, (first, second)) in VERSIONS.into_iter().zip([(0, 1), (1, 2)]) {
        let address = cluster.client(first).public_address();
        let waits = format!("waits-{version}");
        let mut waiting = AgUiAgent::open(version, &address, ("gated", &waits), &[], None).await;
        waiting.say("m-1", "go").await;
        let mut agent = open(version, &address, version, &[]).await;
        stream(&mut agent).await;
        cluster.kill(first).await;
        assert!(agent.done("run").await["failed"].is_string());
        let address = cluster.client(second).public_address();
        agent.aim(&address).await;
        let whole = agent.run(json!({})).await;
        assert_eq!(
            (last_text(&whole), &whole["failed"]),
            (WHOLE.into(), &Value::Null),
            "{whole:#}"
        );
        waiting.aim(&address).await;
        let yes = json!({"resume": [answer("mail/1", json!({"approved": true}))]});
        let done = waiting.run(yes).await;
        assert_eq!((last_text(&done), &done["failed"]), ("Done.".into(), &Value::Null), "{done:#}");
    }
}
