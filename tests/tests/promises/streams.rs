//! An event stream at a node that is not the holder has no gap and no duplicate, whatever fails.

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
use crate::three_nodes::{
    holder_and_epoch, resolve, retry_post, send_message, start_cluster, start_three,
};

/// A lease that never ends in these tests.
const LEASE: &str = "1m";

/// Starts a conversation on node 0 whose model asks a person and then replies, and opens its stream
/// at another node. The model pauses after the first word of its reply.
async fn start_with_reader(cluster: &Cluster, reads_at: usize) -> (ModelServer, Frames) {
    let model = ModelServer::start().await;
    let first = cluster.client(0);
    first.define("a", &agent(model.model(), vec![human("ask")])).await;
    let new = json!({"id": "c", "agent": "a"});
    first.post("/v1/conversations", &new).await.expect(201);
    let frames = cluster.client(reads_at).events("c", None).await;
    model.reply(vec![Piece::Text("Wait. "), Piece::Call("ask", "ask", json!({}))]);
    model.reply(vec![Piece::Text("One "), Piece::Hold, Piece::Text("two "), Piece::Text("three.")]);
    send_message(first, "c", "a", "m1").await;
    assert_eq!(holder_and_epoch(first, "c").await.0, "node-0");
    (model, frames)
}

/// Fails unless the frames of all connections are those of the journal, once and in order.
fn assert_stream_complete(read: &[Frame], journal: &Journal) {
    assert_eq!(ids(read), journal.mirrored(), "{read:#?}");
    assert_eq!(read.iter().filter(|frame| frame.is_terminal()).count(), journal.outcomes().len());
}

/// Reads up to the first word of the second message, which is a live delta: readers that already
/// have the end of a message get no deltas of it.
async fn read_to_first_word(frames: &mut Frames) -> Vec<Frame> {
    let read = frames.wait_for("text_delta").await;
    assert_eq!(read.last().unwrap().data["text"], "One ");
    read
}

async fn answer(client: &Client) {
    resolve(client, "c", "ask", json!({"result": "yes"})).await.expect(200);
}

#[tokio::test]
async fn a_reader_at_another_node_hears_everything_with_its_deltas() {
    let cluster = start_three(LEASE, &[]).await;
    let (model, mut frames) = start_with_reader(&cluster, 1).await;
    let mut read = frames.wait_for("suspended").await;
    // Through the third node, which is neither the holder nor the reader's.
    answer(cluster.client(2)).await;
    read.extend(read_to_first_word(&mut frames).await);
    model.release();
    read.extend(frames.wait_for("turn_completed").await);
    let journal = cluster.client(1).wait_until_settled("c", 1).await;
    assert_stream_complete(&read, &journal);
    assert_eq!(read.iter().filter(|frame| frame.name == "snapshot").count(), 1);
    model.assert_prompts_are_whole();
}

/// Causes a fault of the holder while the call is open, and fails unless the stream at node 1 goes
/// on.
async fn with_holder_fault(lease: &str, fault: impl AsyncFnOnce(&mut Cluster)) {
    let mut cluster = start_three(lease, &[]).await;
    let (model, mut frames) = start_with_reader(&cluster, 1).await;
    let mut read = frames.wait_for("suspended").await;
    fault(&mut cluster).await;
    answer(cluster.client(2)).await;
    read.extend(read_to_first_word(&mut frames).await);
    model.release();
    read.extend(frames.wait_for("turn_completed").await);
    let journal = cluster.client(1).wait_until_settled("c", 1).await;
    assert_stream_complete(&read, &journal);
    assert_ne!(holder_and_epoch(cluster.client(1), "c").await.0, "node-0");
    cluster.evidence(&[]).await.assert_no_violations();
}

#[tokio::test]
async fn a_stream_goes_on_when_the_holder_is_killed() {
    with_holder_fault(LEASE, async |cluster| cluster.kill(0).await).await;
}

#[tokio::test]
async fn a_stream_goes_on_when_the_holder_drains() {
    let drains = async |cluster: &mut Cluster| {
        let answer = cluster.client(1).admin(Method::POST, "/admin/nodes/node-0/drain").await;
        answer.expect(202);
    };
    with_holder_fault(LEASE, drains).await;
}

#[tokio::test]
async fn a_stream_goes_on_when_the_holder_is_stopped() {
    with_holder_fault("2s", async |cluster| cluster.stop(0).await).await;
}

/// Causes a fault of the connection between the holder and the node of the stream.
async fn with_connection_fault(fault: impl AsyncFnOnce(&Cluster)) {
    let cluster = start_cluster(Plan::new(ABIDE).with(&["--lease", LEASE]).proxied()).await;
    let (model, mut frames) = start_with_reader(&cluster, 1).await;
    let mut read = frames.wait_for("suspended").await;
    model.release();
    // Node 0 dialled node 1.
    fault(&cluster).await;
    answer(cluster.client(0)).await;
    read.extend(frames.wait_for("turn_completed").await);
    let journal = cluster.client(0).wait_until_settled("c", 1).await;
    assert_stream_complete(&read, &journal);
    cluster.to_node(1).heal().await;
    send_message(cluster.client(1), "c", "a", "m2").await;
    read.extend(frames.wait_for("turn_completed").await);
    assert_stream_complete(&read, &cluster.client(0).wait_until_settled("c", 2).await);
    cluster.evidence(&[]).await.assert_no_violations();
}

