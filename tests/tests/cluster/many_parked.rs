//! Many parked conversations do not slow a start down.

use abide_tests::node::Site;
use futures::{StreamExt, stream};
use reqwest::Method;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{calls_once, human};
use crate::operators::wait_until_passivated;

const PARKED_CONVERSATIONS: usize = 2_000;
/// How many are created concurrently; they share fsyncs.
const MAX_CONCURRENT_CREATES: usize = 64;

#[tokio::test]
async fn a_start_with_2000_parked_conversations_touches_none_of_them() {
    let site = Site::new(ABIDE).with(&["--passivate-after", "20ms"]);
    let node = site.start().await;
    site.client.define("a", &calls_once(vec![human("ask")])).await;
    let creations =
        stream::iter(0..PARKED_CONVERSATIONS).for_each_concurrent(MAX_CONCURRENT_CREATES, |n| {
            let client = site.client.clone();
            async move {
                client.send_message(&format!("c{n}"), "a", "go").await;
            }
        });
    creations.await;
    assert_eq!(open(&site, PARKED_CONVERSATIONS).await, PARKED_CONVERSATIONS);
    wait_until_passivated(&site).await;
    node.kill().await;

    let _node = site.start().await;
    site.client.resolve("c1000", "ask", json!({"result": 1})).await.expect(200);
    let journal = site.client.wait_until_settled("c1000", 1).await;
    assert_eq!(journal.outcomes(), ["completed"]);
    let live = site.client.admin(Method::GET, "/admin/actors").await.expect(200);
    assert!(live["actors"].as_array().unwrap().len() <= 1, "{live:#}");
    assert_eq!(open(&site, PARKED_CONVERSATIONS - 1).await, PARKED_CONVERSATIONS - 1);
    assert_eq!(site.client.snapshot("c7").await["holder"], Value::Null);
}

/// Counts the open calls, page by page, once there are at least `enough`.
async fn open(site: &Site, enough: usize) -> usize {
    abide_tests::deadline::poll("the inbox to be full", async || {
        let (mut count, mut cursor) = (0, String::new());
        loop {
            let path = format!("/v1/pending?limit=1000{cursor}");
            let page = site.client.get(&path).await.expect(200);
            count += page["pending"].as_array().unwrap().len();
            match page["cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return (count >= enough).then_some(count),
            }
        }
    })
    .await
}
