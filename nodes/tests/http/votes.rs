//! Approvals that several people must give, by those whom the definition asks.

use serde_json::{Value, json};

use crate::access::{GuardedApi, key_line};
use crate::api::ApiResponse;
use crate::issuer::{Issuer, IssuerKey, now};

const RESOLUTION: &str = "/v1/conversations/c/calls/call_1_1/resolution";
const DISPATCH: &str = "/v1/conversations/c/dispatch";

/// A node whose people come from an issuer; each of them has every role that these tests need.
struct Site {
    guarded: GuardedApi,
    issuer: Issuer,
    key: IssuerKey,
}

impl Site {
    /// Defines an agent whose tool `pay` is approved by these.
    async fn start(by: Value) -> Self {
        let key = IssuerKey::ed25519("k");
        let issuer = Issuer::start(&[&key]).await;
        let mut entry = issuer.entry();
        entry["claims"] = json!({"groups": "/groups", "roles": "/roles"});
        entry["roles"] = json!({"lead": ["user", "approver"], "clerk": ["approver"],
            "admin": ["approver", "tenant-admin"]});
        let keys = ["author", "backend", "tenant-admin"].map(|role| key_line(role, &[role]));
        let file = json!({"keys": keys, "issuers": [entry]});
        let site = Self { guarded: GuardedApi::start(&file).await, issuer, key };
        let pay = json!({"name": "pay", "args": {"to": "a@b.c", "subject": "500"}});
        let script = json!([{"when": "pay", "steps": [{"calls": [pay]}, {"text": "Done."}]}, {"steps": [{"text": "?"}]}]);
        let tool = json!({"name": "pay", "approval": {"by": by},
            "run": {"native": "demo_send_email"}});
        let agent = json!({"model": {"provider": "scripted", "script": script}, "tools": [tool]});
        let defined = site.guarded.send("author", "PUT", "/v1/agents/payer", agent).await;
        assert_eq!(defined.status, 201, "{defined:?}");
        site
    }

    fn token(&self, sub: &str, role: &str) -> String {
        let mut claims = self.issuer.claims(sub, &[role]);
        if sub != "eve" {
            claims["groups"] = json!(["finance"]);
        }
        self.key.sign(&claims)
    }

    async fn send(&self, token: &str, method: &str, path: &str, body: Value) -> ApiResponse {
        let request = self.guarded.api.request(method, path).bearer_auth(token);
        let request = if body.is_null() { request } else { request.json(&body) };
        self.guarded.api.send(request).await
    }

    /// Dan, who is an approver himself, asks for a payment.
    async fn ask(&self) -> String {
        let dan = self.token("dan", "lead");
        let body = json!({"agent": "payer", "text": "please pay"});
        let sent = self.send(&dan, "POST", "/v1/conversations/c/messages", body).await;
        assert_eq!(sent.status, 202, "{sent:?}");
        while self.get(&dan, "/v1/conversations/c").await["state"] != "awaiting_input" {
            tokio::task::yield_now().await;
        }
        dan
    }

    async fn get(&self, token: &str, path: &str) -> Value {
        self.send(token, "GET", path, Value::Null).await.body
    }

    async fn pending(&self, token: &str, query: &str) -> Vec<Value> {
        let page = self.get(token, &format!("/v1/pending{query}")).await;
        page["pending"].as_array().unwrap_or_else(|| panic!("{page}")).clone()
    }

    async fn vote(&self, token: &str, body: Value) -> ApiResponse {
        self.send(token, "POST", RESOLUTION, body).await
    }

    async fn approve(&self, token: &str) -> ApiResponse {
        self.vote(token, json!({"approved": true})).await
    }

    async fn event(&self, token: &str, kind: &str) -> Value {
        let journal = self.get(token, "/v1/conversations/c/journal").await;
        let events = journal["events"].as_array().unwrap();
        events.iter().rfind(|event| event["type"] == kind).unwrap()["data"].clone()
    }
}

fn is_refused(answer: &ApiResponse, because: &str) {
    answer.is_problem(403, "approval-forbidden");
    assert_eq!(answer.body["because"], because);
}

