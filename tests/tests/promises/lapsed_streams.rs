//! A node that loses its lease ends the streams of turns: their clients go on elsewhere.

use abide_tests::cluster::Plan;
use abide_tests::model_server::{ModelServer, Piece};
use abide_tests::protocol_stream::{Protocol, ProtocolStream};
use abide_tests::redis::Redis;

use crate::ABIDE;
use crate::agents::agent;
use crate::cluster_state::{SHORT_LEASE_FLAGS, wait_for_readiness, wait_until_connected};

#[tokio::test]
async fn a_stream_at_a_node_that_loses_its_lease_says_so_and_is_told_again_elsewhere() {
    let model = ModelServer::start().await;
    let plan = Plan::new(ABIDE).with(&SHORT_LEASE_FLAGS).proxied();
    let cluster = plan.start(Redis::own().await, 3).await;
    wait_until_connected(&cluster).await;
    cluster.client(0).define("a", &agent(model.model(), vec![])).await;
    model.reply(vec![Piece::Text("One "), Piece::Hold, Piece::Text("message.")]);
    let ask = |node: usize| {
        ProtocolStream::open(cluster.client(node), Protocol::AgUi, ("a", "c"), "speak")
    };
    let mut told = ask(0).await;
    told.until("One ").await;
    let mut stays = ask(2).await;
    stays.until("One ").await;
    cluster.to_redis(2).refuse().await;
    cluster.to_redis(2).cut();
    let events = stays.rest().await;
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["code"]), (&"RUN_ERROR".into(), &"moved".into()), "{last:#}");
    model.release();
    assert_eq!(told.rest().await.last().unwrap()["type"], "RUN_FINISHED");
    assert_eq!(ask(1).await.rest().await.last().unwrap()["type"], "RUN_FINISHED");
    // A stream that the node opens afterwards is told to its end.
    cluster.to_redis(2).heal().await;
    wait_for_readiness(cluster.client(2), 200).await;
    assert_eq!(ask(2).await.rest().await.last().unwrap()["type"], "RUN_FINISHED");
    cluster.evidence(&[]).await.assert_no_violations();
}
