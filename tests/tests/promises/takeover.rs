//! What ran on a node that is gone goes on elsewhere, and nobody has to touch it.

use abide_tests::client::Client;
use abide_tests::cluster::Cluster;
use abide_tests::model_server::{ModelServer, Piece};
use abide_tests::tool_server::ToolServer;
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::json;

use crate::agents::{agent, calls_once, http};
use crate::rig::{AFTER_LEASE, LEASE, SLACK, held, say, three, together};

struct Story {
    cluster: Cluster,
    tools: ToolServer,
    model: ModelServer,
}

/// On node 0 a model speaks, a tool runs, one that must not be repeated does, and a message waits
/// in a queue.
async fn begun(lease: &str) -> Story {
    let cluster = three(lease, &[]).await;
    let (tools, model) = (ToolServer::start().await, ModelServer::start().await);
    let first = cluster.client(0);
    let fail = json!({"on_interrupt": "fail"});
    first.define("speaking", &agent(model.model(), vec![])).await;
    first.define("running", &calls_once(vec![http("hold", &tools, "/hold", json!({}))])).await;
    first.define("once", &calls_once(vec![http("once", &tools, "/hold", fail)])).await;
    model.reply(vec![Piece::Text("Half a sent"), Piece::Hold]);
    model.reply(vec![Piece::Text("A whole sentence.")]);
    for id in ["speaking", "running", "once"] {
        say(first, id, id, "go").await;
    }
    say(first, "queued", "running", "first").await;
    queue(first, "second").await;
    model.requests.nth(1).await;
    tools.requests.nth(3).await;
    Story { cluster, tools, model }
}

async fn queue(client: &Client, text: &str) {
    let body = json!({"text": text, "if_busy": "queue"});
    client.post("/v1/conversations/queued/messages", &body).await.expect(202);
}

/// Watches journals only, until everything that ran has ended on another node.
async fn goes_on(story: &Story) {
    let Story { cluster, tools, model } = story;
    let other = cluster.client(1);
    model.requests.nth(2).await;
    tools.requests.nth(5).await;
    tools.release();
    let spoken = other.wait_until_settled("speaking", 1).await;
    assert_eq!((spoken.outcomes(), spoken.of("assistant_msg").count()), (vec!["completed"], 1));
    assert_eq!(spoken.last_text(), "A whole sentence.");
    let run = other.wait_until_settled("running", 1).await;
    assert_eq!(run.result("hold")["result"]["attempt"], 2);
    let once = other.wait_until_settled("once", 1).await;
    assert_eq!(once.outcomes(), ["completed"]);
    assert_eq!(once.result("once")["error_type"], "INTERRUPTED");
    let queued = other.wait_until_settled("queued", 2).await;
    assert_eq!(queued.outcomes(), ["completed", "completed"]);
    let all = tools.requests.all();
    let seen = |key: &str| all.iter().filter(|run| run.header("idempotency-key") == key).count();
    assert_eq!(
        ["once/once", "running/hold", "queued/hold", "queued/hold~2"].map(seen),
        [1, 2, 2, 1]
    );
    assert_eq!(model.requests.all().len(), 2);
    model.assert_prompts_are_whole();
}

#[tokio::test]
async fn what_ran_on_a_killed_node_goes_on_elsewhere_by_itself() {
    // Long enough that nothing here can have waited for its end.
    let mut story = begun("1m").await;
    let reader = story.cluster.history.listen(story.cluster.clients(), "speaking");
    reader.wait_for("a delta", |frames| frames.iter().any(|one| one.name == "snapshot")).await;
    story.cluster.kill(0).await;
    goes_on(&story).await;
    for id in ["speaking", "running", "once", "queued"] {
        let (node, epoch) = held(story.cluster.client(1), id).await;
        assert!(node != "node-0" && epoch > 1, "{id} is held by {node:?} in epoch {epoch}");
    }
    story.cluster.evidence(&[&story.tools]).await.assert_no_violations();
}

#[tokio::test]
async fn what_ran_on_a_stopped_node_goes_on_elsewhere_when_its_lease_is_over() {
    let story = begun("2s").await;
    story.cluster.stop(0).await;
    let stopped = Timestamp::now();
    goes_on(&story).await;
    let bound = SignedDuration::try_from(LEASE + AFTER_LEASE * SLACK).unwrap();
    for again in &story.tools.requests.all()[3..5] {
        let after = again.at.duration_since(stopped);
        println!("measured a tool of a stopped node ran again after {after:?}");
        assert!(after <= bound, "{} ran again after {after:?}", again.header("idempotency-key"));
    }
    story.cluster.cont(0);
    together(&story.cluster).await;
    story.cluster.evidence(&[&story.tools]).await.assert_no_violations();
}

#[tokio::test]
async fn a_killed_node_that_is_there_again_at_once_takes_nothing_over_twice() {
    const RUNS: usize = 10;
    let (mut cluster, tools) = (three("2s", &[]).await, ToolServer::start().await);
    let client = cluster.client(0).clone();
    client.define("a", &calls_once(vec![http("hold", &tools, "/hold", json!({}))])).await;
    for n in 0..RUNS {
        say(&client, &format!("c{n}"), "a", "go").await;
    }
    tools.requests.nth(RUNS).await;
    cluster.restart(0).await;
    tools.requests.nth(2 * RUNS).await;
    together(&cluster).await;
    let rows = client.admin(Method::GET, "/admin/actors").await.expect(200);
    assert_eq!(rows["actors"].as_array().unwrap().len(), RUNS);
    tools.release();
    for n in 0..RUNS {
        let journal = client.wait_until_settled(&format!("c{n}"), 1).await;
        assert_eq!(journal.result("hold")["result"]["attempt"], 2);
        assert_eq!(journal.outcomes(), ["completed"]);
    }
    assert_eq!(tools.requests.all().len(), 2 * RUNS);
    cluster.evidence(&[&tools]).await.assert_no_violations();
}
