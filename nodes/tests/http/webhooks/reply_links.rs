//! Reply links: a page that asks, and an answer that counts once.

use reqwest::Response;
use serde_json::{Value, json};

use super::receiver::Receiver;
use crate::access::{GuardedApi, TOKEN_KEY, key_line};

const PAY: &str = "/v1/conversations/c/calls/call_1_1/resolution";

/// A node with a webhook that has links, and an agent whose tool must be approved.
struct Site {
    guarded: GuardedApi,
    receiver: Receiver,
    _keys: tempfile::TempDir,
}

impl Site {
    async fn start(links: Value, approval: Value) -> Self {
        let receiver = Receiver::start().await;
        let keys = tempfile::TempDir::new().unwrap();
        let pem = keys.path().join("key.pem");
        std::fs::write(&pem, TOKEN_KEY).unwrap();
        let roles = ["author", "backend", "tenant-admin", "user", "approver"];
        let lines: Vec<Value> = roles.iter().map(|role| key_line(role, &[role])).collect();
        let file = json!({"keys": lines, "tokens": {"keys": [format!("file:{}", pem.display())]},
            "tenants": {"default": {"allowed_hosts": [receiver.host()]}}});
        let flags = ["--public-url".to_owned(), "https://abide.example.com/x/".to_owned()];
        let guarded = GuardedApi::start_with(&file, &flags).await;
        let pay = json!({"name": "pay", "args": {"to": "a@b.c", "subject": "<b>500</b>"}});
        let script = json!([{"calls": [pay]}, {"text": "Done."}]);
        let tool =
            json!({"name": "pay", "approval": approval, "run": {"native": "demo_send_email"}});
        let agent = json!({"model": {"provider": "scripted", "script": script}, "tools": [tool]});
        let defined = guarded.send("author", "PUT", "/v1/agents/payer", agent).await;
        assert_eq!(defined.status, 201, "{defined:?}");
        let webhook = json!({"url": receiver.url("/ok"), "events": ["call.suspended",
            "call.voted", "call.resolved"], "links": links});
        let stored = guarded.send("tenant-admin", "PUT", "/v1/webhooks/ops", webhook).await;
        assert_eq!(stored.status, 201, "{stored:?}");
        Self { guarded, receiver, _keys: keys }
    }

    /// A payment is asked for. Returns the paths of the links: to the page, to approve, to deny.
    async fn ask(&self) -> [String; 3] {
        let body = json!({"agent": "payer", "text": "please pay"});
        let sent = self.guarded.send("user", "POST", "/v1/conversations/c/messages", body).await;
        assert_eq!(sent.status, 202, "{sent:?}");
        let notice = self.receiver.nth("/ok", 0).await;
        assert_eq!(notice.body["type"], "call.suspended");
        let links = &notice.body["data"]["links"];
        ["page", "approve", "deny"].map(|name| {
            let link = links[name].as_str().unwrap_or_else(|| panic!("{}", notice.body));
            link.strip_prefix("https://abide.example.com/x").unwrap().to_owned()
        })
    }

    async fn open(&self, path: &str) -> (u16, String) {
        text(self.guarded.api.request("GET", path).send().await.unwrap()).await
    }

    async fn answer(&self, path: &str, form: &'static str) -> (u16, String) {
        let request = self.guarded.api.request("POST", path).body(form);
        // A browser sends this with the form of a page that sends no referrer.
        let request = request.header("Origin", "null");
        let form_type = "application/x-www-form-urlencoded";
        text(request.header("Content-Type", form_type).send().await.unwrap()).await
    }

    async fn pending(&self) -> usize {
        let pending = self.guarded.get("backend", "/v1/pending").await;
        pending.body["pending"].as_array().unwrap().len()
    }
}

async fn text(response: Response) -> (u16, String) {
    let policy = response.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("script"), "{policy}");
    assert_eq!(response.headers()["referrer-policy"], "no-referrer");
    (response.status().as_u16(), response.text().await.unwrap())
}

