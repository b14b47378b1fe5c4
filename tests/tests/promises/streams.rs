//! An event stream at a node that is not the holder: no gap, nothing twice, whatever happens.

use std::time::Duration;

use abide_tests::client::Client;
use abide_tests::cluster::{Cluster, Plan};
use abide_tests::frames::{Frame, Frames, ids};
use abide_tests::journal::Journal;
use abide_tests::model_server::{ModelServer, Piece};
use abide_tests::proxy::Direction;
use reqwest::Method;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{agent, client, human};
use crate::rig::{begin, held, insist, resolve, say, three};

/// Of nodes that are not stopped: nothing here waits for its end.
const LEASE: &str = "1m";

/// A conversation on node 0 whose model asks a person and then speaks, and a stream of it that is
/// open at another node. When it speaks the model holds its breath after a word.
async fn begun(cluster: &Cluster, reads_at: usize) -> (ModelServer, Frames) {
    let model = ModelServer::start().await;
    let first = cluster.client(0);
    first.define("a", &agent(model.model(), vec![human("ask")])).await;
    let new = json!({"id": "c", "agent": "a"});
    first.post("/v1/conversations", &new).await.expect(201);
    let frames = cluster.client(reads_at).events("c", None).await;
    model.reply(vec![Piece::Text("Wait. "), Piece::Call("ask", "ask", json!({}))]);
    model.reply(vec![Piece::Text("One "), Piece::Hold, Piece::Text("two "), Piece::Text("three.")]);
    say(first, "c", "a", "m1").await;
    assert_eq!(held(first, "c").await.0, "node-0");
    (model, frames)
}

/// What a reader heard over all its connections is what the journal says, once and in order.
fn heard_whole(read: &[Frame], journal: &Journal) {
    assert_eq!(ids(read), journal.mirrored(), "{read:#?}");
    assert_eq!(read.iter().filter(|frame| frame.is_terminal()).count(), journal.outcomes().len());
}

/// Everything up to the first word of the second message, live: while it is spoken, for a reader
/// who hears of the end first has no use for it.
async fn speaks(frames: &mut Frames) -> Vec<Frame> {
    let read = frames.wait_for("text_delta").await;
    assert_eq!(read.last().unwrap().data["text"], "One ");
    read
}

async fn answer(client: &Client) {
    resolve(client, "c", "ask", json!({"result": "yes"})).await.expect(200);
}

#[tokio::test]
async fn a_reader_at_another_node_hears_everything_with_its_deltas() {
    let cluster = three(LEASE, &[]).await;
    let (model, mut frames) = begun(&cluster, 1).await;
    let mut read = frames.wait_for("suspended").await;
    // Through a third node: neither the holder nor the reader's.
    answer(cluster.client(2)).await;
    read.extend(speaks(&mut frames).await);
    model.release();
    read.extend(frames.wait_for("turn_completed").await);
    let journal = cluster.client(1).wait_until_settled("c", 1).await;
    heard_whole(&read, &journal);
    assert_eq!(read.iter().filter(|frame| frame.name == "snapshot").count(), 1);
    model.assert_prompts_are_whole();
}

/// Something happens to the holder while the call waits; the stream at node 1 goes on.
async fn the_holder_goes(lease: &str, go: impl AsyncFnOnce(&mut Cluster)) {
    let mut cluster = three(lease, &[]).await;
    let (model, mut frames) = begun(&cluster, 1).await;
    let mut read = frames.wait_for("suspended").await;
    go(&mut cluster).await;
    answer(cluster.client(2)).await;
    read.extend(speaks(&mut frames).await);
    model.release();
    read.extend(frames.wait_for("turn_completed").await);
    let journal = cluster.client(1).wait_until_settled("c", 1).await;
    heard_whole(&read, &journal);
    assert_ne!(held(cluster.client(1), "c").await.0, "node-0");
    cluster.evidence(&[]).await.assert_no_violations();
}

#[tokio::test]
async fn a_stream_goes_on_when_the_holder_is_killed() {
    the_holder_goes(LEASE, async |cluster| cluster.kill(0).await).await;
}

