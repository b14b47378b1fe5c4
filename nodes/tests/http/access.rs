//! Callers are authenticated by the file of `--auth`, and may do what their roles permit.

use std::path::PathBuf;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::api::{Api, ApiResponse};

/// An Ed25519 key of `openssl genpkey`, for tests alone.
pub(crate) const TOKEN_KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n\
    -----END PRIVATE KEY-----\n";

/// A node with a file of `--auth`, beside which is the key of its tokens, `token.pem`.
pub(crate) struct GuardedApi {
    pub(crate) api: Api,
    directory: TempDir,
}

/// The keys of these tests: an id is a role, or roles with `+`.
pub(crate) fn key(id: &str) -> String {
    format!("abide_{id}_secret-of-a-test-that-nobody-else-has-{id}")
}

/// The line of the file for a key.
pub(crate) fn key_line(id: &str, roles: &[&str]) -> Value {
    let sha256: String = Sha256::digest(key(id)).iter().map(|byte| format!("{byte:02x}")).collect();
    let tenant = if roles == ["operator"] { json!(null) } else { json!("default") };
    json!({"id": id, "sha256": sha256, "tenant": tenant, "roles": roles, "name": id})
}

impl GuardedApi {
    pub(crate) async fn start(document: &Value) -> Self {
        Self::start_with(document, &[]).await
    }

    /// A node with these flags in addition.
    pub(crate) async fn start_with(document: &Value, more: &[String]) -> Self {
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("auth.yaml");
        std::fs::write(&file, document.to_string()).unwrap();
        std::fs::write(directory.path().join("token.pem"), TOKEN_KEY).unwrap();
        let workspaces = directory.path().join("workspaces");
        let flags =
            ["--auth", file.to_str().unwrap(), "--workspaces", workspaces.to_str().unwrap()];
        let flags: Vec<&str> = flags.into_iter().chain(more.iter().map(String::as_str)).collect();
        let api = Api::start_with(&flags).await;
        Self { api, directory }
    }

    /// A node with one key for each role.
    pub(crate) async fn with_roles() -> Self {
        let roles =
            ["user", "approver", "backend", "author", "tenant-admin", "auditor", "operator"];
        let keys: Vec<Value> = roles.iter().map(|role| key_line(role, &[role])).collect();
        Self::start(&json!({"keys": keys})).await
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.directory.path().join("auth.yaml")
    }

