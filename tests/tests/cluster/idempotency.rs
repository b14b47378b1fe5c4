//! Requests that are repeated across a kill have one effect and get the first answer.

use abide_tests::client::{Answer, Client, resolution};
use abide_tests::node::Site;
use abide_tests::tool_server::ToolServer;
use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{calls_once, http, human};

/// The conversations whose calls are resolved concurrently.
const CONVERSATIONS: [&str; 12] =
    ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10", "c11"];

async fn send_with_key(
    client: &Client,
    method: Method,
    path: &str,
    key: &str,
    body: &Value,
) -> Answer {
    client.ask(method, path, Some(key), Some(body)).await.unwrap()
}

#[tokio::test]
async fn a_message_id_is_known_after_a_kill() {
    let site = Site::new(ABIDE);
    let node = site.start().await;
    site.client.define("a", &calls_once(vec![human("ask")])).await;
    let path = "/v1/conversations/c/messages";
    let body = json!({"text": "hello", "agent": "a", "message_id": "m"});
    let first = site.client.post(path, &body).await;
    node.kill().await;

    let _node = site.start().await;
    assert_eq!(site.client.post(path, &body).await, first);
    let other = json!({"text": "good-bye", "agent": "a", "message_id": "m"});
    site.client.post(path, &other).await.expect_problem(422, "invalid-request");
    let new = json!({"text": "hello", "message_id": "n"});
    site.client.post(path, &new).await.expect_problem(409, "turn-in-flight");
    site.client.wait_for_pending("c", "ask", "elicitation").await;
    site.client.resolve("c", "ask", json!({"result": 1})).await.expect(200);
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(site.client.post(path, &body).await, first);
    assert_eq!(site.client.journal("c").await, journal);
    assert_eq!(journal.of("user_msg").count(), 1);
}

