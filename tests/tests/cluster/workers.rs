//! Workers and tools that call back, whose nodes are killed meanwhile.

use std::sync::Arc;
use std::time::Duration;

use abide_tests::client::Client;
use abide_tests::cluster::Plan;
use abide_tests::deadline::{poll, within};
use abide_tests::node::Site;
use abide_tests::redis::Redis;
use abide_tests::tool_server::ToolServer;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{calls_once, http, tool};

/// A tool whose calls workers of the queue `mail` take.
fn worked(name: &str) -> Value {
    tool(name, json!({"run": {"queue": "mail"}, "timeout": "1h"}))
}

/// Takes one call, however long that takes: a node may be away in between.
async fn take(client: &Client, worker: &str, lease: &str) -> Value {
    let body = json!({"worker": worker, "wait": "2s", "lease": lease});
    poll("a call for the worker", async || {
        let path = "/v1/queues/mail/lease";
        let answer = client.ask(reqwest::Method::POST, path, None, Some(&body)).await?;
        let work = answer.body["work"].as_array()?.first()?.clone();
        Some(work)
    })
    .await
}

async fn complete(client: &Client, work: &Value, result: Value) -> u16 {
    let path = format!("/v1/leases/{}/complete", work["lease_id"].as_str().unwrap());
    client.post(&path, &json!({"result": result})).await.status
}

#[tokio::test]
async fn a_queued_call_and_a_leased_one_survive_the_kill_of_their_node() {
    let site = Site::new(ABIDE);
    let node = site.start().await;
    site.client.define("a", &calls_once(vec![worked("one"), worked("two")])).await;
    site.client.send_message("c", "a", "go").await;
    let both = |kind: &'static str, count: usize| {
        site.client.wait_for("c", kind, move |journal| journal.of(kind).count() >= count)
    };
    both("tool_queued", 2).await;
    let before = take(&site.client, "w", "60s").await;
    node.kill().await;

    let node = site.start().await;
    assert_eq!(complete(&site.client, &before, json!("before")).await, 200);
    let after = take(&site.client, "w", "60s").await;
    node.kill().await;
    let _node = site.start().await;
    assert_eq!(complete(&site.client, &before, json!("again")).await, 409);
    assert_eq!(complete(&site.client, &after, json!("after")).await, 200);
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.outcomes(), ["completed"]);
    let result = |work: &Value| journal.result(work["call_id"].as_str().unwrap())["result"].clone();
    assert_eq!((result(&before), result(&after)), (json!("before"), json!("after")));
    let attempts: Vec<&Value> =
        journal.of("tool_queued").map(|event| &event["data"]["attempt"]).collect();
    assert_eq!(attempts, [1, 1], "a kill costs a call in a queue nothing");
}

#[tokio::test]
async fn a_lease_that_runs_out_while_no_node_lives_is_the_next_attempt() {
    let site = Site::new(ABIDE);
    let node = site.start().await;
    site.client.define("a", &calls_once(vec![worked("one")])).await;
    site.client.send_message("c", "a", "go").await;
    let first = take(&site.client, "gone", "1s").await;
    node.kill().await;

    let _node = site.start().await;
    let second = take(&site.client, "w", "60s").await;
    assert_eq!((&first["attempt"], &second["attempt"]), (&json!(1), &json!(2)));
    assert_eq!(complete(&site.client, &first, json!("late")).await, 409);
    assert_eq!(complete(&site.client, &second, json!("in time")).await, 200);
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.result("one")["result"], "in time");
}

#[tokio::test]
async fn a_tool_that_answered_202_calls_back_after_a_kill() {
    let (site, tools) = (Site::new(ABIDE), ToolServer::start().await);
    let node = site.start().await;
    let slow = http("slow", &tools, "/accept", json!({"timeout": "1h"}));
    site.client.define("a", &calls_once(vec![slow])).await;
    site.client.send_message("c", "a", "go").await;
    let asked = tools.requests.nth(1).await;
    let waits =
        |journal: &abide_tests::journal::Journal| journal.of("callback_awaited").count() == 1;
    site.client.wait_for("c", "the callback to be awaited", waits).await;
    let callback = &asked.body["callback"];
    assert!(callback["expires_at"].is_string(), "{callback}");
    let token = callback["token"].as_str().unwrap();
    let url = callback["url"].as_str().unwrap();
    assert!(url.ends_with(&format!("/v1/callbacks/{token}")), "{url}");
    node.kill().await;

    let _node = site.start().await;
    let path = format!("/v1/callbacks/{token}");
    site.client.post(&path, &json!({"progress": 1})).await.expect(204);
    site.client.post(&path, &json!({"result": {"paid": true}})).await.expect(200);
    let again = site.client.post(&path, &json!({"result": "again"})).await;
    again.expect_problem(409, "call-not-open");
    site.client.post(&path, &json!({"progress": 2})).await.expect_problem(409, "call-not-open");
    site.client.post(&format!("{path}x"), &json!({"result": 1})).await.expect(404);
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.result("slow")["result"], json!({"paid": true}));
    assert_eq!(tools.requests.all().len(), 1, "the tool was asked once");
}

#[tokio::test]
async fn a_callback_that_is_faster_than_the_answer_202_counts() {
    let (site, tools) = (Site::new(ABIDE), ToolServer::start().await);
    let _node = site.start().await;
    let slow = http("slow", &tools, "/hold", json!({"timeout": "1h", "run_timeout": "1h"}));
    site.client.define("a", &calls_once(vec![slow])).await;
    site.client.send_message("c", "a", "go").await;
    let asked = tools.requests.nth(1).await;
    let token = asked.body["callback"]["token"].as_str().unwrap();
    let path = format!("/v1/callbacks/{token}");
    site.client.post(&path, &json!({"error": "no money"})).await.expect(200);
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.result("slow")["error"], "no money");
    tools.release();
}

