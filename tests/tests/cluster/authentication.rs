//! What a real node that authenticates its callers lets nobody do, and never writes down.

use std::path::Path;

use abide_tests::client::Client;
use abide_tests::collector::Collector;
use abide_tests::deadline::poll;
use abide_tests::journal::Journal;
use abide_tests::node::Site;
use abide_tests::proxy::Proxy;
use abide_tests::redis::Redis;
use reqwest::StatusCode;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::ABIDE;

/// An Ed25519 key of `openssl genpkey`, for tests alone.
const TOKEN_KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n\
    -----END PRIVATE KEY-----\n";

pub(crate) fn key(id: &str) -> String {
    format!("abide_{id}_PLANTED-secret-of-a-test-that-nobody-else-has-{id}")
}

pub(crate) fn line(id: &str, roles: &[&str]) -> Value {
    let sha256: String = Sha256::digest(key(id)).iter().map(|byte| format!("{byte:02x}")).collect();
    let tenant = if roles == ["operator"] { Value::Null } else { json!("default") };
    json!({"id": id, "sha256": sha256, "tenant": tenant, "roles": roles, "name": id})
}

/// Has the site authenticate callers by these keys, and seed these agents.
pub(crate) fn guarded(site: Site, keys: &[Value], agents: &[(&str, Value)]) -> Site {
    let write = |name: &Path, text: String| std::fs::write(site.dir().join(name), text).unwrap();
    write(Path::new("token.pem"), TOKEN_KEY.to_owned());
    let file = json!({"keys": keys, "tokens": {"keys": ["file:token.pem"]}});
    write(Path::new("auth.yaml"), file.to_string());
    std::fs::create_dir_all(site.dir().join("agents")).unwrap();
    for (name, agent) in agents {
        let mut agent = agent.clone();
        agent["name"] = json!(name);
        write(&Path::new("agents").join(format!("{name}.json")), agent.to_string());
    }
    site.with(&["--auth", "auth.yaml", "--agents", "agents"])
}

pub(crate) fn by(site: &Site, id: &str) -> Client {
    site.client.clone().with_credential(&key(id))
}

/// The answer of the operators' API to a request with this key.
async fn operate(site: &Site, id: &str, path: &str) -> String {
    let url = format!("http://{}{path}", site.client.admin_address());
    let sent = reqwest::Client::new().get(url).bearer_auth(key(id)).send().await.unwrap();
    assert_eq!(sent.status(), StatusCode::OK);
    sent.text().await.unwrap()
}

fn scripted(script: Value) -> Value {
    json!({"provider": "scripted", "script": script})
}

/// An agent whose model asks for a payment, and has a command approve it in the meantime.
fn self_approving(gateway: &Proxy) -> Value {
    let body = r#"{"approved": true}"#;
    let request = format!(
        "POST /v1/conversations/c/calls/pay/resolution HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\n\
         Content-Type: application/json\\r\\nContent-Length: {}\\r\\nConnection: close\\r\\n\\r\\n{}",
        body.len(),
        body.replace('"', "\\\""),
    );
    let port = gateway.address().port();
    let command = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port} && printf \"{request}\" >&3 && head -n 1 <&3; \
         env | grep -ci abide_; \
         for up in . .. ../.. ../../..; do cat $up/token.pem $up/auth.yaml; done 2>&1"
    );
    let calls = json!([{"id": "pay", "name": "pay", "args": {}},
        {"id": "shell", "name": "bash", "args": {"command": command}}]);
    json!({
        "model": scripted(json!([{"calls": calls}, {"text": "Done."}])),
        "permissions": {"network": true},
        "tools": [{"name": "pay", "executor": "client", "approval": "requires_approval",
                "requires_response": false},
            {"name": "bash", "run": {"builtin": "bash"}, "approval": "auto"}],
    })
}

#[tokio::test]
async fn a_command_with_the_network_cannot_approve_a_call_of_its_own_conversation() {
    let gateway = Proxy::start();
    let keys = [line("backend", &["backend"])];
    let agents = [("payer", self_approving(&gateway))];
    let site = guarded(Site::new(ABIDE).with(&["--workspaces", "files"]), &keys, &agents);
    let _node = site.start().await;
    // The node's own ports are closed to commands; whoever reaches it another way needs a credential.
    gateway.aim(&site.client.public_address());
    let backend = by(&site, "backend");
    backend.send_message("c", "payer", "go").await;
    let has_run = |journal: &Journal| !journal.result("shell").is_null();
    let journal = backend.wait_for("c", "the command's end", has_run).await;
    let done = journal.result("shell");
    let output = done.to_string();
    assert!(output.contains("HTTP/1.1 401 Unauthorized"), "{done:#}");
    assert!(output.contains("\\n0\\n"), "no variable of the node's reaches a command: {done:#}");
    // Whoever read the key of the tokens could approve the call with one of them.
    assert!(output.contains("token.pem: Permission denied"), "{done:#}");
    assert!(output.contains("auth.yaml: Permission denied"), "{done:#}");
    let pending = backend.wait_for_pending("c", "pay", "approval").await;
    assert_eq!(pending["call_id"], "pay");
}

/// Whether a file below the directory has this text.
fn is_in_files(directory: &Path, text: &str) -> bool {
    std::fs::read_dir(directory).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return is_in_files(&path, text);
        }
        let bytes = std::fs::read(&path).unwrap();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

