//! Metrics, traces and logs of a node, as their readers see them.

mod planted_secrets;

use std::collections::BTreeMap;

use abide_tests::collector::{Collector, Span};
use abide_tests::deadline::poll;
use abide_tests::node::Site;
use abide_tests::tool_server::ToolServer;
use reqwest::Method;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{agent, calls_once, http};

/// The metrics of a node, by their written names and labels.
pub(crate) async fn metrics(site: &Site) -> BTreeMap<String, f64> {
    let text = site.client.admin(Method::GET, "/metrics").await.expect(200);
    let text = text.as_str().unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let pair = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    lines.map(pair).collect()
}

/// The metrics once they contain `name`: a commit can be read before its actor has counted it.
async fn metrics_with(site: &Site, name: &str) -> BTreeMap<String, f64> {
    poll(name, async || Some(metrics(site).await).filter(|counts| counts.contains_key(name))).await
}

/// An agent whose one call needs an approval and then runs on the tool server.
fn gated(tools: &ToolServer) -> Value {
    calls_once(vec![http("send", tools, "/answer", json!({"approval": "requires_approval"}))])
}

fn says_done() -> Value {
    agent(json!({"provider": "scripted", "script": [{"text": "Done."}]}), vec![])
}

fn one<'s>(spans: &'s [Span], name: &str) -> &'s Span {
    let found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
    assert_eq!(found.len(), 1, "{name} in {spans:#?}");
    found[0]
}

