//! Limits of a tool in the whole cluster: no more run at once, whichever nodes run them and die.

use abide_tests::deadline::poll;
use abide_tests::tool_server::ToolServer;
use serde_json::json;

use crate::agents::{calls_once, http};
use crate::three_nodes::{send_message, start_three};

const CALLS: usize = 6;
const LIMIT: usize = 2;

#[tokio::test]
async fn no_more_calls_run_at_once_in_the_cluster_than_the_limit_over_a_kill() {
    let tools = ToolServer::start().await;
    let mut cluster = start_three("2s", &[]).await;
    let limits = json!({"limits": {"concurrency": LIMIT, "per": "cluster"}});
    let agent = calls_once(vec![http("it", &tools, "/hold", limits)]);
    cluster.client(0).define("a", &agent).await;
    for number in 0..CALLS {
        let client = cluster.client(number % 3);
        send_message(client, &format!("c{number}"), "a", &format!("m{number}")).await;
    }
    tools.requests.nth(LIMIT).await;
    poll("all others to wait for a place", async || {
        let mut waiting = 0;
        for number in 0..CALLS {
            let path = format!("/admin/actors/c{number}");
            let answer = cluster.client(0).try_admin(reqwest::Method::GET, &path).await?;
            let waits_for = answer.body["why"]["waits_for"].as_str().unwrap_or_default().to_owned();
            waiting += usize::from(waits_for.starts_with("a place of it"));
        }
        (waiting == CALLS - LIMIT).then_some(())
    })
    .await;
    assert_eq!(tools.requests.all().len(), LIMIT, "no more than the limit began");

    cluster.kill(0).await;
    tools.release();
    for number in 0..CALLS {
        let journal = cluster.client(1).wait_until_settled(&format!("c{number}"), 1).await;
        assert_eq!(journal.outcomes(), ["completed"]);
        assert_eq!(journal.result("it")["ok"], true);
    }
}
