//! A request that waits for its turn is answered, whatever becomes of the node of the conversation.

use abide_tests::model_server::{ModelServer, Piece};
use reqwest::Method;
use serde_json::json;

use crate::agents::{agent, human};
use crate::three_nodes::{holder_and_epoch, resolve, start_three};

const MESSAGES: &str = "/v1/conversations/c/messages";

#[tokio::test]
async fn a_wait_goes_on_when_the_node_of_the_conversation_is_killed() {
    let mut cluster = start_three("500ms", &[]).await;
    let model = ModelServer::start().await;
    let [first, waiting, third] = [0, 1, 2].map(|node| cluster.client(node).clone());
    first.define("a", &agent(model.model(), vec![human("ask")])).await;
    first.post("/v1/conversations", &json!({"id": "c", "agent": "a"})).await.expect(201);
    model.reply(vec![Piece::Text("Half"), Piece::Hold]);
    model.reply(vec![Piece::Text("Wait. "), Piece::Call("ask", "ask", json!({}))]);
    model.reply(vec![Piece::Text("Whole.")]);
    let body = json!({"text": "go", "message_id": "m"});
    let path = format!("{MESSAGES}?wait=30s");
    let wait = waiting.ask(Method::POST, &path, Some("k"), Some(&body));
    let kill = async {
        model.requests.nth(1).await;
        let (holder, _) = holder_and_epoch(&third, "c").await;
        assert_eq!(holder, "node-0", "the node of the request is another");
        cluster.kill(0).await;
    };
    let (rests, ()) = tokio::join!(wait, kill);
    let rests = rests.unwrap().expect(200);
    assert_eq!(rests["outcome"], "awaiting_input");
    assert_eq!(rests["pending"][0]["call_id"], "ask");
    // A repeat, at the third node, waits again, for the same turn.
    let again = third.ask(Method::POST, &path, Some("k"), Some(&body)).await;
    let again = again.unwrap().expect(200);
    assert_eq!((&again["turn_id"], &again["seq"]), (&rests["turn_id"], &rests["seq"]));
    resolve(&waiting, "c", "ask", json!({"result": "yes"})).await.expect(200);
    waiting.wait_until_settled("c", 1).await;
    let ended = waiting.ask(Method::POST, &path, Some("k"), Some(&body)).await.unwrap().expect(200);
    assert_eq!((&ended["outcome"], &ended["turn_id"]), (&json!("completed"), &rests["turn_id"]));
    assert_eq!(ended["message"]["content"][0]["text"], "Whole.");
}