#[tokio::test]
async fn a_stream_goes_on_when_the_holder_drains() {
    let drains = async |cluster: &mut Cluster| {
        let answer = cluster.client(1).admin(Method::POST, "/admin/nodes/node-0/drain").await;
        answer.expect(202);
    };
    the_holder_goes(LEASE, drains).await;
}

#[tokio::test]
async fn a_stream_goes_on_when_the_holder_is_stopped() {
    the_holder_goes("2s", async |cluster| cluster.stop(0).await).await;
}

/// Something happens to the connection between the holder and the node where a stream is open.
async fn the_connection_breaks(fault: impl AsyncFnOnce(&Cluster)) {
    let cluster = begin(Plan::new(ABIDE).with(&["--lease", LEASE]).proxied()).await;
    let (model, mut frames) = begun(&cluster, 1).await;
    let mut read = frames.wait_for("suspended").await;
    model.release();
    // Node 0 dialled node 1.
    fault(&cluster).await;
    answer(cluster.client(0)).await;
    read.extend(frames.wait_for("turn_completed").await);
    let journal = cluster.client(0).wait_until_settled("c", 1).await;
    heard_whole(&read, &journal);
    cluster.to_node(1).heal().await;
    say(cluster.client(1), "c", "a", "m2").await;
    read.extend(frames.wait_for("turn_completed").await);
    heard_whole(&read, &cluster.client(0).wait_until_settled("c", 2).await);
    cluster.evidence(&[]).await.assert_no_violations();
}

#[tokio::test]
async fn a_stream_has_all_frames_although_the_connection_to_the_holder_is_cut() {
    the_connection_breaks(async |cluster| cluster.to_node(1).cut()).await;
}

#[tokio::test]
async fn a_stream_has_all_frames_although_the_connection_to_the_holder_is_half_open() {
    let half_open = async |cluster: &Cluster| {
        cluster.to_node(1).swallow(Direction::ToTarget);
        cluster.to_node(1).swallow(Direction::ToClient);
    };
    the_connection_breaks(half_open).await;
}

#[tokio::test]
async fn a_stream_has_all_frames_although_the_connection_to_the_holder_is_slow() {
    let slow = async |cluster: &Cluster| {
        for way in [Direction::ToTarget, Direction::ToClient] {
            cluster.to_node(1).delay(way, Duration::from_millis(300));
        }
    };
    the_connection_breaks(slow).await;
}

#[tokio::test]
async fn a_reader_goes_on_at_another_node_where_it_was() {
    let mut cluster = three(LEASE, &[]).await;
    let (model, mut frames) = begun(&cluster, 1).await;
    let mut read = frames.wait_for("suspended").await;
    drop(frames);
    model.release();
    cluster.kill(1).await;
    let mut frames = cluster.client(2).events("c", ids(&read).last().copied()).await;
    answer(cluster.client(2)).await;
    read.extend(frames.wait_for("tool_call_resolved").await);
    drop(frames);
    let mut frames = cluster.client(0).events("c", ids(&read).last().copied()).await;
    read.extend(frames.wait_for("turn_completed").await);
    heard_whole(&read, &cluster.client(0).wait_until_settled("c", 1).await);
    assert_eq!(read.iter().filter(|frame| frame.name == "snapshot").count(), 3);
    cluster.evidence(&[]).await.assert_no_violations();
}