#[tokio::test]
async fn every_mutating_call_gives_its_first_answer_again_after_a_kill() {
    let site = Site::new(ABIDE);
    let node = site.start().await;
    let agent = calls_once(vec![human("ask")]);
    let calls = [
        (Method::PUT, "/v1/agents/a".to_owned(), agent),
        (Method::POST, "/v1/conversations".to_owned(), json!({"agent": "a"})),
        (Method::POST, "/v1/conversations".to_owned(), json!({"agent": "a", "id": "c"})),
        (Method::POST, "/v1/conversations/c/messages".to_owned(), json!({"text": "hello"})),
        (Method::POST, resolution("c", "ask"), json!({"result": "yes"})),
    ];
    let mut answers = Vec::new();
    for (n, (method, path, body)) in calls.iter().enumerate() {
        if path.ends_with("resolution") {
            site.client.wait_for_pending("c", "ask", "elicitation").await;
        }
        let key = format!("key-{n}");
        let answer = send_with_key(&site.client, method.clone(), path, &key, body).await;
        assert!([200, 201, 202].contains(&answer.status), "{path}: {:#}", answer.body);
        answers.push(answer);
    }
    let journal = site.client.wait_until_settled("c", 1).await;
    node.kill().await;

    let _node = site.start().await;
    for (n, (method, path, body)) in calls.iter().enumerate() {
        let key = format!("key-{n}");
        let again = send_with_key(&site.client, method.clone(), path, &key, body).await;
        assert_eq!(again, answers[n], "{method} {path}");
        let mut other = body.clone();
        other["metadata"] = json!({"other": true});
        let other = send_with_key(&site.client, method.clone(), path, &key, &other).await;
        assert_eq!(other.status, 422, "{method} {path}: {:#}", other.body);
    }
    assert_eq!(site.client.journal("c").await, journal);
    let all = site.client.get("/v1/conversations").await.expect(200);
    assert_eq!(all["conversations"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_cancel_gives_its_first_answer_again_after_a_kill() {
    let site = Site::new(ABIDE);
    let node = site.start().await;
    site.client.define("a", &calls_once(vec![human("ask")])).await;
    site.client.send_message("c", "a", "go").await;
    site.client.wait_for_pending("c", "ask", "elicitation").await;
    let path = "/v1/conversations/c/cancel";
    let cancel = async || site.client.ask(Method::POST, path, Some("k"), None).await.unwrap();
    let first = cancel().await;
    assert_eq!(first.body, json!({"cancelled": true}));
    node.kill().await;

    let _node = site.start().await;
    assert_eq!(cancel().await, first);
    assert_eq!(site.client.cancel("c").await.expect(200), json!({"cancelled": false}));
    assert_eq!(site.client.wait_until_settled("c", 1).await.outcomes(), ["cancelled"]);
}

#[tokio::test]
async fn a_dispatch_that_was_killed_runs_on_and_its_repeat_joins_it() {
    let (site, tools) = (Site::new(ABIDE), ToolServer::start().await);
    let node = site.start().await;
    site.client.define("a", &calls_once(vec![http("runs", &tools, "/hold", json!({}))])).await;
    let new = json!({"id": "c", "agent": "a"});
    site.client.post("/v1/conversations", &new).await.expect(201);
    let asking = tokio::spawn(dispatch(site.client.clone()));
    let first = tools.requests.nth(1).await;
    node.kill().await;
    assert_eq!(asking.await.unwrap(), None, "the killed node answered");

    let _node = site.start().await;
    let second = tools.requests.nth(2).await;
    assert_eq!(first.header("idempotency-key"), second.header("idempotency-key"));
    assert_eq!((&first.body["attempt"], &second.body["attempt"]), (&json!(1), &json!(2)));
    let again = tokio::spawn(dispatch(site.client.clone()));
    tools.release();
    let answer = again.await.unwrap().unwrap().expect(200);
    assert_eq!(answer, json!({"ok": true, "result": {"did": {"n": 2}, "attempt": 2}}));
    assert_eq!(dispatch(site.client.clone()).await.unwrap().expect(200), answer);
    let journal = site.client.journal("c").await;
    journal.assert_settled();
    assert_eq!((journal.of("dispatch").count(), tools.requests.all().len()), (1, 2));
    assert_eq!(journal.of("turn_started").count(), 0);
}

async fn dispatch(client: Client) -> Option<Answer> {
    let body = json!({"tool": "runs", "input": {"n": 2}});
    client.ask(Method::POST, "/v1/conversations/c/dispatch", Some("d"), Some(&body)).await
}

#[tokio::test]
async fn one_of_racing_answers_is_accepted_even_if_the_node_is_killed_meanwhile() {
    let site = Site::new(ABIDE);
    let node = site.start().await;
    site.client.define("a", &calls_once(vec![human("ask")])).await;
    for id in CONVERSATIONS {
        site.client.send_message(id, "a", "go").await;
        site.client.wait_for_pending(id, "ask", "elicitation").await;
    }
    let (answered, first_answer) = tokio::sync::oneshot::channel();
    let answered = std::sync::Mutex::new(Some(answered));
    let answers = join_all(CONVERSATIONS.iter().flat_map(|id| {
        let (client, answered) = (&site.client, &answered);
        (0..8).map(move |n| async move {
            let body = json!({"result": n});
            let path = resolution(id, "ask");
            let answer = client.ask(Method::POST, &path, None, Some(&body)).await;
            // The first answer triggers the kill.
            answered.lock().unwrap().take().map(|answered| answered.send(()));
            (id, n, answer)
        })
    }));
    let kill = async {
        first_answer.await.unwrap();
        node.kill().await;
    };
    let (answers, ()) = futures::join!(answers, kill);

    let _node = site.start().await;
    for id in CONVERSATIONS {
        let mine = answers.iter().filter(|(conversation, ..)| **conversation == id);
        let answered: Vec<_> = mine.filter_map(|(_, n, a)| Some((n, a.as_ref()?))).collect();
        let accepted: Vec<_> = answered.iter().filter(|(_, a)| a.status == 200).collect();
        let refused = answered.iter().filter(|(_, a)| a.status == 409).count();
        assert_eq!(accepted.len() + refused, answered.len(), "{answered:#?}");
        assert!(accepted.len() <= 1, "{answered:#?}");
        if site.client.journal(id).await.of("resolution").next().is_none() {
            assert!(accepted.is_empty(), "{answered:#?}");
            site.client.resolve(id, "ask", json!({"result": "late"})).await.expect(200);
        }
        let journal = site.client.wait_until_settled(id, 1).await;
        assert_eq!(journal.of("resolution").count(), 1);
        if let Some((n, _)) = accepted.first() {
            assert_eq!(journal.result("ask")["result"], **n);
        }
    }
}