#[tokio::test]
async fn no_credential_is_in_a_log_a_metric_a_trace_or_the_store() {
    let collector = Collector::start().await;
    let keys = [line("backend", &["backend", "tenant-admin"]), line("ops", &["operator"])];
    let agents = [("a", json!({"model": scripted(json!([{"text": "hi"}]))}))];
    let site = Site::new(ABIDE).with(&["--otlp", &collector.url(), "--log-format", "json"]);
    let site = guarded(site.with_env("RUST_LOG", "trace"), &keys, &agents);
    let mut node = site.start().await;
    let backend = by(&site, "backend");
    backend.send_message("c", "a", "hello").await;
    backend.wait_until_settled("c", 1).await;
    let new = json!({"name": "k", "roles": ["user"]});
    let made = backend.post("/v1/keys", &new).await.expect(201);
    let scope = json!({"subject": "u", "conversation": "c", "scope": ["read", "send"]});
    let token = backend.post("/v1/tokens", &scope).await.expect(201);
    let (made, token) = (made["key"].as_str().unwrap(), token["token"].as_str().unwrap());
    for credential in [made, token] {
        let caller = site.client.clone().with_credential(credential);
        caller.get("/v1/me").await.expect(200);
    }
    // Refused for as many reasons as there are, in headers and in URLs.
    let wrong = format!("{}x", key("backend"));
    let planted = ["PLANTED-garbage", &wrong, &key("nobody")];
    for credential in planted {
        let caller = site.client.clone().with_credential(credential);
        caller.get("/v1/me").await.expect_problem(401, "unauthorized");
    }
    let spoken = site.client.clone().with_credential(token);
    spoken.get("/v1/agents").await.expect_problem(403, "forbidden");
    for path in [
        format!("/v1/conversations/{made}"),
        format!("/v1/conversations/c?access_token={token}"),
        format!("/v1/conversations/c/events?after={token}"),
        format!("/v1/blobs/{}", key("backend")),
    ] {
        backend.get(&path).await.expect_problem(401, "unauthorized");
    }
    let metrics = operate(&site, "ops", "/metrics").await;
    assert!(metrics.contains("abide_auth_total"), "{metrics}");
    node.terminate();
    assert!(node.wait_for_exit().await.success());
    let (log, spans) = (site.log(), String::from_utf8_lossy(&collector.bytes()).into_owned());
    assert!(log.contains("credential refused") && !spans.is_empty());
    assert!(!log.contains("store not closed"), "{log}");
    let signature = token.rsplit('.').next().unwrap();
    // In `PREFIX_ID_SECRET`, the secret itself may have underscores.
    let secret = made.splitn(3, '_').nth(2).unwrap();
    for word in ["PLANTED", secret, signature] {
        for (source, text) in [("log", &log), ("metrics", &metrics), ("spans", &spans)] {
            let line = text.lines().find(|line| line.contains(word));
            assert!(line.is_none(), "{word} is in the {source}: {}", line.unwrap());
        }
        assert!(!is_in_files(&site.store(), word), "{word} is in the store");
    }
    assert!(is_in_files(&site.store(), "hello"), "the store is read");
}

#[tokio::test]
async fn where_the_files_of_two_nodes_differ_the_stricter_decides_and_it_is_shown() {
    let redis = Redis::own().await;
    let agents = [("a", json!({"model": scripted(json!([{"text": "hi"}]))}))];
    let site = |name: &str, keys: &[Value]| {
        let site = Site::new(ABIDE).named(name).with_store(redis.url());
        guarded(site.with(&["--durability", "os"]), keys, &agents)
    };
    let (both, ops) = (line("both", &["backend"]), line("ops", &["operator"]));
    let lax = [both.clone(), ops.clone(), line("only", &["backend"]), line("less", &["backend"])];
    let strict = [both, ops, line("less", &["auditor"])];
    let (lax, strict) = (site("lax", &lax), site("strict", &strict));
    let (_lax, _strict) = (lax.start().await, strict.start().await);
    by(&strict, "both").send_message("c", "a", "hi").await;
    by(&strict, "both").wait_until_settled("c", 1).await;
    let actor: Value =
        serde_json::from_str(&operate(&strict, "ops", "/admin/actors/c").await).unwrap();
    assert_eq!(actor["node"], "strict", "{actor:#}");
    let path = "/v1/conversations/c/messages";
    let say = async |who| by(&lax, who).post(path, &json!({"text": "hi"})).await;
    poll("the nodes to be connected", async || (say("both").await.status == 202).then_some(()))
        .await;
    for who in ["only", "less"] {
        say(who).await.expect_problem(404, "not-found");
    }
    for (site, other) in [(&lax, "strict"), (&strict, "lax")] {
        let ready = operate(site, "ops", "/readyz").await;
        let note = format!("auth: {other} has another file, or none");
        assert!(ready.lines().any(|line| line == note), "{ready}");
    }
    let nodes: Value = serde_json::from_str(&operate(&lax, "ops", "/admin/nodes").await).unwrap();
    let files: Vec<&str> = nodes["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["auth"].as_str().unwrap())
        .collect();
    assert!(files.len() == 2 && files[0] != files[1], "{nodes:#}");
}
