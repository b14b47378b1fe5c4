//! Operators repair conversations through any node, and every promise is kept.

use abide_tests::cluster::Cluster;
use abide_tests::deadline::poll;
use abide_tests::tool_server::ToolServer;
use serde_json::{Value, json};

use crate::agents::{agent, calls_once, http, human};
use crate::cluster_state::{admin, cluster, wait_until_connected};

/// Starts three nodes; on the first, `once` runs a tool that must not run twice, `holds` runs
/// another tool, `asks` waits for a person, and `later` waits to retry its model.
async fn start_busy_cluster(tools: &ToolServer) -> Cluster {
    let cluster = cluster(3, &[]).await;
    wait_until_connected(&cluster).await;
    let first = cluster.client(0);
    let fails = json!({"error": {"message": "rate limit", "retry": true}});
    let mut later = agent(json!({"provider": "scripted", "script": [fails]}), vec![]);
    later["retry"] = json!({"max_attempts": 2, "base": "10m", "max": "10m"});
    let once = http("run", tools, "/hold", json!({"on_interrupt": "fail"}));
    for (name, definition) in [
        ("once", calls_once(vec![once])),
        ("holds", calls_once(vec![http("run", tools, "/hold", json!({}))])),
        ("asks", calls_once(vec![human("ask")])),
        ("later", later),
    ] {
        first.define(name, &definition).await;
        first.send_message(name, name, "go").await;
    }
    tools.requests.nth(2).await;
    first.wait_for_pending("asks", "ask", "elicitation").await;
    cluster
}

/// Waits until a conversation's diagnosis says this. Returns the verbs that it offers.
async fn operators_can(cluster: &Cluster, id: &str, waits_for: &str) -> Value {
    poll(&format!("{id} to wait for {waits_for}"), async || {
        let why = admin(cluster.client(2), &format!("/admin/actors/{id}")).await["why"].take();
        let waits = why["waits_for"].as_str()?.contains(waits_for);
        waits.then(|| why["operators_can"].clone())
    })
    .await
}

#[tokio::test]
async fn every_verb_works_through_a_node_that_is_not_the_holder() {
    let tools = ToolServer::start().await;
    let cluster = start_busy_cluster(&tools).await;
    let [other, third] = [cluster.client(1), cluster.client(2)];

    let retries = operators_can(&cluster, "later", "another attempt at model step 1").await;
    assert_eq!(retries[0], "POST /admin/actors/later/retry");
    let retried = other.repair("later", "retry", None).await.expect(200);
    assert!(retried["retried"][0].as_str().unwrap().starts_with("model step 1 of "), "{retried}");
    assert_eq!(third.wait_until_settled("later", 1).await.outcomes(), ["failed"]);

    let fails = operators_can(&cluster, "asks", "an answer to ask").await;
    assert_eq!(fails[0], "POST /admin/actors/asks/calls/ask/fail");
    let ann = other.clone().named("ann");
    let error = json!({"error": "nobody is there"});
    let failed = ann.repair("asks", "calls/ask/fail", Some(&error)).await.expect(200);
    assert_eq!(failed["status"], "failed");
    third.repair("asks", "calls/ask/fail", None).await.expect_problem(409, "call-not-open");
    let journal = third.wait_until_settled("asks", 1).await;
    assert_eq!(journal.outcomes(), ["completed"]);
    assert_eq!(journal.result("ask")["error"], "nobody is there");
    let resolutions: Vec<&Value> = journal.of("resolution").collect();
    assert_eq!((resolutions.len(), &resolutions[0]["data"]["by"]), (1, &json!("ann")));
    assert!(cluster.log(1).contains("ann"), "the operator is not in the log");

    let cancelled = other.repair("once", "cancel", None).await.expect(200);
    assert_eq!(cancelled, json!({"cancelled": true}));
    let again = third.repair("once", "cancel", None).await.expect(200);
    assert_eq!(again, json!({"cancelled": false}));
    for verb in ["retry", "calls/run/fail", "cancel", "move", "release", "kill"] {
        other.repair("nobody", verb, None).await.expect_problem(404, "not-found");
    }
    tools.release();
    for id in ["once", "holds"] {
        third.wait_until_settled(id, 1).await;
    }
    cluster.evidence(&[&tools]).await.assert_no_violations();
}

#[tokio::test]
async fn a_conversation_moves_with_its_stream_and_is_released() {
    let tools = ToolServer::start().await;
    let cluster = start_busy_cluster(&tools).await;
    let [other, third] = [cluster.client(1), cluster.client(2)];
    let mut frames = third.events("holds", None).await;

    let to = json!({"node": cluster.name(1)});
    let moved = third.repair("holds", "move", Some(&to)).await.expect(200);
    assert_eq!(moved, to);
    tools.requests.nth(3).await;
    third.repair("holds", "move", Some(&to)).await.expect_problem(409, "conflict");
    let nowhere = json!({"node": "nowhere"});
    third.repair("holds", "move", Some(&nowhere)).await.expect_problem(404, "not-found");
    let wrong = third.repair("holds", "move", Some(&json!({"to": "x"}))).await;
    wrong.expect_problem(422, "invalid-request");

    for verb in ["move", "release"] {
        other.repair("once", verb, None).await.expect_problem(409, "conflict");
    }
    let forced = other.repair("once", "release", Some(&json!({"force": true}))).await;
    assert_eq!(forced.expect(200), json!({"released": true}));
    let journal = third.wait_until_settled("once", 1).await;
    assert_eq!(journal.result("run")["error_type"], "INTERRUPTED");

    let released = other.repair("asks", "release", None).await.expect(200);
    assert_eq!(released, json!({"released": true}));
    assert_eq!(third.snapshot("asks").await["holder"], Value::Null);
    third.resolve("asks", "ask", json!({"result": 1})).await.expect(200);
    assert_eq!(third.snapshot("asks").await["holder"]["node"], cluster.name(2));
    tools.release();
    frames.wait_for("turn_completed").await;
    let journal = other.wait_until_settled("holds", 1).await;
    assert_eq!(journal.result("run")["result"]["attempt"], 2);
    other.repair("later", "retry", None).await.expect(200);
    third.wait_until_settled("later", 1).await;
    cluster.evidence(&[&tools]).await.assert_no_violations();
}
