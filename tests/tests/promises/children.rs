//! Parents and sub-agents on different nodes: every call has one answer, whichever node dies.

use abide_tests::deadline::poll;
use abide_tests::journal::Journal;
use abide_tests::model_server::{ModelServer, Piece};
use abide_tests::tool_server::ToolServer;
use serde_json::json;

use crate::agents::{agent, client, http};
use crate::sub_agent_scenario::{
    ALL_VICTIMS, MAX_ROOTS, Scenario, Victims, child, cost, sub_agent,
};
use crate::three_nodes::{resolve, wait_until_all_up};

#[tokio::test]
async fn a_kill_while_the_childs_model_streams_ends_in_one_answer() {
    for victims in ALL_VICTIMS {
        let model = ModelServer::start().await;
        for _ in 0..MAX_ROOTS {
            model.reply(vec![Piece::Text("Half"), Piece::Hold, Piece::Text(" and half.")]);
        }
        let mut scenario =
            Scenario::start("1m", &agent(model.model(), vec![]), async |_, roots, _| {
                model.requests.nth(roots).await;
            })
            .await;
        let requests = model.requests.all().len();
        scenario.kill(victims).await;
        if !matches!(victims, Victims::Parents) {
            model.requests.nth(requests + 1).await;
        }
        model.release();
        scenario
            .expect_one_answer("Half and half.", &json!({"input_tokens": 101, "output_tokens": 11}))
            .await;
    }
}

#[tokio::test]
async fn a_kill_while_the_childs_tool_runs_ends_in_one_answer() {
    for victims in ALL_VICTIMS {
        let tools = ToolServer::start().await;
        let agent = sub_agent(http("hold", &tools, "/hold", json!({})));
        let mut scenario = Scenario::start("1m", &agent, async |_, roots, _| {
            tools.requests.nth(roots).await;
        })
        .await;
        scenario.kill(victims).await;
        let again = !matches!(victims, Victims::Parents);
        let key = format!("{}/it", scenario.child);
        let runs = async || {
            let all = tools.requests.all();
            let count = all.iter().filter(|run| run.call() == key).count();
            (count == 1 + usize::from(again)).then_some(())
        };
        poll("the child's tool to run as often as it must", runs).await;
        tools.release();
        scenario.expect_one_answer("child is done", &cost()).await;
        assert!(runs().await.is_some(), "the tool ran once too often");
    }
}

#[tokio::test]
async fn a_kill_while_the_child_waits_ends_in_one_answer_approved_elsewhere() {
    for victims in ALL_VICTIMS {
        let tools = ToolServer::start().await;
        let gated = http("send", &tools, "/answer", json!({"approval": "requires_approval"}));
        let mut scenario = Scenario::start("1m", &sub_agent(gated), async |client, _, child| {
            let waits = |its: &Journal| its.about("suspension", "it").count() == 1;
            client.wait_for(child, "the child to wait", waits).await;
        })
        .await;
        scenario.kill(victims).await;
        for number in 0..scenario.roots {
            let root = format!("c{number}");
            let path = format!("/v1/pending?conversation={root}");
            let inbox = scenario.third().get(&path).await.expect(200);
            let [open] = inbox["pending"].as_array().unwrap().as_slice() else {
                panic!("{inbox:#}");
            };
            assert_eq!(
                (&open["root_conversation_id"], &open["tool"]),
                (&json!(root), &json!("send"))
            );
            let child = child(scenario.third(), &root).await;
            assert_eq!(open["conversation_id"], child);
            let answer = json!({"approved": true});
            resolve(scenario.third(), &child, "it", answer).await.expect(200);
        }
        scenario.expect_one_answer("child is done", &cost()).await;
        assert_eq!(tools.requests.all().len(), scenario.roots);
    }
}

#[tokio::test]
async fn a_page_on_the_root_answers_a_child_whose_node_was_killed() {
    let mut kid = sub_agent(client("locate"));
    kid["client_grace"] = json!("30s");
    let mut scenario = Scenario::start("1m", &kid, async |client, _, child| {
        let waits = |its: &Journal| its.about("suspension", "it").count() == 1;
        client.wait_for(child, "the child to wait", waits).await;
    })
    .await;
    let mut pages = Vec::new();
    for number in 0..scenario.roots {
        pages.push(scenario.third().events(&format!("c{number}"), None).await);
    }
    scenario.kill(Victims::Childs).await;
    for (number, page) in pages.iter_mut().enumerate() {
        let root = format!("c{number}");
        let its = child(scenario.third(), &root).await;
        let snapshot = scenario.third().snapshot(&root).await;
        assert_eq!(snapshot["child_pending"][0]["conversation_id"], its, "{snapshot:#}");
        assert_eq!(snapshot["child_pending"][0]["kind"], "client_exec", "{snapshot:#}");
        let first = page.next().await.unwrap();
        assert_eq!(first.data["child_pending"], snapshot["child_pending"]);
        resolve(scenario.third(), &its, "it", json!({"result": "here"})).await.expect(200);
        let read = page.wait_for("child_call_closed").await;
        let closed = json!({"conversation_id": its, "call_id": "it", "suspension": 1});
        assert_eq!(read.last().unwrap().data, closed);
        assert!(read.iter().all(|frame| frame.name != "child_suspended"), "{read:#?}");
    }
    scenario.expect_one_answer("child is done", &cost()).await;
}

#[tokio::test]
async fn a_kill_between_the_childs_end_and_its_notification_ends_in_one_answer() {
    for victims in ALL_VICTIMS {
        let tools = ToolServer::start().await;
        let agent = sub_agent(http("hold", &tools, "/hold", json!({})));
        let mut scenario = Scenario::start("1m", &agent, async |_, roots, _| {
            tools.requests.nth(roots).await;
        })
        .await;
        // From here on the parent's node gets nothing, and keeps its conversation.
        scenario.cluster.stop(scenario.nodes[0]).await;
        tools.release();
        let ended = |its: &Journal| its.outcomes() == ["completed"];
        let its = scenario.third().wait_for(&scenario.child, "the child's end", ended).await;
        assert_eq!(its.of("told").count(), 0);
        scenario.kill(victims).await;
        if matches!(victims, Victims::Childs) {
            scenario.cluster.cont(scenario.nodes[0]);
        }
        scenario.expect_one_answer("child is done", &cost()).await;
    }
}

#[tokio::test]
async fn a_child_whose_node_was_stopped_goes_on_elsewhere_and_answers_once() {
    let tools = ToolServer::start().await;
    let agent = sub_agent(http("hold", &tools, "/hold", json!({})));
    let scenario = Scenario::start("2s", &agent, async |_, roots, _| {
        tools.requests.nth(roots).await;
    })
    .await;
    let stopped = scenario.nodes[1];
    scenario.cluster.stop(stopped).await;
    let key = format!("{}/it", scenario.child);
    let attempts = || {
        let all = tools.requests.all().into_iter();
        let runs = all.filter(|run| run.call() == key);
        runs.map(|run| run.body["attempt"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    poll("a second attempt", async || (attempts() == [1, 2]).then_some(())).await;
    tools.release();
    scenario.expect_one_answer("child is done", &cost()).await;
    let ended = scenario.third().journal(&scenario.child).await;
    scenario.cluster.cont(stopped);
    wait_until_all_up(&scenario.cluster).await;
    scenario.expect_one_answer("child is done", &cost()).await;
    assert_eq!(attempts(), [1, 2]);
    assert_eq!(scenario.third().journal(&scenario.child).await, ended, "nothing is added late");
}
