//! Nodes die and come back while commands wait for them.

use std::process::Stdio;

use abide_tests::cluster::Plan;
use abide_tests::deadline::{poll, within};
use abide_tests::node::Site;
use abide_tests::proxy::Proxy;
use abide_tests::redis::Redis;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::ABIDE;
use crate::shell::{Shell, finish};

#[tokio::test]
async fn a_message_that_is_waited_for_survives_the_death_of_its_node() {
    let plan = Plan::new(ABIDE).with(&["--lease", "2s"]);
    let mut cluster = plan.start(Redis::start().await, 2).await;
    let shell = Shell::of(cluster.clients());
    let waiting =
        shell.command(&["say", "c", "look it up", "--agent", "demo", "--wait", "60s"]).spawn();
    let client = cluster.client(1).clone();
    poll("the tool to run", async || {
        let journal = client.try_journal("c").await?;
        journal.of("tool_call").next().map(|_| ())
    })
    .await;
    cluster.kill(0).await;
    let said = finish(waiting.unwrap(), "say").await.expect(0);
    assert!(said.contains("I found:") && said.contains("\"attempt\": 2"), "{said}");
    let messages = shell.run(&["messages", "c", "-o", "jsonl"]).await.json_lines();
    let users = messages.iter().filter(|message| message["role"] == "user").count();
    assert_eq!(users, 1, "it was sent again as the same message: {messages:#?}");
}

#[tokio::test]
async fn a_message_that_is_waited_for_survives_the_restart_of_the_only_node() {
    let site = Site::new(ABIDE);
    let node = site.start().await;
    // Its address stays, as that of a service does.
    let service = Proxy::to(&site.client.public_address());
    let shell = Shell::new().with("ABIDE_URL", &format!("http://{}", service.address()));
    let waiting =
        shell.command(&["say", "c", "look it up", "--agent", "demo", "--wait", "60s"]).spawn();
    poll("the tool to run", async || {
        let journal = site.client.try_journal("c").await?;
        journal.of("tool_call").next().map(|_| ())
    })
    .await;
    node.kill().await;
    let _node = site.start().await;
    service.aim(&site.client.public_address());
    let said = finish(waiting.unwrap(), "say").await.expect(0);
    assert!(said.contains("\"attempt\": 2"), "{said}");
}

#[tokio::test]
async fn a_command_asks_the_next_node_when_one_is_away() {
    let mut cluster = Plan::new(ABIDE).start(Redis::start().await, 2).await;
    let shell = Shell::of(cluster.clients());
    cluster.kill(0).await;
    shell.run(&["new", "c", "--agent", "demo"]).await.expect(0);
    shell.run(&["show", "c"]).await.expect(0);
    shell.run(&["nodes"]).await.expect(0);
}

#[tokio::test]
async fn a_tail_goes_on_at_another_node_where_it_was() {
    let mut cluster =
        Plan::new(ABIDE).with(&["--lease", "2s"]).start(Redis::start().await, 2).await;
    let shell = Shell::of(cluster.clients());
    shell.run(&["new", "c", "--agent", "demo"]).await.expect(0);
    let mut tail = shell.command(&["tail", "c", "--after", "0", "-o", "jsonl"]);
    let mut tail = tail.stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let mut next = async || {
        let line = within("a frame", lines.next_line()).await.unwrap().unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    assert_eq!(next().await["event"], "snapshot");
    shell.run(&["say", "c", "one"]).await.expect(0);
    while next().await["event"] != "turn_completed" {}
    cluster.kill(0).await;
    shell.run(&["say", "c", "two"]).await.expect(0);
    let mut ids = Vec::new();
    loop {
        let frame = next().await;
        assert_ne!(frame["event"], "snapshot", "a stream that goes on does not begin again");
        ids.extend(frame["id"].as_str().map(str::to_owned));
        if frame["event"] == "turn_completed" {
            break;
        }
    }
    let expected: Vec<String> = (6..6 + ids.len()).map(|seq| seq.to_string()).collect();
    assert_eq!(json!(ids), json!(expected), "nothing is missing and nothing comes twice");
}
