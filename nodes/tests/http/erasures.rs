//! Erasures of a person: what goes, what names the alias, what the report says, and who may ask.

use abide_registry::store::{ChainEntry, verify_chain};
use serde_json::{Value, json};

use crate::access::{GuardedApi, key, key_line};
use crate::api::{Api, ApiResponse, DEADLINE};
use crate::issuer::{Issuer, IssuerKey};

const ERASURES: &str = "/v1/erasures";

/// A node whose people come from an issuer, and an agent that answers with a word.
struct Site {
    guarded: GuardedApi,
    issuer: Issuer,
    key: IssuerKey,
}

impl Site {
    async fn start() -> Self {
        let key = IssuerKey::ed25519("k");
        let issuer = Issuer::start(&[&key]).await;
        let mut entry = issuer.entry();
        entry["claims"] = json!({"groups": "/groups", "roles": "/roles", "name": "/name",
            "tenant": {"const": "default"}});
        entry["roles"] = json!({"person": ["user"], "boss": ["user", "tenant-admin"]});
        let roles = ["author", "backend", "tenant-admin", "auditor", "user"];
        let keys = roles.map(|role| key_line(role, &[role]));
        let file =
            json!({"keys": keys, "issuers": [entry], "tenants": {"default": {}, "acme": {}}});
        let site = Self { guarded: GuardedApi::start(&file).await, issuer, key };
        let agent = json!({"model": {"provider": "scripted", "script": [{"text": "hi"}]}});
        let defined = site.guarded.send("author", "PUT", "/v1/agents/demo", agent).await;
        assert_eq!(defined.status, 200, "{defined:?}");
        site
    }

    async fn backend(&self, method: &str, path: &str, body: Value) -> ApiResponse {
        self.guarded.send("backend", method, path, body).await
    }

    async fn admin(&self, method: &str, path: &str, body: Value) -> ApiResponse {
        self.guarded.send("tenant-admin", method, path, body).await
    }

    /// Sends a request as this person.
    async fn person(&self, sub: &str, method: &str, path: &str, body: Value) -> ApiResponse {
        let role = if sub == "boss" { "boss" } else { "person" };
        let mut claims = self.issuer.claims(sub, &[role]);
        claims["name"] = json!(format!("Name of {sub}"));
        let request = self.guarded.api.request(method, path).bearer_auth(self.key.sign(&claims));
        let request = if body.is_null() { request } else { request.json(&body) };
        self.guarded.api.send(request).await
    }

    async fn create(&self, id: &str, owner: &str, members: &[&str]) {
        let body = json!({"id": id, "agent": "demo", "owner": owner, "members": members});
        let created = self.backend("POST", "/v1/conversations", body).await;
        assert_eq!(created.status, 201, "{created:?}");
    }

    /// Sends a message as this person, and waits for its turn.
    async fn say(&self, sub: &str, id: &str, text: &str) {
        let path = format!("/v1/conversations/{id}/messages?wait=10s");
        let body = json!({"text": text, "agent": "demo"});
        let said = self.person(sub, "POST", &path, body).await;
        assert_eq!(said.status, 200, "{said:?}");
    }

    async fn erase(&self, owner: &str) -> String {
        let begun = self.admin("POST", ERASURES, json!({"owner": owner})).await;
        assert_eq!(begun.status, 202, "{begun:?}");
        begun.body["id"].as_str().unwrap().to_owned()
    }