#[tokio::test]
async fn two_people_approve_and_the_inbox_says_who_may() {
    let site = Site::start(json!({"quorum": 2, "groups": ["finance"]})).await;
    let dan = site.ask().await;
    let [ada, bob, cy, eve] = ["ada", "bob", "cy", "eve"].map(|sub| site.token(sub, "clerk"));
    is_refused(&site.approve(&dan).await, "requester");
    is_refused(&site.approve(&eve).await, "role");
    assert_eq!(site.pending(&eve, "").await, [] as [Value; 0], "nothing is asked of her");
    let entry = &site.pending(&ada, "?mine=true").await[0];
    assert_eq!((&entry["may_answer"], &entry["needed"]), (&json!(true), &json!(2)));
    assert_eq!(entry["policy"]["groups"], json!(["finance"]));
    assert_eq!(entry["requesters"][0]["sub"], "dan");
    let vote = async || {
        let request = site.guarded.api.request("POST", RESOLUTION).bearer_auth(&ada);
        let request = request.header("Idempotency-Key", "k").json(&json!({"approved": true}));
        site.guarded.api.send(request).await
    };
    let recorded = vote().await;
    let status = json!({"status": "recorded", "votes": 1, "needed": 2});
    for (name, value) in status.as_object().unwrap() {
        assert_eq!(recorded.body[name], *value, "{recorded:?}");
    }
    assert_eq!(vote().await.body, recorded.body, "a repeat is the same vote");
    is_refused(&site.approve(&ada).await, "voted");
    assert_eq!(site.pending(&ada, "?mine=true").await, [] as [Value; 0]);
    let entry = &site.pending(&ada, "").await[0];
    assert_eq!((&entry["may_answer"], &entry["votes"][0]["by"]), (&json!(false), &json!("ada")));
    assert_eq!(site.pending(&dan, "?mine=true").await, [] as [Value; 0], "he asked for it");
    assert_eq!(site.pending(&dan, "?conversation=c").await[0]["may_answer"], false);

    let args = json!({"to": "a@b.c", "subject": "400"});
    let edited = site.vote(&bob, json!({"approved": true, "args": args})).await;
    assert_eq!((&edited.body["status"], &edited.body["votes"]), (&json!("recorded"), &json!(1)));
    let entry = &site.pending(&cy, "?mine=true&conversation=c").await[0];
    assert_eq!((&entry["args"], &entry["original_args"]["subject"]), (&args, &json!("500")));
    let accepted = site.approve(&cy).await;
    assert_eq!((accepted.status, &accepted.body["status"]), (200, &json!("accepted")));
    let resolution = site.event(&dan, "resolution").await;
    let subs = resolution["approvals"].as_array().unwrap().iter().map(|it| &it["sub"]);
    assert!(subs.eq(["bob", "cy"]), "{resolution}");
    assert_eq!(resolution["args"], args);
    let voted = site.event(&dan, "voted").await;
    assert_eq!((&voted["by"]["sub"], &voted["by"]["auth"]), (&json!("bob"), &json!("jwt")));
    let fingerprint = voted["args_fingerprint"].as_str().unwrap();
    assert_eq!(fingerprint.len(), 64, "not of a SHA-256: {fingerprint}");
    site.approve(&ada).await.is_problem(409, "call-not-open");
}

#[tokio::test]
async fn programs_vote_where_they_may_and_a_revoked_key_takes_its_vote_along() {
    let site = Site::start(json!({"quorum": 2, "services": true})).await;
    let dan = site.ask().await;
    let mut keys = Vec::new();
    for name in ["one", "two", "three"] {
        let body = json!({"name": name, "roles": ["approver"]});
        let made = site.guarded.send("tenant-admin", "POST", "/v1/keys", body).await;
        keys.push((made.body["id"].clone(), made.body["key"].as_str().unwrap().to_owned()));
    }
    assert_eq!(site.approve(&keys[0].1).await.body["status"], "recorded");
    let path = format!("/v1/keys/{}", keys[0].0.as_str().unwrap());
    let deleted = site.guarded.send("tenant-admin", "DELETE", &path, Value::Null).await;
    assert_eq!(deleted.status, 204);
    let second = site.approve(&keys[1].1).await.body;
    assert_eq!((&second["status"], &second["votes"]), (&json!("recorded"), &json!(1)));
    assert_eq!(site.approve(&keys[2].1).await.body["status"], "accepted");
    let approvals = site.event(&dan, "resolution").await["approvals"].clone();
    assert_eq!(approvals.as_array().unwrap().len(), 2);
    assert!(!approvals.to_string().contains(path.trim_start_matches("/v1/keys/")), "{approvals}");
}

