//! Streams whose clients read nothing, or have gone: they cost little, and delay nothing.

use abide_tests::client::Client;
use abide_tests::deadline::poll;
use abide_tests::model_server::{ModelServer, Piece};
use abide_tests::node::Site;
use abide_tests::protocol_stream::{Protocol, ProtocolStream};
use reqwest::Method;
use serde_json::json;

use crate::ABIDE;
use crate::agents::agent;
use crate::ai_sdk::scripted;

/// How many streams are open at the node.
async fn open_streams(client: &Client) -> u64 {
    let text = client.admin(Method::GET, "/metrics").await.expect(200);
    let mut lines = text.as_str().unwrap().lines();
    let line = lines.find(|line| line.starts_with("abide_event_streams "));
    line.map_or(0, |line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
}

async fn wait_until_open(client: &Client, count: u64) {
    let what = format!("{count} streams to be open");
    poll(&what, async || (open_streams(client).await == count).then_some(())).await;
}

#[tokio::test]
async fn streams_that_are_not_read_cost_little_and_their_turns_end() {
    const STREAMS: usize = 20;
    const LETTERS: usize = 320_000;
    // A turn that is written, journalled and told has its text several times. Without a bound a stream
    // would hold it as a delta, in the message and in a snapshot, encoded as well.
    const MAX_BYTES_PER_STREAM: u64 = 2 << 20;
    let site = Site::new(ABIDE);
    let node = site.start().await;
    // Sent as a delta and in a message, among more small deltas than may wait for a listener.
    let text = "x".repeat(LETTERS) + &" y".repeat(200);
    site.client.define("a", &scripted(json!([{"text": text}]), vec![])).await;
    for protocol in Protocol::ALL {
        let before = node.memory();
        let mut unread = Vec::new();
        for n in 0..STREAMS {
            let id = format!("{}-{n}", protocol.conversation());
            let stream = ProtocolStream::open(&site.client, protocol, ("a", &id), "go").await;
            unread.push((id, stream));
        }
        for (id, _) in &unread {
            site.client.wait_until_settled(id, 1).await;
        }
        let grown = node.memory().saturating_sub(before) / STREAMS as u64;
        assert!(grown < MAX_BYTES_PER_STREAM, "{protocol:?}: {grown} bytes per stream");
        // Whoever reads at last gets all of it.
        let (_, read) = unread.pop().unwrap();
        let events = read.rest().await;
        let told: usize = events.iter().map(|event| event.to_string().matches('x').count()).sum();
        assert!(told >= LETTERS, "{protocol:?}: {told} letters were told");
        drop(unread);
        wait_until_open(&site.client, 0).await;
    }
}

#[tokio::test]
async fn a_client_that_goes_leaves_nothing_behind_and_its_turn_ends() {
    let (site, model) = (Site::new(ABIDE), ModelServer::start().await);
    let _node = site.start().await;
    site.client.define("a", &agent(model.model(), vec![])).await;
    let mut streams = Vec::new();
    for protocol in Protocol::ALL {
        model.reply(vec![Piece::Text("One "), Piece::Hold, Piece::Text("message.")]);
        let id = protocol.conversation();
        let mut stream = ProtocolStream::open(&site.client, protocol, ("a", &id), "speak").await;
        stream.until("One ").await;
        streams.push(stream);
    }
    wait_until_open(&site.client, Protocol::ALL.len() as u64).await;
    drop(streams);
    wait_until_open(&site.client, 0).await;
    model.release();
    for protocol in Protocol::ALL {
        let journal = site.client.wait_until_settled(&protocol.conversation(), 1).await;
        assert_eq!(
            (journal.outcomes(), journal.last_text()),
            (vec!["completed"], "One message.".into())
        );
    }
}