    /// Waits until the erasure is done. Returns its report.
    async fn report(&self, id: &str) -> Value {
        let deadline = tokio::time::Instant::now() + DEADLINE;
        loop {
            let read = self.admin("GET", &format!("{ERASURES}/{id}"), Value::Null).await.body;
            if read["state"] == "done" {
                return read;
            }
            assert!(tokio::time::Instant::now() < deadline, "{read}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    async fn journal(&self, id: &str) -> Value {
        let path = format!("/v1/conversations/{id}/journal?limit=1000");
        self.backend("GET", &path, Value::Null).await.body
    }

    async fn chain(&self) -> Vec<Value> {
        let url = format!("http://{}/admin/operations?limit=1000", self.guarded.api.node.admin);
        let request = reqwest::Client::new().get(url).bearer_auth(key("auditor"));
        let body: Value = request.send().await.unwrap().json().await.unwrap();
        let entries = body["operations"].clone();
        let chain: Vec<ChainEntry> = serde_json::from_value(entries.clone()).unwrap();
        assert_eq!(verify_chain(&chain), Ok(()));
        entries.as_array().unwrap().clone()
    }
}

#[tokio::test]
async fn what_a_person_has_goes_and_what_is_others_names_an_alias() {
    let site = Site::start().await;
    for id in ["a1", "a2"] {
        site.create(id, "ada", &["bob"]).await;
        site.say("ada", id, "mine").await;
    }
    site.create("b1", "bob", &["ada", "eve"]).await;
    site.say("bob", "b1", "ours").await;
    site.say("ada", "b1", "hello bob").await;
    site.say("bob", "b1", "hello ada").await;
    let id = site.erase("ada").await;
    let report = site.report(&id).await;
    let alias = report["alias"].as_str().unwrap();
    assert!(alias.starts_with("erased:") && alias.len() == 23, "{report}");
    assert_eq!(report["conversations"], 2);
    assert_eq!(report["conversation_ids"], json!(["a1", "a2"]));
    assert_eq!(report["rewritten"]["conversations"], 1);
    assert!(report.get("owner").is_none() && !report.to_string().contains("\"ada\""), "{report}");
    assert!(report["ended_at"].is_string() && !report["not_covered"][0].is_null());
    for id in ["a1", "a2"] {
        let gone = site.backend("GET", &format!("/v1/conversations/{id}"), Value::Null).await;
        assert_eq!(gone.status, 404);
    }
    let journal = site.journal("b1").await;
    let names = |principal: &str| {
        let events = journal["events"].as_array().unwrap();
        events.iter().filter(|it| it["data"]["principal"] == principal).count()
    };
    assert_eq!((names("bob"), names(alias), names("ada")), (2, 1, 0), "{journal}");
    assert!(!journal.to_string().contains("Name of ada"));
    assert!(journal.to_string().contains("hello ada"), "what people wrote stays");
    let shared = site.backend("GET", "/v1/conversations/b1", Value::Null).await.body;
    assert_eq!(shared["members"], json!([alias, "eve"]));
    assert_eq!(site.person("ada", "GET", "/v1/conversations/b1", Value::Null).await.status, 404);
    // The conversation goes on.
    site.say("bob", "b1", "and now").await;
}

#[tokio::test]
async fn a_persons_schedules_go_and_the_operators_audit_names_the_erasure() {
    let site = Site::start().await;
    let schedule = json!({"agent": "demo", "every": "1h", "text": "tick"});
    for (sub, name) in [("ada", "adas"), ("bob", "bobs")] {
        let put = site.person(sub, "PUT", &format!("/v1/schedules/{name}"), schedule.clone()).await;
        assert_eq!(put.status, 201, "{put:?}");
    }
    let key = json!({"name": "k", "roles": ["backend"]});
    let made = site.person("boss", "POST", "/v1/keys", key).await;
    assert_eq!(made.status, 201, "{made:?}");
    let report = site.report(&site.erase("ada").await).await;
    assert_eq!(report["deleted"]["schedules"], 1);
    let read = |name: &str| format!("/v1/schedules/{name}");
    assert_eq!(site.backend("GET", &read("adas"), Value::Null).await.status, 404);
    assert_eq!(site.backend("GET", &read("bobs"), Value::Null).await.status, 200);
    let id = site.erase("boss").await;
    let report = site.report(&id).await;
    assert_eq!(report["deleted"]["api_keys"], 1);
    assert_eq!(report["rewritten"]["operations"], 1);
    let chain = site.chain().await;
    let text = json!(chain).to_string();
    assert!(!text.contains("boss"), "{text}");
    let created = chain.iter().find(|it| it["operation"] == "key.create").unwrap();
    assert_eq!(created["by"], format!("erasure:{id}"));
    assert_eq!(created["redacted"]["erasure"], id);
    let begun = chain.iter().rfind(|it| it["operation"] == "erasure.start").unwrap();
    assert_eq!(begun["target"], id);
}

#[tokio::test]
async fn an_erasure_ends_while_the_person_goes_on_writing() {
    let site = Site::start().await;
    site.create("b1", "bob", &["ada"]).await;
    let id = site.erase("ada").await;
    let mut made = 0;
    let report = loop {
        let path = format!("/v1/conversations/new-{made}/messages");
        let body = json!({"text": "still here", "agent": "demo"});
        let sent = site.person("ada", "POST", &path, body).await;
        assert_eq!(sent.status, 202, "{sent:?}");
        made += 1;
        let read = site.admin("GET", &format!("{ERASURES}/{id}"), Value::Null).await.body;
        if read["state"] == "done" {
            break read;
        }
        assert!(made < 5_000, "{read}");
    };
    // Whatever was made is deleted, or is there and may be erased, too.
    let again = site.report(&site.erase("ada").await).await;
    let total =
        report["conversations"].as_u64().unwrap() + again["conversations"].as_u64().unwrap();
    assert_eq!(total, made);
    assert_ne!(again["alias"], report["alias"]);
    let left = site.backend("GET", "/v1/conversations?owner=ada", Value::Null).await.body;
    assert_eq!(left["conversations"], json!([]));
}

#[tokio::test]
async fn a_repeated_request_gets_the_same_erasure() {
    let site = Site::start().await;
    let keyed = async |owner: &str| {
        let request = site.guarded.api.request("POST", ERASURES).bearer_auth(key("tenant-admin"));
        let request = request.header("Idempotency-Key", "k").json(&json!({"owner": owner}));
        site.guarded.api.send(request).await
    };
    let first = keyed("ada").await;
    assert_eq!(first.status, 202);
    let id = first.body["id"].as_str().unwrap();
    site.report(id).await;
    assert_eq!(keyed("ada").await.body, first.body, "also when it is done");
    keyed("bob").await.names("Idempotency-Key");
    let other = site.erase("ada").await;
    assert_ne!(other, id);
    site.report(&other).await;
    let listed = site.admin("GET", &format!("{ERASURES}?limit=1"), Value::Null).await.body;
    assert_eq!(listed["erasures"][0]["id"], id);
    let cursor = listed["cursor"].as_str().unwrap();
    let path = format!("{ERASURES}?limit=1&cursor={cursor}");
    let rest = site.admin("GET", &path, Value::Null).await.body;
    assert_eq!((&rest["erasures"][0]["id"], &rest["cursor"]), (&json!(other), &Value::Null));
    assert!(rest["erasures"][0].get("conversation_ids").is_none());
}

#[tokio::test]
async fn erasures_asked_for_at_once_are_one() {
    let site = Site::start().await;
    for number in 0..20 {
        site.create(&format!("a{number}"), "ada", &[]).await;
    }
    let ids = futures::future::join_all((0..8).map(|_| site.erase("ada"))).await;
    let first = site.report(&ids[0]).await;
    let listed = site.admin("GET", ERASURES, Value::Null).await.body;
    let all = listed["erasures"].as_array().unwrap();
    let mut total = 0;
    for id in &ids {
        total = total.max(site.report(id).await["conversations"].as_u64().unwrap());
    }
    assert_eq!((total, first["state"].as_str()), (20, Some("done")));
    assert!(all.len() <= ids.len(), "{listed}");
}

#[tokio::test]
async fn an_erasure_that_cannot_be_meant_is_refused() {
    let api = Api::start().await;
    let long = "x".repeat(10_000);
    for owner in ["", &long, "a\u{0}b", "system", "anonymous"] {
        api.post(ERASURES, json!({"owner": owner})).await.names("owner");
    }
    for body in [json!({}), json!({"owner": null}), json!({"owner": 7}), json!({"owner": ["a"]})] {
        api.post(ERASURES, body).await.names("owner");
    }
    api.post(ERASURES, json!({"owner": "ada", "also": 1})).await.names("also");
    for id in ["er_unknown", "run_1", "..%2F", "%00", "a%20b"] {
        let path = format!("{ERASURES}/{id}");
        api.get(&path).await.is_problem(404, "not-found");
    }
    api.get(&format!("{ERASURES}?cursor=zz")).await.names("cursor");
    for limit in [0, 1_001] {
        api.get(&format!("{ERASURES}?limit={limit}")).await.names("limit");
    }
    assert_eq!(api.get(&format!("{ERASURES}?limit=1000")).await.status, 200);
    assert_eq!(api.get(ERASURES).await.body, json!({"erasures": [], "cursor": null}));
}