#[tokio::test]
async fn a_turn_is_one_trace_across_an_approval_and_a_kill() {
    let (collector, tools) = (Collector::start().await, ToolServer::start().await);
    let site = Site::new(ABIDE).with(&["--otlp", &collector.url()]);
    let node = site.start().await;
    site.client.define("a", &gated(&tools)).await;
    let sender = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let url = format!("http://{}/v1/conversations/c/messages", site.client.public_address());
    let message = reqwest::Client::new().post(url).header("traceparent", sender);
    let message = message.json(&json!({"text": "go", "agent": "a"}));
    assert_eq!(message.send().await.unwrap().status(), 202);
    site.client.wait_for_pending("c", "send", "approval").await;
    collector.wait_for("the first step", |spans| spans.len() >= 2).await;
    node.kill().await;

    let node = site.start().await;
    site.client.resolve("c", "send", json!({"approved": true})).await.expect(200);
    site.client.wait_until_settled("c", 1).await;
    let root = |spans: &[Span]| spans.iter().any(|span| span.name == "invoke_agent a");
    let spans = collector.wait_for("the root", root).await;
    let root = one(&spans, "invoke_agent a");
    assert_eq!((root.parent.as_str(), root.get("abide.outcome")), ("", "completed"));
    assert_eq!(root.get("gen_ai.conversation.id"), "c");
    let (of_turn, others): (Vec<_>, Vec<_>) =
        spans.iter().partition(|span| span.trace == root.trace);
    for span in of_turn.iter().filter(|span| span.name != root.name) {
        assert_eq!(span.parent, root.id, "{span:#?}");
    }
    let mut names: Vec<&str> = of_turn.iter().map(|span| span.name.as_str()).collect();
    names.sort();
    let expected =
        ["await_approval send", "chat", "chat", "execute_tool send", "invoke_agent a", "revive"];
    assert_eq!(names, expected);

    let (waited, revived) = (one(&spans, "await_approval send"), one(&spans, "revive"));
    let ran = one(&spans, "execute_tool send");
    let link = vec![(waited.trace.clone(), waited.id.clone())];
    assert_eq!((&revived.links, &ran.links), (&link, &link), "what goes on is linked");
    assert_eq!(waited.get("abide.outcome"), "resolved");
    let epochs: Vec<&str> = [one(&spans, "revive"), ran].map(|span| span.get("abide.epoch")).into();
    assert_eq!(epochs, [root.get("abide.epoch"); 2], "the holding in which it ended");
    let request = tools.requests.nth(1).await;
    assert_eq!(request.header("traceparent"), format!("00-{}-{}-01", ran.trace, ran.id));

    let [request] = others[..] else { panic!("{others:#?}") };
    assert_eq!(request.name, "POST /v1/conversations/{id}/messages");
    assert_eq!(request.trace, "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(request.parent, "b7ad6b7169203331");
    assert_eq!(request.links, [(root.trace.clone(), root.id.clone())]);
    assert_eq!(request.resource["service.instance.id"], "test");
    drop(node);
}

#[tokio::test]
async fn what_waits_to_be_exported_is_exported_when_the_node_ends() {
    let collector = Collector::start().await;
    let site = Site::new(ABIDE).with(&["--otlp", &collector.url()]);
    let mut node = site.start().await;
    site.client.define("a", &says_done()).await;
    site.client.send_message("c", "a", "go").await;
    site.client.wait_until_settled("c", 1).await;
    node.terminate();
    assert!(node.wait_for_exit().await.success());
    one(&collector.spans(), "invoke_agent a");
}

#[tokio::test]
async fn a_collector_that_is_away_costs_spans_and_one_line() {
    // Port 1, on which nothing listens.
    let site = Site::new(ABIDE).with(&["--otlp", "http://127.0.0.1:1"]);
    let _node = site.start().await;
    site.client.define("a", &says_done()).await;
    for turn in 1..=3 {
        site.client.send_message("c", "a", "go").await;
        site.client.wait_until_settled("c", turn).await;
        let lost = r#"abide_spans_dropped_total{cause="export"}"#;
        let turns = 2.0 * turn as f64;
        poll("the lost spans", async || {
            metrics(&site).await.get(lost).filter(|lost| **lost >= turns).copied()
        })
        .await;
    }
    let lines = site.log().lines().filter(|line| line.contains("spans lost")).count();
    assert_eq!(lines, 1, "{}", site.log());
}

#[tokio::test]
async fn an_endpoint_that_takes_no_traces_is_refused_and_not_repeated() {
    let site = Site::new(ABIDE);
    for endpoint in ["collector-s3cr3t", "grpc://u:collector-s3cr3t@127.0.0.1"] {
        let output = site.run(&["--store", "memory", "--otlp", endpoint]).await;
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
        assert!(stderr.contains("--otlp") && !stderr.contains("s3cr3t"), "{stderr}");
    }
}

#[tokio::test]
async fn a_turn_is_counted_once_across_a_kill() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let node = site.start().await;
    site.client.define("a", &gated(&tools)).await;
    site.client.send_message("c", "a", "go").await;
    site.client.wait_for_pending("c", "send", "approval").await;
    let step = r#"abide_steps_total{outcome="complete"}"#;
    let turn = r#"abide_turns_total{outcome="completed"}"#;
    let call = r#"abide_calls_total{executor="server",outcome="ok"}"#;
    let opened = r#"abide_suspensions_total{kind="approval"}"#;
    let counts = metrics_with(&site, opened).await;
    assert_eq!([step, opened].map(|name| counts[name]), [1.0; 2]);
    assert!(!counts.contains_key(turn) && !counts.contains_key(call), "{counts:#?}");
    node.kill().await;

    let _node = site.start().await;
    // The node is its own cluster, so it counts the open suspensions.
    let waiting = r#"abide_open_suspensions{kind="approval"}"#;
    poll("the open suspension", async || {
        metrics(&site).await.get(waiting).filter(|open| **open == 1.0).copied()
    })
    .await;
    site.client.resolve("c", "send", json!({"approved": true})).await.expect(200);
    site.client.wait_until_settled("c", 1).await;
    let counts = metrics_with(&site, turn).await;
    assert_eq!([step, turn, call].map(|name| counts[name]), [1.0; 3], "{counts:#?}");
    assert!(!counts.contains_key(opened), "a replay opens nothing: {counts:#?}");
    let waited = r#"abide_suspension_seconds_count{kind="approval",outcome="resolved"}"#;
    let route = "/v1/conversations/{id}/calls/{call_id}/resolution";
    let requests = format!(r#"abide_requests_total{{method="POST",route="{route}",status="200"}}"#);
    for once in [waited, "abide_resolution_seconds_count", "abide_claims_total", &requests] {
        assert_eq!(counts[once], 1.0, "{once}");
    }
    assert!(counts["abide_commit_seconds_count"] >= 3.0, "{counts:#?}");
}

#[tokio::test]
async fn every_line_about_a_run_says_of_which_conversation_turn_call_node_and_epoch() {
    let tools = ToolServer::start().await;
    let unset = json!({"run": {"http": {"url": tools.url("/answer"),
        "signing_secret_env": "NOBODY_SET_THIS"}}});
    let agent = calls_once(vec![crate::agents::tool("send", unset)]);
    let site = Site::new(ABIDE).with(&["--log-format", "json"]);
    let _node = site.start().await;
    site.client.define("a", &agent).await;
    let turn = site.client.send_message("c", "a", "go").await["turn_id"].clone();
    site.client.wait_until_settled("c", 1).await;
    let log = site.log();
    let lines: Vec<Value> =
        log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let line = lines.iter().find(|line| line["variable"] == "NOBODY_SET_THIS").expect(&log);
    assert_eq!(
        (&line["conversation"], &line["turn"], &line["call"], &line["node"], &line["epoch"]),
        (&json!("c"), &turn, &json!("send"), &json!("test"), &json!(1)),
        "{line:#}"
    );
    assert_eq!(
        (&line["level"], &line["target"]),
        (&json!("ERROR"), &json!("abide_actors::signed_post"))
    );
}
