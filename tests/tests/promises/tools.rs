//! Files and phases of conversations that move between nodes.

use abide_tests::client::Client;
use abide_tests::cluster::Cluster;
use abide_tests::journal::Journal;
use abide_tests::processes::Mark;
use abide_tests::tool_server::ToolServer;
use reqwest::Method;
use serde_json::{Value, json};

use crate::agents::{able, call, http, steps};
use crate::three_nodes::{holder_and_epoch, resolve, send_message, start_three};

/// A lease that never ends in these tests.
const LEASE: &str = "1m";

/// An agent that makes the first call, waits for the tool server, and makes the second call.
fn holding(tools: &ToolServer, before: Value, after: Value) -> Value {
    let hold = call("hold", "hold", json!({}));
    let mut agent = able(steps(&[vec![before], vec![hold], vec![after]]));
    let hold = http("hold", tools, "/hold", json!({"read_only": true}));
    agent["tools"].as_array_mut().unwrap().push(hold);
    agent
}

/// Runs conversation `c`, whose holder, node 0, is killed while its tool is held.
async fn run_with_takeover(cluster: &mut Cluster, tools: &ToolServer, agent: &Value) -> Journal {
    cluster.client(0).define("a", agent).await;
    send_message(cluster.client(0), "c", "a", "go").await;
    tools.requests.nth(1).await;
    cluster.kill(0).await;
    tools.requests.nth(2).await;
    tools.release();
    let journal = cluster.client(1).wait_until_settled("c", 1).await;
    assert_eq!(journal.outcomes(), ["completed"]);
    assert_ne!(holder_and_epoch(cluster.client(1), "c").await.0, "node-0");
    journal
}

fn writes_then_reads(tools: &ToolServer) -> Value {
    let write = call("write", "write", json!({"path": "dir/a", "content": "kept"}));
    holding(tools, write, call("read", "read", json!({"path": "dir/a"})))
}

#[tokio::test]
async fn files_on_shared_storage_are_there_on_the_next_node() {
    let (files, tools) = (tempfile::tempdir().unwrap(), ToolServer::start().await);
    let shared = ["--workspaces", files.path().to_str().unwrap()];
    let mut cluster = start_three(LEASE, &shared).await;
    let journal = run_with_takeover(&mut cluster, &tools, &writes_then_reads(&tools)).await;
    assert_eq!(journal.result("read")["result"], "1\tkept");
    assert_eq!(journal.result("read")["ui"]["kind"], "file");
    cluster.evidence(&[&tools]).await.assert_no_violations();
}

async fn readiness(client: &Client) -> String {
    let answer = client.admin(Method::GET, "/readyz").await;
    answer.expect(200).as_str().unwrap().to_owned()
}

#[tokio::test]
async fn files_that_did_not_move_are_reported_as_missing_until_their_storage_is_mounted() {
    let tools = ToolServer::start().await;
    let mut cluster = start_three(LEASE, &["--workspaces", "files"]).await;
    let journal = run_with_takeover(&mut cluster, &tools, &writes_then_reads(&tools)).await;
    let holder = cluster.holder(1, "c").await;
    let error = journal.result("read")["error"].as_str().unwrap();
    assert!(error.starts_with("workspace_unavailable: "), "{error}");
    assert_eq!(journal.result("read")["error_type"], "TOOL_ERROR");
    let ready = readiness(cluster.client(holder)).await;
    assert!(ready.lines().any(|line| line == error), "{error} is not in {ready}");
    assert!(cluster.log(holder).contains(error), "the log says nothing of {error}");
    let (from, to) = (cluster.dir(0).join("files"), cluster.dir(holder).join("files"));
    assert!(!to.exists(), "a directory was made");

    std::fs::rename(from, to).unwrap();
    send_message(cluster.client(holder), "c", "a", "again").await;
    let journal = cluster.client(holder).wait_until_settled("c", 2).await;
    assert_eq!(journal.result("read~2")["result"], "1\tkept");
    assert_eq!(readiness(cluster.client(holder)).await, "ready\n");
    cluster.evidence(&[&tools]).await.assert_no_violations();
}

