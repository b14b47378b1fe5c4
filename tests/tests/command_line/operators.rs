//! The operators' commands against one node and against two.

use abide_tests::cluster::Plan;
use abide_tests::deadline::poll;
use abide_tests::redis::Redis;

use crate::ABIDE;
use crate::shell::{Shell, demo};

#[tokio::test]
async fn why_names_what_is_waited_for_and_the_commands_that_help() {
    let (_site, _node, shell) = demo().await;
    shell.run(&["say", "walk", "send a mail", "--agent", "demo"]).await.expect(4);
    let why = shell.run(&["why", "walk"]).await.expect(0);
    for line in [
        "waits for  an approval of send_email (call_1_1)",
        "since      ",
        "who        an approver",
        "next       the call expires, in ",
        "helps      abide approve walk/call_1_1",
        "helps      abide fail walk/call_1_1",
    ] {
        assert!(why.contains(line), "{line}: {why}");
    }
    let json = shell.run(&["why", "walk", "-o", "json"]).await.json();
    assert_eq!(json["why"]["next"], "the call expires");
    let iso = shell.run(&["why", "walk", "--time", "iso"]).await.expect(0);
    assert!(iso.contains("since      20"), "{iso}");
    shell.run(&["why", "nobody"]).await.expect(3);
    let failed = shell.run(&["fail", "walk/call_1_1", "--error", "no mail today"]).await;
    assert_eq!(failed.expect(0), "failed\n");
    let said = shell.run(&["say", "walk", "hi", "--if-busy", "queue"]).await.expect(0);
    assert!(said.contains("hi"), "{said}");
    let messages = shell.run(&["messages", "walk"]).await.expect(0);
    assert!(messages.contains("no mail today"), "{messages}");
    shell.run(&["fail", "walk/call_1_1"]).await.expect(5);
}

#[tokio::test]
async fn actors_are_listed_killed_released_and_retried() {
    let (_site, _node, shell) = demo().await;
    shell.run(&["say", "c", "send a mail", "--agent", "demo"]).await.expect(4);
    let actors = shell.run(&["actors"]).await.expect(0);
    assert!(actors.contains("awaiting_input"), "{actors}");
    let alarms = shell.run(&["alarms", "-o", "json"]).await.json();
    assert_eq!(alarms["alarms"][0]["conversation_id"], "c");
    shell.run(&["kill", "c"]).await.expect(2);
    shell.run(&["kill", "c", "--yes", "--reason", "a test"]).await.expect(0);
    poll("the actor to be revived", async || {
        let actors = shell.run(&["actors", "-o", "json"]).await.json();
        (actors["actors"][0]["restarts"] == 1).then_some(())
    })
    .await;
    assert_eq!(shell.run(&["retry", "c"]).await.expect(0), "there was nothing to retry\n");
    assert_eq!(shell.run(&["release", "c"]).await.expect(0), "released\n");
    assert_eq!(shell.run(&["release", "c"]).await.expect(0), "nobody held it\n");
    let audit = shell.run(&["audit", "c", "-o", "json"]).await.json();
    assert_eq!(audit["entries"], serde_json::json!([]));
    shell.run(&["drain", "nowhere", "--yes"]).await.expect(3);
    shell.run(&["move", "c", "--node", "nowhere"]).await.expect(3);
}

#[tokio::test]
async fn a_conversation_is_moved_and_a_node_is_drained() {
    let cluster = Plan::new(ABIDE).start(Redis::start().await, 2).await;
    let shell = Shell::of(cluster.clients());
    poll("both nodes to be up", async || {
        let nodes = shell.run(&["nodes", "-o", "jsonl"]).await.json_lines();
        nodes.iter().filter(|node| node["state"] == "up").nth(1).map(|_| ())
    })
    .await;
    shell.run(&["say", "c", "send a mail", "--agent", "demo"]).await.expect(4);
    let moved = shell.run(&["move", "c", "--node", "node-1"]).await;
    assert_eq!(moved.expect(0), "moved to node-1\n");
    shell.run(&["move", "c", "--node", "node-1"]).await.expect(5);
    shell.run(&["drain", "node-0"]).await.expect(2);
    shell.run(&["drain", "node-0", "--yes"]).await.expect(0);
    poll("node-0 to drain", async || {
        let nodes = shell.run(&["nodes"]).await.expect(0);
        nodes.contains("drain").then_some(())
    })
    .await;
    shell.run(&["approve", "c/call_1_1"]).await.expect(0);
}
