//! Who may use the MCP server, and where its clients get a credential.

use serde_json::json;

use crate::access::{GuardedApi, key_line};
use crate::api::Api;
use crate::issuer::{Issuer, IssuerKey};
use crate::mcp::{McpClient, accept, mail, text};

#[tokio::test]
async fn whoever_may_not_approve_is_not_asked_to() {
    let keys = json!([
        key_line("ada", &["user"]),
        key_line("ann", &["user", "approver"]),
        key_line("bot", &["backend"]),
        key_line("eve", &["user"]),
        key_line("app", &["approver"])
    ]);
    let guarded = GuardedApi::start(&json!({"keys": keys})).await;
    let (tool, arguments) = mail();
    let ada = McpClient::new(&guarded.api).by("ada");
    let waiting = ada.call(tool, arguments.clone()).await;
    assert_eq!(waiting["structuredContent"]["status"], "waiting", "{waiting:#}");
    assert_eq!(waiting["structuredContent"]["pending"][0]["may_answer"], false);
    // What is another's does not exist.
    let eve = McpClient::new(&guarded.api).by("eve");
    let empty = json!({"message": "", "conversation_id": "c"});
    for (tool, arguments) in
        [(tool, empty.clone()), ("abide_conversation", json!({"conversation_id": "c"}))]
    {
        let refused = eve.call(tool, arguments).await;
        assert_eq!(text(&refused), "conversation not found");
    }
    assert_eq!(
        eve.call("abide_pending", json!({})).await["structuredContent"]["pending"],
        json!([])
    );
    // An approver sees what waits, and has no tool for it.
    let app = McpClient::new(&guarded.api).by("app");
    let inbox = app.call("abide_pending", json!({})).await;
    assert_eq!(inbox["structuredContent"]["pending"][0]["may_answer"], true, "{inbox:#}");
    assert_eq!(app.tools().await, ["abide_pending"]);
    // Who may approve is asked to.
    let ann = McpClient::new(&guarded.api).by("ann");
    let own = json!({"message": "Write a mail", "conversation_id": "anns"});
    let asked = ann.call(tool, own.clone()).await;
    let yes = json!({"call_1_1/1": accept(json!({"approved": true}))});
    let done = ann.answer((tool, own), &asked, yes).await;
    assert!(text(&done["result"]).starts_with("The tool said"), "{done:#}");
    // The state of one caller is none of another's.
    let bot = McpClient::new(&guarded.api).by("bot");
    let seat = json!({"message": "Choose a seat", "conversation_id": "s"});
    let asked = bot.call(tool, seat.clone()).await;
    let id = asked["inputRequests"].as_object().unwrap().keys().next().unwrap();
    let aisle = json!({id: accept(json!({"answer": "aisle"}))});
    let stolen = ann.answer((tool, seat.clone()), &asked, aisle.clone()).await;
    assert_eq!(stolen["error"]["code"], -32602, "{stolen:#}");
    let done = bot.answer((tool, seat), &asked, aisle).await;
    assert_eq!(done["result"]["structuredContent"]["status"], "completed", "{done:#}");
}

#[tokio::test]
async fn a_client_without_a_token_learns_where_it_gets_one() {
    let issuer = Issuer::start(&[&IssuerKey::ed25519("k")]).await;
    let mut entry = issuer.entry();
    entry["claims"] = json!({"tenant": {"const": "default"}});
    let guarded =
        GuardedApi::start(&json!({"keys": [key_line("ada", &["user"])], "issuers": [entry]})).await;
    let base = format!("http://{}", guarded.api.node.public);
    for path in ["/mcp", "/mcp/demo"] {
        for credential in [None, Some("nonsense".to_owned())] {
            let client = McpClient { path, credential, ..McpClient::new(&guarded.api) };
            let refused = client.request("tools/list", json!({})).send().await.unwrap();
            assert_eq!(refused.status(), 401);
            let challenge = refused.headers()["www-authenticate"].to_str().unwrap().to_owned();
            let metadata = format!("/.well-known/oauth-protected-resource{path}");
            let expected =
                format!("Bearer error=\"invalid_token\", resource_metadata=\"{base}{metadata}\"");
            assert_eq!(challenge, expected);
            let found = guarded.api.get(&metadata).await;
            assert_eq!(found.status, 200);
            assert_eq!(found.body["resource"], format!("{base}{path}"));
            let issuers = found.body["authorization_servers"].as_array().unwrap();
            assert_eq!(issuers, &[issuer.entry()["issuer"].clone()]);
        }
    }
    let metadata = "/.well-known/oauth-protected-resource";
    assert_eq!(guarded.api.get(metadata).await.body["resource"], base);
    let request = guarded.api.request("GET", metadata).header("X-Forwarded-Proto", "https");
    let secure = guarded.api.send(request).await;
    assert_eq!(secure.body["resource"], base.replace("http:", "https:"));
    guarded.api.get(&format!("{metadata}/mcp/..%2f")).await.is_problem(404, "not-found");
    let open = Api::start().await;
    open.get(metadata).await.is_problem(404, "not-found");
}