#[tokio::test]
async fn a_stream_has_all_frames_although_the_connection_to_the_holder_is_cut() {
    with_connection_fault(async |cluster| cluster.to_node(1).cut()).await;
}

#[tokio::test]
async fn a_stream_has_all_frames_although_the_connection_to_the_holder_is_half_open() {
    let half_open = async |cluster: &Cluster| {
        cluster.to_node(1).swallow(Direction::ToTarget);
        cluster.to_node(1).swallow(Direction::ToClient);
    };
    with_connection_fault(half_open).await;
}

#[tokio::test]
async fn a_stream_has_all_frames_although_the_connection_to_the_holder_is_slow() {
    let slow = async |cluster: &Cluster| {
        for way in [Direction::ToTarget, Direction::ToClient] {
            cluster.to_node(1).delay(way, Duration::from_millis(300));
        }
    };
    with_connection_fault(slow).await;
}

#[tokio::test]
async fn a_reader_goes_on_at_another_node_where_it_was() {
    let mut cluster = start_three(LEASE, &[]).await;
    let (model, mut frames) = start_with_reader(&cluster, 1).await;
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
    assert_stream_complete(&read, &cluster.client(0).wait_until_settled("c", 1).await);
    assert_eq!(read.iter().filter(|frame| frame.name == "snapshot").count(), 3);
    cluster.evidence(&[]).await.assert_no_violations();
}

#[tokio::test]
async fn readers_that_read_nothing_cost_little_and_delay_no_other() {
    const READERS: usize = 20;
    const TURNS: usize = 20;
    // Without a bound one node would buffer 256 MB for the readers, less the sockets' buffers.
    const MAX_GROWTH_BYTES: u64 = 192 << 20;
    let cluster = start_three(LEASE, &[]).await;
    // Sent as a delta and in a message, among more small deltas than frames may be buffered.
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
        retry_post(cluster.client(1), path, None, &body).await.expect(202);
    }
    let ended =
        |frames: &[Frame]| frames.iter().filter(|frame| frame.is_terminal()).count() == TURNS;
    reader.wait_for("the end of the last turn", ended).await;
    let grown = [0, 1].map(|node| cluster.memory(node).saturating_sub(before[node]) >> 20);
    println!("measured {READERS} readers that read nothing cost the two nodes {grown:?} MiB");
    assert!(
        grown.iter().all(|grown| *grown < MAX_GROWTH_BYTES >> 20),
        "the nodes grew by {grown:?} MiB"
    );
    cluster.evidence(&[]).await.assert_no_violations();
    drop(idle);
}

#[tokio::test]
async fn a_page_at_another_node_is_a_client_of_the_holder() {
    let cluster = start_three(LEASE, &[]).await;
    let first = cluster.client(0);
    let calls = json!([{"id": "map", "name": "map", "args": {}}]);
    let model = json!({"provider": "scripted", "script": [{"calls": calls}, {"text": "Done."}]});
    let mut graceful = agent(model, vec![client("map")]);
    graceful["client_grace"] = json!("700ms");
    first.define("a", &graceful).await;
    let new = json!({"id": "seen", "agent": "a"});
    first.post("/v1/conversations", &new).await.expect(201);
    let page = cluster.client(1).events("seen", None).await;
    send_message(first, "seen", "a", "go").await;
    first.wait_for_pending("seen", "map", "client_exec").await;
    // The end of a younger call's grace without a client shows that the grace of ours is over.
    send_message(first, "unseen", "a", "go").await;
    let without = first.wait_until_settled("unseen", 1).await;
    assert_eq!(without.result("map")["error_type"], "NO_CLIENT");
    let still = first.journal("seen").await;
    assert_eq!(
        *still.result("map"),
        Value::Null,
        "the client at node 1 is not counted: {still:#?}"
    );
    drop(page);
    let gone = first.wait_until_settled("seen", 1).await;
    assert_eq!(gone.result("map")["error_type"], "NO_CLIENT");
    cluster.evidence(&[]).await.assert_no_violations();
}

#[tokio::test]
async fn one_of_two_pages_at_two_nodes_keeps_the_call_open_when_the_other_leaves() {
    let cluster = start_three(LEASE, &[]).await;
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
    send_message(first, "seen", "a", "go").await;
    first.wait_for_pending("seen", "map", "client_exec").await;
    drop(leaves);
    // The end of a call's grace that began after that client left shows that ours would be over.
    send_message(first, "unseen", "a", "go").await;
    let without = first.wait_until_settled("unseen", 1).await;
    assert_eq!(without.result("map")["error_type"], "NO_CLIENT");
    assert_eq!(*first.journal("seen").await.result("map"), Value::Null);
    let path = "/v1/conversations/seen/calls/map/resolution";
    let answer = json!({"result": {"lat": 1}});
    retry_post(cluster.client(2), path, None, &answer).await.expect(200);
    let second = retry_post(cluster.client(1), path, None, &json!({"result": 2})).await;
    second.expect_problem(409, "call-not-open");
    let journal = first.wait_until_settled("seen", 1).await;
    assert_eq!(journal.result("map")["result"], json!({"lat": 1}));
    drop(stays);
    cluster.evidence(&[]).await.assert_no_violations();
}