#[tokio::test]
async fn files_of_a_cancelled_first_command_are_reported_as_missing_too() {
    let mark = Mark::default();
    let mut cluster = start_three(LEASE, &["--workspaces", "files"]).await;
    let bash = call("bash", "bash", json!({"command": format!("echo > a; sleep {mark}; :")}));
    let rule = |when, call| json!({"when": when, "steps": [{"calls": [call]}]});
    let glob = call("glob", "glob", json!({"pattern": "*"}));
    let script = [rule("first", bash), rule("then", glob)];
    let model = json!({"provider": "scripted", "script": script});
    cluster.client(0).define("a", &able(model)).await;
    send_message(cluster.client(0), "c", "a", "first").await;
    mark.wait_for_count(2).await;
    assert_eq!(cluster.client(0).cancel("c").await.expect(200), json!({"cancelled": true}));
    mark.wait_for_count(0).await;
    cluster.kill(0).await;
    send_message(cluster.client(1), "c", "a", "then").await;
    let journal = cluster.client(1).wait_until_settled("c", 2).await;
    let error = journal.result("glob")["error"].as_str().unwrap_or_default();
    assert!(error.starts_with("workspace_unavailable: "), "{:#}", journal.result("glob"));
    cluster.evidence(&[]).await.assert_no_violations();
}

async fn phase(client: &Client) -> Value {
    client.snapshot("c").await["phase"].clone()
}

#[tokio::test]
async fn a_conversation_that_plans_still_plans_on_the_next_node() {
    let tools = ToolServer::start().await;
    let mut cluster = start_three(LEASE, &[]).await;
    let enter = call("enter", "plan_mode", json!({"action": "enter"}));
    let write = call("write", "write", json!({"path": "a", "content": "b"}));
    let journal = run_with_takeover(&mut cluster, &tools, &holding(&tools, enter, write)).await;
    let refused = journal.result("write");
    assert_eq!(refused["error_type"], "PERMISSION_DENIED", "{refused}");
    let planned = journal.about("tool_call", "write").next().unwrap();
    assert_eq!(planned["data"]["gate"]["rule"], "phase: plan", "{planned}");
    assert_eq!(phase(cluster.client(1)).await, "plan");
    cluster.evidence(&[&tools]).await.assert_no_violations();
}

#[tokio::test]
async fn the_exit_from_a_plan_is_approved_on_the_next_node_and_what_follows_may_write() {
    let files = tempfile::tempdir().unwrap();
    let shared = ["--workspaces", files.path().to_str().unwrap()];
    let mut cluster = start_three(LEASE, &shared).await;
    let write = |id| vec![call(id, "write", json!({"path": "a", "content": "b"}))];
    let exit = vec![call("exit", "plan_mode", json!({"action": "exit", "reason": "the plan"}))];
    let mut agent = able(steps(&[write("early"), exit, write("late")]));
    agent["permissions"]["phase"] = json!("plan");
    cluster.client(0).define("a", &agent).await;
    send_message(cluster.client(0), "c", "a", "go").await;
    let approval = cluster.client(0).wait_for_pending("c", "exit", "approval").await;
    assert_eq!(approval["args"]["reason"], "the plan");
    cluster.kill(0).await;
    assert_eq!(phase(cluster.client(1)).await, "plan");
    resolve(cluster.client(1), "c", "exit", json!({"approved": true})).await.expect(200);
    cluster.client(2).wait_for("c", "the exit", |journal| !journal.result("exit").is_null()).await;
    let journal = cluster.client(2).wait_until_settled("c", 1).await;
    assert_eq!(journal.result("early")["error_type"], "PERMISSION_DENIED");
    assert_eq!(journal.result("exit")["result"], "exited plan mode");
    assert_eq!(journal.result("late")["result"], "wrote 1 bytes to a");
    let holder = cluster.holder(1, "c").await;
    cluster.kill(holder).await;
    let left = cluster.other(holder);
    assert_eq!(phase(cluster.client(left)).await, "default");
    cluster.evidence(&[]).await.assert_no_violations();
}

#[tokio::test]
async fn a_command_that_moved_ends_on_the_node_that_was_stopped_when_it_goes_on() {
    let (files, mark) = (tempfile::tempdir().unwrap(), Mark::default());
    let shared = ["--workspaces", files.path().to_str().unwrap()];
    let cluster = start_three("2s", &shared).await;
    let command = format!("setsid sleep {mark} > /dev/null 2>&1 & sleep {mark}");
    let calls = [vec![call("bash", "bash", json!({"command": command}))]];
    cluster.client(0).define("a", &able(steps(&calls))).await;
    send_message(cluster.client(0), "c", "a", "go").await;
    // The waiting shell and the two sleeps.
    mark.wait_for_count(3).await;
    cluster.stop(0).await;
    mark.wait_for_count(6).await;
    cluster.cont(0);
    mark.wait_for_count(3).await;
    let snapshot = cluster.client(1).snapshot("c").await;
    assert_eq!(snapshot["in_flight"][0]["attempt"], 2);
    assert_ne!(snapshot["holder"]["node"], "node-0");
    assert_eq!(cluster.client(2).cancel("c").await.expect(200), json!({"cancelled": true}));
    mark.wait_for_count(0).await;
    cluster.evidence(&[]).await.assert_no_violations();
}