#[tokio::test]
async fn readers_that_read_nothing_harm_nobody_and_cost_little() {
    const READERS: usize = 20;
    const TURNS: usize = 20;
    // Without a bound one node would keep 256 MB for them, less what sockets take, beside the rest.
    const BOUND: u64 = 192 << 20;
    let cluster = three(LEASE, &[]).await;
    // Told in a delta and in a message, between more small deltas than frames may wait.
    let text = "x".repeat(320_000) + &" y".repeat(100);
    let model = json!({"provider": "scripted", "script": [{"text": text}]});
    cluster.client(0).define("a", &agent(model, vec![])).await;
    let new = json!({"id": "c", "agent": "a"});
    cluster.client(0).post("/v1/conversations", &new).await.expect(201);
    let mut idle = Vec::new();
    for _ in 0..READERS {
        idle.push(cluster.client(0).events("c", None).await);
        idle.push(cluster.client(1).events("c", None).await);
    }
    let reader = cluster.history.listen([cluster.client(1)], "c");
    reader.wait_for("the snapshot", |frames| !frames.is_empty()).await;
    let before = [0, 1].map(|node| cluster.memory(node));
    for turn in 1..=TURNS {
        let body = json!({"text": "go", "message_id": turn.to_string(), "if_busy": "queue"});
        let path = "/v1/conversations/c/messages";
        insist(cluster.client(1), path, None, &body).await.expect(202);
    }
    let ended =
        |frames: &[Frame]| frames.iter().filter(|frame| frame.is_terminal()).count() == TURNS;
    reader.wait_for("the end of the last turn", ended).await;
    let grown = [0, 1].map(|node| cluster.memory(node).saturating_sub(before[node]) >> 20);
    println!("measured {READERS} readers that read nothing cost the two nodes {grown:?} MiB");
    assert!(grown.iter().all(|grown| *grown < BOUND >> 20), "the nodes grew by {grown:?} MiB");
    cluster.evidence(&[]).await.assert_no_violations();
    drop(idle);
}

#[tokio::test]
async fn a_page_at_another_node_is_a_client_of_the_holder() {
    let cluster = three(LEASE, &[]).await;
    let first = cluster.client(0);
    let calls = json!([{"id": "map", "name": "map", "args": {}}]);
    let model = json!({"provider": "scripted", "script": [{"calls": calls}, {"text": "Done."}]});
    let mut graceful = agent(model, vec![client("map")]);
    graceful["client_grace"] = json!("700ms");
    first.define("a", &graceful).await;
    let new = json!({"id": "seen", "agent": "a"});
    first.post("/v1/conversations", &new).await.expect(201);
    let page = cluster.client(1).events("seen", None).await;
    say(first, "seen", "a", "go").await;
    first.wait_for_pending("seen", "map", "client_exec").await;
    // The grace of a call that is younger and has no page tells that ours is over.
    say(first, "unseen", "a", "go").await;
    let without = first.wait_until_settled("unseen", 1).await;
    assert_eq!(without.result("map")["error_type"], "NO_CLIENT");
    let still = first.journal("seen").await;
    assert_eq!(*still.result("map"), Value::Null, "the page at node 1 is not seen: {still:#?}");
    drop(page);
    let gone = first.wait_until_settled("seen", 1).await;
    assert_eq!(gone.result("map")["error_type"], "NO_CLIENT");
    cluster.evidence(&[]).await.assert_no_violations();
}

#[tokio::test]
async fn of_two_pages_at_two_nodes_the_one_that_stays_keeps_the_call_open() {
    let cluster = three(LEASE, &[]).await;
    let first = cluster.client(0);
    let calls = json!([{"id": "map", "name": "map", "args": {}}]);
    let model = json!({"provider": "scripted", "script": [{"calls": calls}, {"text": "Done."}]});
    let mut graceful = agent(model, vec![client("map")]);
    graceful["client_grace"] = json!("700ms");
    first.define("a", &graceful).await;
    let new = json!({"id": "seen", "agent": "a"});
    first.post("/v1/conversations", &new).await.expect(201);
    let leaves = cluster.client(1).events("seen", None).await;
    let stays = cluster.client(2).events("seen", None).await;
    say(first, "seen", "a", "go").await;
    first.wait_for_pending("seen", "map", "client_exec").await;
    drop(leaves);
    // The grace of a call that begins after that page has left tells that it would be over.
    say(first, "unseen", "a", "go").await;
    let without = first.wait_until_settled("unseen", 1).await;
    assert_eq!(without.result("map")["error_type"], "NO_CLIENT");
    assert_eq!(*first.journal("seen").await.result("map"), Value::Null);
    let path = "/v1/conversations/seen/calls/map/resolution";
    let answer = json!({"result": {"lat": 1}});
    insist(cluster.client(2), path, None, &answer).await.expect(200);
    let second = insist(cluster.client(1), path, None, &json!({"result": 2})).await;
    second.expect_problem(409, "call-not-open");
    let journal = first.wait_until_settled("seen", 1).await;
    assert_eq!(journal.result("map")["result"], json!({"lat": 1}));
    drop(stays);
    cluster.evidence(&[]).await.assert_no_violations();
}
