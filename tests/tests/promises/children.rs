//! Conversations that ask each other from node to node: every question has one answer, whoever
//! dies.

use abide_tests::deadline::poll;
use abide_tests::journal::Journal;
use abide_tests::model_server::{ModelServer, Piece};
use abide_tests::tool_server::ToolServer;
use serde_json::json;

use crate::agents::{agent, http};
use crate::rig::{resolve, together};
use crate::story::{ALL, STORIES, Story, Victims, child, cost, kid};

#[tokio::test]
async fn a_kill_while_the_childs_model_streams_ends_in_one_answer() {
    for victims in ALL {
        let model = ModelServer::start().await;
        for _ in 0..STORIES {
            model.reply(vec![Piece::Text("Half"), Piece::Hold, Piece::Text(" and half.")]);
        }
        let mut story = Story::begin("1m", &agent(model.model(), vec![]), async |_, roots, _| {
            model.requests.nth(roots).await;
        })
        .await;
        let asked = model.requests.all().len();
        story.kill(victims).await;
        if !matches!(victims, Victims::Parents) {
            model.requests.nth(asked + 1).await;
        }
        model.release();
        story.ends("Half and half.", &json!({"input_tokens": 101, "output_tokens": 11})).await;
    }
}

#[tokio::test]
async fn a_kill_while_the_childs_tool_runs_ends_in_one_answer() {
    for victims in ALL {
        let tools = ToolServer::start().await;
        let kid = kid(http("hold", &tools, "/hold", json!({})));
        let mut story = Story::begin("1m", &kid, async |_, roots, _| {
            tools.requests.nth(roots).await;
        })
        .await;
        story.kill(victims).await;
        let again = !matches!(victims, Victims::Parents);
        let key = format!("{}/it", story.child);
        let runs = async || {
            let all = tools.requests.all();
            let count = all.iter().filter(|run| run.header("idempotency-key") == key).count();
            (count == 1 + usize::from(again)).then_some(())
        };
        poll("the child's tool to run as often as it must", runs).await;
        tools.release();
        story.ends("kid is done", &cost()).await;
        assert!(runs().await.is_some(), "the tool ran once too often");
    }
}

#[tokio::test]
async fn a_kill_while_the_child_waits_ends_in_one_answer_by_whoever_approves_elsewhere() {
    for victims in ALL {
        let tools = ToolServer::start().await;
        let gated = http("send", &tools, "/answer", json!({"approval": "requires_approval"}));
        let mut story = Story::begin("1m", &kid(gated), async |client, _, child| {
            let waits = |its: &Journal| its.about("suspension", "it").count() == 1;
            client.wait_for(child, "the child to wait", waits).await;
        })
        .await;
        story.kill(victims).await;
        for number in 0..story.roots {
            let root = format!("c{number}");
            let path = format!("/v1/pending?conversation={root}");
            let inbox = story.third().get(&path).await.expect(200);
            let [open] = inbox["pending"].as_array().unwrap().as_slice() else {
                panic!("{inbox:#}");
            };
            assert_eq!(
                (&open["root_conversation_id"], &open["tool"]),
                (&json!(root), &json!("send"))
            );
            let child = child(story.third(), &root).await;
            assert_eq!(open["conversation_id"], child);
            let answer = json!({"approved": true});
            resolve(story.third(), &child, "it", answer).await.expect(200);
        }
        story.ends("kid is done", &cost()).await;
        assert_eq!(tools.requests.all().len(), story.roots);
    }
}

#[tokio::test]
async fn a_kill_between_the_childs_end_and_its_telling_ends_in_one_answer() {
    for victims in ALL {
        let tools = ToolServer::start().await;
        let kid = kid(http("hold", &tools, "/hold", json!({})));
        let mut story = Story::begin("1m", &kid, async |_, roots, _| {
            tools.requests.nth(roots).await;
        })
        .await;
        // From here on the parent hears nothing, and keeps its conversation.
        story.cluster.stop(story.nodes[0]).await;
        tools.release();
        let ended = |its: &Journal| its.outcomes() == ["completed"];
        let its = story.third().wait_for(&story.child, "the child's end", ended).await;
        assert_eq!(its.of("told").count(), 0);
        story.kill(victims).await;
        if matches!(victims, Victims::Childs) {
            story.cluster.cont(story.nodes[0]);
        }
        story.ends("kid is done", &cost()).await;
    }
}

#[tokio::test]
async fn a_child_whose_node_was_stopped_goes_on_elsewhere_and_answers_once() {
    let tools = ToolServer::start().await;
    let kid = kid(http("hold", &tools, "/hold", json!({})));
    let story = Story::begin("2s", &kid, async |_, roots, _| {
        tools.requests.nth(roots).await;
    })
    .await;
    let stopped = story.nodes[1];
    story.cluster.stop(stopped).await;
    let key = format!("{}/it", story.child);
    let attempts = || {
        let all = tools.requests.all().into_iter();
        let runs = all.filter(|run| run.header("idempotency-key") == key);
        runs.map(|run| run.body["attempt"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    poll("a second attempt", async || (attempts() == [1, 2]).then_some(())).await;
    tools.release();
    story.ends("kid is done", &cost()).await;
    let ended = story.third().journal(&story.child).await;
    story.cluster.cont(stopped);
    together(&story.cluster).await;
    story.ends("kid is done", &cost()).await;
    assert_eq!(attempts(), [1, 2]);
    assert_eq!(story.third().journal(&story.child).await, ended, "nothing is added late");
}