    /// Puts another document in force, in which a key of this id is new.
    pub(crate) async fn replace(&self, document: &Value, new: &str) {
        std::fs::write(self.file(), document.to_string()).unwrap();
        self.api.node.auth_reloader().reload();
        let in_force = async {
            while self.get(new, "/v1/me").await.status != 200 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(crate::api::DEADLINE, in_force).await.unwrap();
    }

    /// Sends a request with the key of this id.
    pub(crate) async fn send(
        &self,
        id: &str,
        method: &str,
        path: &str,
        body: Value,
    ) -> ApiResponse {
        let request = self.api.request(method, path).bearer_auth(key(id));
        let request = if body.is_null() { request } else { request.json(&body) };
        self.api.send(request).await
    }

    pub(crate) async fn get(&self, id: &str, path: &str) -> ApiResponse {
        self.send(id, "GET", path, Value::Null).await
    }
}

#[tokio::test]
async fn a_request_without_a_valid_credential_gets_one_answer_whatever_is_wrong() {
    let guarded = GuardedApi::with_roles().await;
    let request = || guarded.api.request("GET", "/v1/agents");
    let wrong_secret = format!("{}x", key("backend"));
    let mut details = Vec::new();
    for request in [
        request(),
        request().header("Authorization", "Basic YTpi"),
        request().bearer_auth("garbage"),
        request().bearer_auth(&wrong_secret),
        request().bearer_auth(key("nobody")),
        request().bearer_auth("eyJhbGciOiJub25lIn0.eyJpc3MiOiJhYmlkZSJ9."),
        request().bearer_auth(key("backend")).bearer_auth(key("backend")),
        guarded.api.request("GET", "/v1/agents?access_token=x").bearer_auth(key("backend")),
    ] {
        let refused = guarded.api.send(request).await;
        details.push(refused.is_problem(401, "unauthorized").to_owned());
        assert_eq!(refused.headers["www-authenticate"], "Bearer error=\"invalid_token\"");
    }
    details.dedup();
    assert_eq!(details.len(), 1);
    assert_eq!(guarded.get("backend", "/v1/agents").await.status, 200);
}

#[tokio::test]
async fn a_caller_may_do_what_the_roles_of_the_key_permit() {
    let guarded = GuardedApi::with_roles().await;
    let refused = guarded.get("approver", "/v1/agents").await;
    refused.is_problem(403, "forbidden");
    assert_eq!(refused.body["needs"], "read_agents");
    let definition = json!({"model": {"provider": "scripted", "script": [{"text": "hi"}]}});
    let refused = guarded.send("backend", "PUT", "/v1/agents/a", definition.clone()).await;
    refused.is_problem(403, "forbidden");
    assert_eq!(guarded.send("author", "PUT", "/v1/agents/a", definition).await.status, 201);
    let missing = guarded.send("operator", "POST", "/v1/conversations/c/cancel", json!({})).await;
    missing.is_problem(404, "not-found");
}

#[tokio::test]
async fn a_caller_learns_who_they_are() {
    let guarded = GuardedApi::with_roles().await;
    let me = guarded.get("backend", "/v1/me").await.body;
    let expected = json!({"tenant": "default", "subject": "key:backend", "name": "backend",
        "roles": ["backend"], "groups": [], "auth": "key"});
    assert_eq!(me, expected);
    assert_eq!(guarded.get("operator", "/v1/me").await.body.get("tenant"), None);
    let open = Api::start().await;
    let anybody = open.get("/v1/me").await.body;
    assert_eq!((&anybody["auth"], &anybody["subject"]), (&json!("none"), &json!("anonymous")));
}

#[tokio::test]
async fn a_name_that_a_caller_claims_is_refused_where_callers_are_authenticated() {
    let guarded = GuardedApi::with_roles().await;
    let request = guarded.api.request("GET", "/v1/me").bearer_auth(key("backend"));
    let refused = guarded.api.send(request.header("Abide-Principal", "ada")).await;
    assert!(refused.is_problem(422, "invalid-request").starts_with("Abide-Principal: "));
    let request = guarded.api.request("GET", "/v1/me").header("Abide-Principal", "ada");
    guarded.api.send(request).await.is_problem(401, "unauthorized");
}

#[tokio::test]
async fn static_files_and_health_checks_are_for_everybody_and_unknown_paths_are_not() {
    let guarded = GuardedApi::with_roles().await;
    let client = reqwest::Client::new();
    let public = format!("http://{}", guarded.api.node.public);
    let admin = format!("http://{}", guarded.api.node.admin);
    for (url, status) in [
        (format!("{public}/console/"), 200),
        (format!("{public}/console/abide.js"), 200),
        (format!("{public}/console/config.json"), 200),
        (format!("{admin}/console/"), 200),
        (format!("{admin}/console/config.json"), 200),
        (format!("{admin}/v1/me"), 401),
        (format!("{admin}/healthz"), 200),
        (format!("{admin}/readyz"), 200),
        (format!("{admin}/metrics"), 401),
        (format!("{admin}/admin/nodes"), 401),
        (format!("{public}/openapi.json"), 401),
        (format!("{public}/nowhere"), 401),
        (format!("{admin}/nowhere"), 401),
    ] {
        assert_eq!(client.get(&url).send().await.unwrap().status(), status, "{url}");
    }
    let nodes = client.get(format!("{admin}/admin/nodes")).bearer_auth(key("operator"));
    assert_eq!(nodes.send().await.unwrap().status(), 200);
    let nodes = client.get(format!("{admin}/admin/nodes")).bearer_auth(key("backend"));
    assert_eq!(nodes.send().await.unwrap().status(), 403);
}

#[tokio::test]
async fn a_file_that_changes_is_read_again_and_one_with_a_mistake_changes_nothing() {
    let guarded = GuardedApi::start(&json!({"keys": [key_line("one", &["backend"])]})).await;
    let ready = format!("http://{}/readyz", guarded.api.node.admin);
    let notes = async || {
        let text = reqwest::get(&ready).await.unwrap().text().await.unwrap();
        text.lines().filter(|line| line.starts_with("auth: ")).collect::<String>()
    };
    assert_eq!(notes().await, "");
    std::fs::write(guarded.file(), "keys: [{id: two, sha256: short, roles: [king]}]").unwrap();
    let faulty = "auth: the file has mistakes, and the one before it holds: \
                  keys[0].sha256, keys[0].roles[0]";
    while notes().await != faulty {
        tokio::task::yield_now().await;
    }
    assert_eq!(guarded.get("one", "/v1/me").await.status, 200);
    let document = json!({"keys": [key_line("two", &["backend"])]});
    std::fs::write(guarded.file(), document.to_string()).unwrap();
    guarded.api.node.auth_reloader().reload();
    while guarded.get("one", "/v1/me").await.status != 401 {
        tokio::task::yield_now().await;
    }
    assert_eq!(guarded.get("two", "/v1/me").await.status, 200);
    assert_eq!(notes().await, "");
}
