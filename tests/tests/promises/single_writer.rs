//! Only one holder can write, even while another node still believes that it is the holder.

use std::time::Duration;

use abide_tests::cluster::{Cluster, Plan};
use abide_tests::deadline::poll;
use abide_tests::journal::Journal;
use abide_tests::model_server::{ModelServer, Piece};
use abide_tests::proxy::Direction;
use abide_tests::tool_server::ToolServer;
use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{agent, calls_once, http};
use crate::three_nodes::{
    holder_and_epoch, member, resolve, send_message, start_cluster, start_three, wait_until_all_up,
};

/// The conversations of the scenario; each is in another state when its holder is stopped.
const IDS: [&str; 3] = ["parked", "running", "speaking"];

struct Scenario {
    cluster: Cluster,
    tools: ToolServer,
    model: ModelServer,
}

/// Starts all three on node 0: one waits for an approval, one runs a tool, one streams a reply.
async fn start_scenario() -> Scenario {
    let cluster = start_three("2s", &[]).await;
    let (tools, model) = (ToolServer::start().await, ModelServer::start().await);
    let first = cluster.client(0);
    let gated = http("send", &tools, "/answer", json!({"approval": "requires_approval"}));
    first.define("parked", &calls_once(vec![gated])).await;
    first.define("running", &calls_once(vec![http("hold", &tools, "/hold", json!({}))])).await;
    first.define("speaking", &agent(model.model(), vec![])).await;
    model.reply(vec![Piece::Text("Half"), Piece::Hold]);
    model.reply(vec![Piece::Text("Whole.")]);
    for id in IDS {
        send_message(first, id, id, "go").await;
    }
    first.wait_for_pending("parked", "send", "approval").await;
    tools.requests.nth(1).await;
    model.requests.nth(1).await;
    Scenario { cluster, tools, model }
}

