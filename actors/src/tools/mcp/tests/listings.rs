//! Tests of which of a server's tools an agent has.

use abide_conversation::Tenant;
use serde_json::json;

use super::rig::{Age, HttpServer, Rig, everything, stdio};
use crate::tools::Toolbox;
use crate::tools::mcp::Listings;
use std::sync::Arc;

/// The tools in the server's order, without those with invalid schemas.
const NAMES: [&str; 25] = [
    "echo",
    "fail",
    "broken",
    "slow",
    "cancelled",
    "progress",
    "image",
    "structured",
    "liar",
    "ask",
    "ask_twice",
    "busy",
    "sample",
    "meta",
    "env",
    "reach",
    "pid",
    "die",
    "hang",
    "flood",
    "chatter",
    "grow",
    "shrink",
    "strict",
    "dots_and_spaces",
];

fn expected() -> Vec<String> {
    NAMES.iter().map(|name| format!("docs_{name}")).collect()
}

#[tokio::test]
async fn all_pages_of_a_server_are_listed_in_its_order_and_bad_schemas_are_left_out() {
    let rig = Rig::new(stdio(Age::New));
    assert_eq!(rig.names().await, expected());
    let server = HttpServer::start(Age::New);
    let rig = Rig::new(server.entry());
    assert_eq!(rig.names().await, expected());
    let toolbox = rig.toolbox().await;
    let echo = toolbox.tool("docs_echo").unwrap();
    assert_eq!(echo.description, "It does echo.");
    assert_eq!(echo.parameters.source()["properties"]["text"]["default"], "nothing");
}

#[tokio::test]
async fn older_servers_and_those_of_npm_are_listed_too() {
    for age in [stdio(Age::Old), everything()] {
        let rig = Rig::new(age);
        let names = rig.names().await;
        assert!(names.contains(&"docs_echo".to_owned()), "{names:?}");
    }
    let server = HttpServer::start(Age::Old);
    let names = Rig::new(json!({"url": format!("http://127.0.0.1:{}/mcp", server.port)}));
    assert!(names.names().await.contains(&"docs_echo".to_owned()));
}

#[tokio::test]
async fn a_declared_tool_wins_its_name_and_a_picked_one_keeps_what_it_says() {
    let run = json!({"http": {"url": "http://127.0.0.1:9/"}});
    let pick = |tool: &str| json!({"mcp": {"server": "docs", "tool": tool}});
    let tools = json!([
        {"name": "first", "run": run},
        {"mcp": "docs", "approval": "requires_approval", "run_timeout": "7s"},
        {"name": "docs_echo", "run": run},
        {"name": "say", "run": pick("echo"), "description": "Says it."},
        {"name": "draw", "run": pick("image")},
        {"name": "gone", "run": pick("nothing")},
    ]);
    let rig = Rig::with_tools(stdio(Age::New), tools);
    let names = rig.names().await;
    let of_set: Vec<String> = expected().into_iter().filter(|name| name != "docs_echo").collect();
    let mut all = vec!["first".to_owned()];
    all.extend(of_set);
    all.extend(["docs_echo", "say", "draw"].map(str::to_owned));
    assert_eq!(names, all);
    let toolbox = rig.toolbox().await;
    assert_eq!(toolbox.tool("say").unwrap().description, "Says it.");
    assert_eq!(toolbox.tool("draw").unwrap().description, "It does image.");
    assert_eq!(toolbox.tool("docs_fail").unwrap().server().unwrap().run_timeout.as_secs(), 7);
    assert_eq!(toolbox.tool("draw").unwrap().server().unwrap().run_timeout.as_secs(), 60);
    // Without a listing only the server's tools are missing.
    let alone = Toolbox::new(rig.definition.clone(), &Listings::new(), Arc::from([]));
    let names: Vec<&str> = alone.tools().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["first", "docs_echo"]);
}

#[tokio::test]
async fn a_listing_is_fetched_once_and_shared() {
    let rig = Rig::new(stdio(Age::New));
    let tenant = Tenant::default();
    let listings = || rig.mcp.listings(&tenant, &rig.definition);
    let (first, second) = tokio::join!(listings(), listings());
    let third = listings().await;
    for other in [&second, &third] {
        assert!(Arc::ptr_eq(&first["docs"], &other["docs"]));
    }
}

#[tokio::test]
async fn a_server_is_asked_for_each_tenant() {
    let rig = Rig::new(stdio(Age::New));
    let mine = rig.mcp.listings(&Tenant::default(), &rig.definition).await;
    let acme = Tenant::parse("acme").unwrap();
    assert!(rig.mcp.cached_listings(&acme, &rig.definition).is_none());
    let theirs = rig.mcp.listings(&acme, &rig.definition).await;
    assert!(!Arc::ptr_eq(&mine["docs"], &theirs["docs"]));
}

#[tokio::test]
async fn a_change_of_the_tools_is_noticed_in_either_protocol() {
    for server in [stdio(Age::New), stdio(Age::Old)] {
        let rig = Rig::new(server);
        rig.text("grow", json!({"name": "young"})).await;
        rig.until("docs_young", true).await;
        assert_eq!(rig.text("young", json!({})).await, "I am young");
    }
}

#[tokio::test]
async fn a_tool_that_went_between_two_calls_is_an_error_result() {
    let rig = Rig::new(stdio(Age::New));
    rig.text("grow", json!({"name": "young"})).await;
    rig.until("docs_young", true).await;
    let tool = rig.toolbox().await.tool("docs_young").unwrap().clone();
    rig.text("shrink", json!({"name": "young"})).await;
    let run = crate::tools::fixtures::a_run("docs_young", json!({}));
    let returned = rig.runner.run(&tool, Box::new(run), |_| {}).await;
    assert!(
        matches!(returned.outcome, abide_conversation::message::Outcome::Err(..)),
        "{returned:?}"
    );
    rig.until("docs_young", false).await;
}

#[tokio::test]
async fn a_servers_hint_does_not_weaken_the_gate() {
    // Every tool of this server claims to be read-only.
    let tools = json!([{"mcp": "docs"}]);
    let rig = Rig::with_tools(stdio(Age::New), tools);
    let toolbox = rig.toolbox().await;
    assert!(toolbox.tools().all(|tool| !tool.read_only));
    let rig = Rig::with_tools(stdio(Age::New), json!([{"mcp": "docs", "read_only": true}]));
    assert!(rig.toolbox().await.tools().all(|tool| tool.read_only));
}
