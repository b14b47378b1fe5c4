//! Tests with servers that crash, come back, or never existed.

use abide_conversation::Tenant;
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use serde_json::json;
use tokio::time::{Instant, advance, pause, resume};

use super::rig::{Age, HttpServer, Rig, stdio, until_gone};
use crate::tools::mcp::session::IDLE_CHECK_INTERVAL;
use crate::tools::mcp::session::IDLE_TIMEOUT;

#[tokio::test]
async fn a_server_that_dies_in_mid_call_is_started_again_for_the_next() {
    let rig = Rig::new(stdio(Age::New));
    let first = rig.text("pid", json!({})).await;
    assert_eq!(rig.error("die", json!({})).await, "the connection to the MCP server docs broke");
    let second = rig.text("pid", json!({})).await;
    assert_ne!(first, second);
    until_gone(&first).await;
}

#[tokio::test]
async fn a_server_that_is_not_there_costs_a_step_nothing_but_its_tools() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for entry in [
        json!({"url": format!("http://{free}/mcp?token=hidden")}),
        json!({"command": "/no/such/program"}),
        json!({"url": format!("http://{free}/mcp"), "headers_env": {"x-a": "MCP_NOT_SET"}}),
    ] {
        let rig = Rig::new(entry);
        assert_eq!(rig.names().await, Vec::<String>::new());
        // The second step contacts no server.
        let known = rig.mcp.cached_listings(&Tenant::default(), &rig.definition);
        assert!(known.is_some_and(|known| known.is_empty()));
    }
}

#[tokio::test]
async fn the_last_listing_stays_in_use_while_a_server_is_away_and_a_call_says_so() {
    let server = HttpServer::start(Age::New);
    let port = server.port;
    let rig = Rig::new(server.entry());
    let before = rig.names().await;
    assert!(!before.is_empty());
    drop(server);
    let error = rig.error("echo", json!({})).await;
    assert!(!error.contains("127.0.0.1"), "{error}");
    assert_eq!(rig.names().await, before);
    let _again = HttpServer::start_on(Age::New, port);
    let deadline = Instant::now() + Duration::from_secs(20);
    while rig.call("echo", json!({"text": "back"})).await
        != abide_conversation::message::Outcome::Ok(json!("back"))
    {
        assert!(Instant::now() < deadline, "the server is not used again");
    }
}

#[tokio::test]
async fn a_session_that_an_older_server_lost_is_made_anew() {
    let server = HttpServer::start(Age::Old);
    let port = server.port;
    let rig = Rig::new(server.entry());
    assert_eq!(rig.text("echo", json!({"text": "one"})).await, "one");
    drop(server);
    let _again = HttpServer::start_on(Age::Old, port);
    // A call whose session was lost is not repeated automatically.
    rig.error("echo", json!({"text": "two"})).await;
    assert_eq!(rig.text("echo", json!({"text": "three"})).await, "three");
}

#[tokio::test]
async fn a_process_ends_with_the_pool_and_when_nobody_used_it_for_long() {
    let rig = Rig::new(stdio(Age::New));
    let process = rig.text("pid", json!({})).await;
    drop(rig);
    until_gone(&process).await;
    let rig = Rig::new(stdio(Age::New));
    let process = rig.text("pid", json!({})).await;
    pause();
    advance(IDLE_TIMEOUT + IDLE_CHECK_INTERVAL).await;
    resume();
    until_gone(&process).await;
    assert_ne!(rig.text("pid", json!({})).await, process);
}

#[tokio::test]
async fn a_process_knows_only_the_variables_that_its_definition_names() {
    let rig = Rig::new(stdio(Age::New));
    let environment = rig.json("env", json!({})).await;
    assert_eq!(environment["MCP_TEST_NAMED"], "set");
    for name in environment.as_object().unwrap().keys() {
        let known = ["PATH", "HOME", "LANG", "TZ", "TMPDIR", "TERM", "MCP_TEST_NAMED"];
        assert!(known.contains(&name.as_str()) || name.starts_with("LC_"), "{name}");
    }
}

/// Model steps are asked without its tools, which somebody should be told.
#[tokio::test]
async fn a_server_that_speaks_only_http_with_sse_is_named_with_the_reason() {
    let stream = || async {
        let endpoint = "event: endpoint\ndata: /messages?session=1\n\n";
        ([(CONTENT_TYPE, "text/event-stream")], endpoint)
    };
    let app = axum::Router::new().route("/sse", axum::routing::get(stream));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/sse?token=hidden", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let rig = Rig::new(json!({"url": url}));
    assert_eq!(rig.names().await, Vec::<String>::new());
    let problems = rig.mcp.problems();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("mcp: docs: it speaks only HTTP+SSE"), "{problems:?}");
}

#[tokio::test]
async fn a_server_that_is_away_is_named_without_the_secrets_of_its_url() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let rig = Rig::new(json!({"url": format!("http://{free}/mcp?token=hidden")}));
    assert_eq!(rig.mcp.problems(), Vec::<String>::new());
    rig.names().await;
    assert_eq!(rig.mcp.problems(), ["mcp: docs: it cannot be connected to"]);
}