/// Waits until node 0, which was declared dead, is a member again and has dropped its actors, so
/// that each conversation is live on exactly one other node.
async fn wait_until_rejoined(cluster: &Cluster, former: &Value) {
    let (name, other) = (cluster.name(0), cluster.client(1));
    poll("the node to be a member again", async || {
        let now = member(other, name).await;
        (now["state"] == "up" && now["incarnation"] != *former).then_some(())
    })
    .await;
    poll("each conversation to be live once", async || {
        let mut live = Vec::new();
        for (index, client) in cluster.clients().enumerate() {
            let path = format!("/admin/actors?node={}", cluster.name(index));
            let rows = client.try_admin(Method::GET, &path).await?.body["actors"].clone();
            let ids = rows.as_array()?.iter().map(|row| row["conversation_id"].clone());
            live.extend(ids.map(|id| (id.as_str().unwrap().to_owned(), index)));
        }
        live.sort();
        let ids: Vec<_> = live.iter().map(|(id, _)| id.as_str()).collect();
        (ids == IDS && live.iter().all(|(_, index)| *index != 0)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_stopped_holder_that_wakes_writes_nothing_and_drops_its_actors() {
    let Scenario { cluster, tools, model } = start_scenario().await;
    let (stopped, other) = (cluster.client(0), cluster.client(1));
    let before = join_all(IDS.map(|id| holder_and_epoch(other, id))).await;
    assert!(before.iter().all(|(node, epoch)| node == "node-0" && *epoch > 0), "{before:?}");
    let former = member(other, "node-0").await["incarnation"].clone();
    cluster.stop(0).await;

    let client = stopped.clone();
    let denied = async move { client.resolve("parked", "send", json!({"approved": false})).await };
    let denied = tokio::spawn(denied);
    resolve(other, "parked", "send", json!({"approved": true})).await.expect(200);
    // The approved tool runs, and the running one runs again.
    tools.requests.nth(3).await;
    model.requests.nth(2).await;
    // The first answers reach the sockets of the stopped node.
    tools.release();
    model.release();
    let mut settled: Vec<Journal> = Vec::new();
    for id in IDS {
        settled.push(other.wait_until_settled(id, 1).await);
    }
    cluster.cont(0);
    let denied = denied.await.unwrap().status;
    assert!([409, 503].contains(&denied), "what was resolved was answered {denied}");
    wait_until_rejoined(&cluster, &former).await;
    for (id, (settled, (_, epoch))) in IDS.iter().zip(settled.iter().zip(&before)) {
        assert_eq!(stopped.journal(id).await, *settled, "the stopped node wrote");
        let (node, now) = holder_and_epoch(stopped, id).await;
        assert!(node != "node-0" && now > *epoch, "{id} is held by {node} in epoch {now}");
    }
    assert_eq!(settled[2].last_text(), "Whole.");
    assert_eq!(settled[1].result("hold")["result"]["attempt"], 2);
    assert_eq!(
        (tools.requests.all().len(), model.requests.all().len()),
        (3, 2),
        "it started something"
    );

    send_message(stopped, "speaking", "speaking", "go on").await;
    other.wait_until_settled("speaking", 2).await;
    model.assert_prompts_are_whole();
    cluster.evidence(&[&tools]).await.assert_no_violations();
}

#[tokio::test]
async fn a_holder_that_was_stopped_after_its_commit_does_not_start_the_tool() {
    let cluster = start_cluster(Plan::new(ABIDE).with(&["--lease", "2s"]).proxied()).await;
    let tools = ToolServer::start().await;
    let (stopped, other) = (cluster.client(0), cluster.client(1));
    let gated = http("send", &tools, "/answer", json!({"approval": "requires_approval"}));
    stopped.define("a", &calls_once(vec![gated])).await;
    send_message(stopped, "c", "a", "go").await;
    stopped.wait_for_pending("c", "send", "approval").await;
    let former = member(other, "node-0").await["incarnation"].clone();
    // Much shorter than the rest of the lease, and long enough to stop the node in between.
    cluster.to_redis(0).delay(Direction::ToClient, Duration::from_millis(500));
    let client = stopped.clone();
    let status =
        tokio::spawn(
            async move { client.resolve("c", "send", json!({"approved": true})).await.status },
        );
    other.wait_for("c", "the approval", |journal| journal.of("resolution").count() == 1).await;
    cluster.stop(0).await;
    // Redis' answer waits in the socket of the stopped node.
    let settled = other.wait_until_settled("c", 1).await;
    assert_eq!(settled.outcomes(), ["completed"]);
    let (node, _) = holder_and_epoch(other, "c").await;
    assert_ne!(node, "node-0");
    let runs = tools.requests.all().len();
    cluster.to_redis(0).heal().await;
    cluster.cont(0);
    // The approval was accepted, or its outcome is unknown to the client.
    assert!([200, 503].contains(&status.await.unwrap()));
    poll("the node to be a member again", async || {
        (member(other, "node-0").await["incarnation"] != former).then_some(())
    })
    .await;
    wait_until_all_up(&cluster).await;
    assert_eq!(tools.requests.all().len(), runs, "it started the tool");
    assert_eq!(stopped.journal("c").await, settled);
    cluster.evidence(&[&tools]).await.assert_no_violations();
}

#[tokio::test]
async fn the_epoch_grows_whenever_a_conversation_moves() {
    let mut cluster = start_three("2s", &[]).await;
    let scripted = json!({"provider": "scripted", "script": [{"text": "Done."}]});
    cluster.client(0).define("a", &agent(scripted, vec![])).await;
    let mut epochs = Vec::new();
    for turn in 1..=4 {
        let index = (turn - 1) % 3;
        let client = cluster.client(index).clone();
        send_message(&client, "c", "a", &format!("m{turn}")).await;
        client.wait_until_settled("c", turn).await;
        let (node, epoch) = holder_and_epoch(&client, "c").await;
        assert_eq!(node, cluster.name(index));
        epochs.push(epoch);
        match turn {
            1 => cluster.kill(index).await,
            2 => cluster.stop(index).await,
            3 => {
                cluster.restart(0).await;
                cluster.cont(1);
                wait_until_all_up(&cluster).await;
                cluster.terminate(index).await;
            }
            _ => {}
        }
    }
    assert!(epochs.windows(2).all(|two| two[0] < two[1]), "{epochs:?}");
    cluster.evidence(&[]).await.assert_no_violations();
}
