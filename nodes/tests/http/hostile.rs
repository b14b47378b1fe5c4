//! Requests that no honest client sends.

use serde_json::{Value, json};

use crate::api::Api;

fn problem(answer: &str, status: u16) -> Value {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    assert!(head.contains("content-type: application/problem+json"), "{answer}");
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["status"], status);
    body
}

#[tokio::test]
async fn a_path_that_is_not_utf8_cannot_be_read() {
    let api = Api::start().await;
    for path in ["/v1/agents/%ff", "/v1/conversations/%c3%28", "/v1/conversations/%ff/journal"] {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let body = problem(&api.raw(request.as_bytes()).await, 400);
        assert_eq!(body["type"], "/problems/invalid-request");
    }
}

#[tokio::test]
async fn an_id_that_clients_resolve_in_a_path_is_refused() {
    let api = Api::start().await;
    for id in [".", ".."] {
        let refused = api.post("/v1/conversations", json!({"agent": "demo", "id": id})).await;
        refused.names("id: ");
        let body = r#"{"agent": "demo", "text": "hello"}"#;
        let path = format!("/v1/conversations/{}/messages", id.replace('.', "%2e"));
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        problem(&api.raw(request.as_bytes()).await, 422);
    }
    let created = api.post("/v1/conversations", json!({"agent": "demo", "id": "..."})).await;
    assert_eq!(created.status, 201);
}

#[tokio::test]
async fn what_is_no_http_gets_a_problem() {
    let api = Api::start().await;
    for request in ["nonsense\r\n\r\n", "GET / HTTP/1.1\r\nHost: localhost\r\na b: c\r\n\r\n"] {
        let body = problem(&api.raw(request.as_bytes()).await, 400);
        assert_eq!(body["type"], "/problems/invalid-request");
    }
}

#[tokio::test]
async fn a_percent_sign_that_escapes_nothing_is_part_of_a_name() {
    let api = Api::start().await;
    for path in ["/v1/conversations/%", "/v1/conversations/%zz"] {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        problem(&api.raw(request.as_bytes()).await, 404);
    }
}

#[tokio::test]
async fn a_header_that_is_not_text_is_refused() {
    let api = Api::start().await;
    for name in ["Idempotency-Key", "Abide-Principal"] {
        let mut request =
            b"POST /v1/conversations/a/messages HTTP/1.1\r\nHost: localhost\r\n".to_vec();
        request.extend(b"Content-Type: application/json\r\nContent-Length: 2\r\n");
        request.extend(name.as_bytes());
        request.extend(b": \xff\xfe\r\nConnection: close\r\n\r\n{}");
        let body = problem(&api.raw(&request).await, 422);
        assert!(body["detail"].as_str().unwrap().contains(name), "{body}");
    }
}

#[tokio::test]
async fn headers_past_their_bound_are_refused() {
    let api = Api::start().await;
    let large = "x".repeat(40_000);
    let request = format!(
        "GET /v1/agents HTTP/1.1\r\nHost: localhost\r\nX: {large}\r\nConnection: close\r\n\r\n"
    );
    problem(&api.raw(request.as_bytes()).await, 431);
    let request = format!(
        "GET /v1/agents?x={large} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    );
    problem(&api.raw(request.as_bytes()).await, 431);
    let larger = "x".repeat(200_000);
    let request = format!("GET /v1/agents HTTP/1.1\r\nHost: localhost\r\nX: {larger}\r\n\r\n");
    let answer = api.raw(request.as_bytes()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test]
async fn a_body_that_never_ends_is_cut() {
    let api = Api::start().await;
    let mut request = b"POST /v1/conversations/a/messages HTTP/1.1\r\nHost: localhost\r\n".to_vec();
    request.extend(b"Content-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n");
    request.extend(vec![b' '; 4 << 20]);
    problem(&api.raw(&request).await, 413);
}

#[tokio::test]
async fn a_key_of_more_than_text_is_still_one_key() {
    let api = Api::start().await;
    let key = "\"'OR(1=1);\u{7e}{}[]";
    let body = json!({"agent": "demo"});
    let first = api.keyed(key, "POST", "/v1/conversations", body.clone()).await;
    let again = api.keyed(key, "POST", "/v1/conversations", body).await;
    assert_eq!((first.status, &first.body), (201, &again.body));
    let long = "k".repeat(256);
    let refused = api.keyed(&long, "POST", "/v1/conversations", json!({"agent": "demo"})).await;
    refused.names("Idempotency-Key");
}

#[tokio::test]
async fn a_target_of_another_form_is_not_found() {
    let api = Api::start().await;
    for line in ["OPTIONS *", "CONNECT [::1]:80", "GET http://127.0.0.1/nothing", "POST /%2e%2e/v1"]
    {
        let request = format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        problem(&api.raw(request.as_bytes()).await, 404);
    }
}

#[tokio::test]
async fn a_page_whose_name_was_rebound_reads_and_changes_nothing() {
    let api = Api::start_with(&["--allow-host", "abide.example,*.svc"]).await;
    let admin = format!("http://{}", api.node.admin);
    let client = reqwest::Client::new();
    let public = |path: &str| api.request("GET", path);
    let operators = |path: &str| client.get(format!("{admin}{path}"));
    let define = api.request("PUT", "/v1/agents/a").body("{}");
    let define = define.header("Content-Type", "application/json");
    for request in [define, public("/v1/agents"), operators("/admin/nodes"), operators("/healthz")]
    {
        let rebound = request.try_clone().unwrap().header("Host", "evil.example:8080");
        let refused = rebound.send().await.unwrap();
        assert_eq!(refused.status(), 403);
        assert_eq!(refused.headers()["content-type"], "application/problem+json");
        let body: Value = refused.json().await.unwrap();
        assert_eq!(body["type"], "/problems/forbidden");
        for host in ["abide.example", "abide.default.svc:80", "localhost", "[::1]:8080"] {
            let named = request.try_clone().unwrap().header("Host", host).send().await.unwrap();
            assert_ne!(named.status(), 403, "{host}");
        }
    }
}

#[tokio::test]
async fn a_mistake_is_named_and_not_sent_back_whole() {
    let api = Api::start().await;
    let name = "x".repeat(500_000);
    let refused = api.post("/v1/conversations", json!({"agent": "demo", name: 1})).await;
    assert!(refused.is_problem(422, "invalid-request").len() <= 2_000);
    let body = json!({"text": "a", "if_busy": "y".repeat(500_000)});
    let refused = api.post("/v1/conversations/a/messages", body).await;
    assert!(refused.is_problem(422, "invalid-request").len() <= 2_000);
}