#[tokio::test]
async fn without_more_one_person_approves_who_is_not_the_requester() {
    let site = Site::start(json!({})).await;
    let dan = site.ask().await;
    let body = json!({"name": "robot", "roles": ["approver"]});
    let robot = site.guarded.send("tenant-admin", "POST", "/v1/keys", body).await.body;
    is_refused(&site.approve(robot["key"].as_str().unwrap()).await, "service");
    is_refused(&site.approve(&dan).await, "requester");
    let dispatch =
        json!({"tool": "pay", "input": {"to": "a@b.c", "subject": "x"}, "approved": true});
    is_refused(&site.send(&dan, "POST", DISPATCH, dispatch).await, "requester");
    let wish = |scope: &str| json!({"approved": true, "remember": {"scope": scope, "for": "1h"}});
    let refused = site.vote(&site.token("ada", "clerk"), wish("agent")).await;
    refused.is_problem(403, "forbidden");
    assert_eq!(refused.body["needs"], "manage_decisions");
    let accepted = site.vote(&site.token("ada", "admin"), wish("agent")).await;
    assert_eq!(accepted.status, 200, "{accepted:?}");
}

#[tokio::test]
async fn a_second_factor_is_asked_for_and_a_dispatch_is_one_vote() {
    let site = Site::start(json!({"not": [], "mfa_within": "10m"})).await;
    let dan = site.ask().await;
    is_refused(&site.approve(&dan).await, "mfa");
    let mut claims = site.issuer.claims("dan", &["lead"]);
    claims["amr"] = json!(["pwd", "otp"]);
    claims["auth_time"] = json!(now() - 60);
    let with_factor = site.key.sign(&claims);
    let dispatch =
        json!({"tool": "pay", "input": {"to": "a@b.c", "subject": "x"}, "approved": true});
    is_refused(&site.send(&dan, "POST", DISPATCH, dispatch.clone()).await, "mfa");
    let sent = site.send(&with_factor, "POST", DISPATCH, dispatch).await;
    assert_eq!((sent.status, &sent.body["ok"]), (200, &json!(true)), "{sent:?}");
    let started = site.event(&dan, "dispatch_started").await;
    assert_eq!(started["identity"]["sub"], "dan");
    assert_eq!(started["gate"]["approvals"][0]["sub"], "dan");
    let accepted = site.approve(&with_factor).await;
    assert_eq!(accepted.body["status"], "accepted", "{accepted:?}");
}

#[tokio::test]
async fn a_dispatch_cannot_have_the_approvals_of_several() {
    let site = Site::start(json!({"not": [], "quorum": 2})).await;
    let dan = site.ask().await;
    let dispatch =
        json!({"tool": "pay", "input": {"to": "a@b.c", "subject": "x"}, "approved": true});
    site.send(&dan, "POST", DISPATCH, dispatch).await.names("approved: ");
}

#[tokio::test]
async fn a_gateway_asks_for_a_person_and_neither_approves_it() {
    let site = Site::start(json!({"services": true})).await;
    let dan = site.token("dan", "lead");
    let body = json!({"agent": "payer", "text": "please pay"});
    let request = site.guarded.api.request("POST", "/v1/conversations/c/messages").json(&body);
    let request = request.bearer_auth(crate::access::key("backend"));
    let sent = site.guarded.api.send(request.header("Abide-On-Behalf-Of", &dan)).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    while site.get(&dan, "/v1/conversations/c").await["state"] != "awaiting_input" {
        tokio::task::yield_now().await;
    }
    is_refused(&site.approve(&dan).await, "requester");
    let requesters = site.pending(&dan, "").await[0]["requesters"].clone();
    let subs = requesters.as_array().unwrap().iter().map(|it| it["sub"].as_str().unwrap());
    assert_eq!(subs.collect::<Vec<_>>(), ["key:backend", "dan"]);
    assert_eq!(site.approve(&site.token("ada", "clerk")).await.body["status"], "accepted");
}