#[tokio::test]
async fn to_open_a_link_decides_nothing_and_its_form_decides_once() {
    let site = Site::start(json!(true), json!("requires_approval")).await;
    let [page, approve, deny] = site.ask().await;
    for (path, buttons) in [(&page, 2), (&approve, 1), (&deny, 1)] {
        let (status, html) = site.open(path).await;
        assert_eq!(status, 200);
        assert_eq!(html.matches("<button").count(), buttons);
        assert!(html.contains("&lt;b&gt;500&lt;/b&gt;") && !html.contains("<b>500"), "{html}");
        assert!(!html.contains("<script"));
        assert_eq!(site.pending().await, 1);
    }
    let (status, _) = site.answer(&page, "reason=x").await;
    assert_eq!((status, site.pending().await), (422, 1));
    let (status, html) = site.answer(&page, "decision=approve&reason=fine").await;
    assert!(status == 200 && html.contains("You approved"), "{html}");
    for answered in [site.answer(&page, "decision=deny").await, site.open(&page).await] {
        assert!(answered.0 == 410 && answered.1.contains("answered already"), "{answered:?}");
    }
    let resolved = site.receiver.nth("/ok", 1).await;
    assert_eq!(resolved.body["type"], "call.resolved");
    assert_eq!(resolved.body["data"]["by"], "link:ops");
    assert_eq!(resolved.body["data"]["reason"], "fine");
}

#[tokio::test]
async fn a_post_to_the_link_of_an_answer_gives_it() {
    let site = Site::start(json!(true), json!("requires_approval")).await;
    let [page, _, deny] = site.ask().await;
    assert_eq!(site.answer(&format!("{page}/maybe"), "").await.0, 404);
    let (status, html) = site.answer(&deny, "reason=too%20dear").await;
    assert!(status == 200 && html.contains("You denied"), "{html}");
    let resolved = site.receiver.nth("/ok", 1).await;
    assert_eq!(resolved.body["data"]["approved"], false);
    assert_eq!(resolved.body["data"]["reason"], "too dear");
}

#[tokio::test]
async fn a_link_answers_as_its_subject_under_the_policy_of_the_call() {
    let links = json!({"subject": "ann", "roles": ["approver"]});
    let approval = json!({"by": {"quorum": 2}});
    let site = Site::start(links, approval).await;
    let [page, ..] = site.ask().await;
    let (status, html) = site.answer(&page, "decision=approve").await;
    assert!(status == 200 && html.contains("1 of 2"), "{html}");
    let (status, _) = site.answer(&page, "decision=approve").await;
    assert_eq!(status, 403, "one vote each");
    let voted = site.receiver.nth("/ok", 1).await;
    assert_eq!(voted.body["type"], "call.voted");
    assert_eq!(voted.body["data"]["by"]["sub"], "ann");
    let body = json!({"approved": true});
    let other = site.guarded.send("approver", "POST", PAY, body).await;
    assert_eq!(other.status, 403, "a key is no person");
}

#[tokio::test]
async fn a_link_that_was_tampered_with_or_is_none_is_of_no_use() {
    let site = Site::start(json!(true), json!("requires_approval")).await;
    let [page, ..] = site.ask().await;
    let token = page.strip_prefix("/v1/replies/").unwrap();
    let mut parts: Vec<&str> = token.split('.').collect();
    let changed = parts[1].replacen('e', "f", 1);
    parts[1] = &changed;
    let minted = site
        .guarded
        .send(
            "backend",
            "POST",
            "/v1/tokens",
            json!({"subject": "eve",
        "calls": ["c/call_1_1/1"]}),
        )
        .await;
    let minted = minted.body["token"].as_str().unwrap().to_owned();
    let key = crate::access::key("approver");
    for wrong in [&*parts.join("."), "x", &minted, &key] {
        let path = format!("/v1/replies/{wrong}");
        assert_eq!(site.open(&path).await.0, 404, "{wrong}");
        assert_eq!(site.answer(&path, "decision=approve").await.0, 404, "{wrong}");
    }
    let with_link = site.guarded.api.request("GET", "/v1/me").bearer_auth(token);
    assert_eq!(with_link.send().await.unwrap().status(), 200, "it is a token for one answer");
    let read = site.guarded.api.request("GET", "/v1/conversations/c").bearer_auth(token);
    assert_eq!(read.send().await.unwrap().status(), 404);
    assert_eq!(site.pending().await, 1);
    let gone = site.guarded.send("tenant-admin", "DELETE", "/v1/webhooks/ops", Value::Null).await;
    assert_eq!(gone.status, 204);
    assert_eq!(site.answer(&page, "decision=approve").await.0, 404, "it ends with its webhook");
    assert_eq!(site.pending().await, 1);
}