#[tokio::test]
async fn workers_at_any_node_get_each_call_once_while_nodes_are_killed() {
    const CONVERSATIONS: usize = 24;
    let plan = Plan::new(ABIDE).with(&["--lease", "2s", "--passivate-after", "500ms"]);
    let mut cluster = plan.start(Redis::start().await, 3).await;
    cluster.client(0).define("a", &calls_once(vec![worked("one"), worked("two")])).await;
    for n in 0..CONVERSATIONS {
        let client = cluster.client(n % 3);
        client.send_message(&format!("c{n}"), "a", "go").await;
    }
    let clients: Vec<Client> = cluster.clients().cloned().collect();
    let done = Arc::new(tokio::sync::watch::Sender::new(0_usize));
    let workers: Vec<_> = (0..9)
        .map(|n| {
            let (client, done) = (clients[n % 3].clone(), done.clone());
            tokio::spawn(work_on(client, format!("w{n}"), done))
        })
        .collect();
    let mut seen = done.subscribe();
    for (node, count) in [(1, 6), (2, 16), (0, 26)] {
        within("some calls to be done", seen.wait_for(|done| *done >= count)).await.unwrap();
        cluster.kill(node).await;
        cluster.restart(node).await;
    }
    for n in 0..CONVERSATIONS {
        let journal = cluster.client(0).wait_until_settled(&format!("c{n}"), 1).await;
        assert_eq!(journal.outcomes(), ["completed"]);
        for call in ["one", "two"] {
            let leases: Vec<&Value> = journal.about("tool_leased", call).collect();
            let last = &leases.last().unwrap()["data"];
            let result = &journal.result(call)["result"];
            assert_eq!(result["attempt"], last["attempt"], "who has the lease has the result");
            assert_eq!(result["worker"], last["worker"]);
        }
    }
    workers.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn what_a_worker_asked_of_a_node_that_died_is_forgotten() {
    const QUEUES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let plan = Plan::new(ABIDE).with(&["--lease", "2s"]);
    let mut cluster = plan.start(Redis::start().await, 3).await;
    let queued = |queue: &&str| tool(queue, json!({"run": {"queue": queue}, "timeout": "1h"}));
    let tools = QUEUES.iter().map(queued).collect();
    cluster.client(0).define("a", &calls_once(tools)).await;
    let lease = |client: &Client, queue: &str, worker: &str| {
        let (client, path) = (client.clone(), format!("/v1/queues/{queue}/lease"));
        let body = json!({"worker": worker, "wait": "60s"});
        async move { client.ask(reqwest::Method::POST, &path, None, Some(&body)).await }
    };
    for queue in QUEUES {
        tokio::spawn(lease(cluster.client(1), queue, "lost"));
    }
    let operator = cluster.client(0).clone();
    let queues = async || operator.admin(reqwest::Method::GET, "/admin/queues").await.body;
    let offered = |queues: &Value, worker: &str| -> Vec<u64> {
        let all = queues["queues"].as_array().unwrap().iter();
        let workers = all.flat_map(|queue| queue["workers"].as_array().unwrap());
        let named = workers.filter(|it| it["name"] == worker);
        named.map(|it| it["offered"].as_u64().unwrap()).collect()
    };
    poll("all requests to wait", async || {
        (offered(&queues().await, "lost").len() == QUEUES.len()).then_some(())
    })
    .await;
    cluster.kill(1).await;
    poll("the death to be known", async || {
        let nodes = operator.admin(reqwest::Method::GET, "/admin/nodes").await.body;
        let nodes = nodes["nodes"].as_array()?.clone();
        (nodes.iter().filter(|node| node["state"] == "up").count() == 2).then_some(())
    })
    .await;
    let asked: Vec<_> =
        QUEUES.map(|queue| tokio::spawn(lease(cluster.client(2), queue, "found"))).into();
    cluster.client(0).send_message("c", "a", "go").await;
    for asked in asked {
        let answer = asked.await.unwrap().unwrap();
        assert_eq!(answer.body["work"].as_array().unwrap().len(), 1, "{answer:?}");
    }
    let queues = queues().await;
    assert_eq!(offered(&queues, "found"), [1; QUEUES.len()]);
    let in_vain: u64 = offered(&queues, "lost").iter().sum();
    assert_eq!(in_vain, 0, "{queues}");
}

/// Takes calls and completes them, until it is aborted.
async fn work_on(client: Client, worker: String, done: Arc<tokio::sync::watch::Sender<usize>>) {
    loop {
        let body = json!({"worker": worker, "wait": "1s", "lease": "3s", "max": 2});
        let path = "/v1/queues/mail/lease";
        let answer = client.ask(reqwest::Method::POST, path, None, Some(&body)).await;
        let work = answer.and_then(|answer| answer.body["work"].as_array().cloned());
        for work in work.unwrap_or_default() {
            let path = format!("/v1/leases/{}/complete", work["lease_id"].as_str().unwrap());
            let result = json!({"attempt": work["attempt"], "worker": worker});
            let key = work["lease_id"].as_str();
            let body = json!({"result": result});
            let sent = async || client.ask(reqwest::Method::POST, &path, key, Some(&body)).await;
            // A node that is away is asked again, under the same key.
            let answer = tokio::time::timeout(Duration::from_secs(20), async {
                loop {
                    match sent().await {
                        Some(answer) if answer.status < 500 => return answer,
                        Some(_) | None => tokio::task::yield_now().await,
                    }
                }
            });
            if answer.await.is_ok_and(|answer| answer.status == 200) {
                done.send_modify(|done| *done += 1);
            }
        }
    }
}
