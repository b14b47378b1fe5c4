//! Refused requests: unreadable bodies, unknown paths and methods, and a node that drains.

use serde_json::{Value, json};

use crate::api::Api;

#[tokio::test]
async fn a_body_that_cannot_be_read_is_refused() {
    let api = Api::start().await;
    let deep =
        format!("{{\"agent\":\"demo\",\"metadata\":{}1{}}}", "[".repeat(500), "]".repeat(500));
    for body in [
        b"".to_vec(),
        b"{".to_vec(),
        b"{} {}".to_vec(),
        b"{\"agent\":\"\xff\"}".to_vec(),
        b"{\"agent\":\"\\ud800\"}".to_vec(),
        b"{\"agent\":\"demo\",\"metadata\":{\"n\":1e999}}".to_vec(),
        b"\xef\xbb\xbf{\"agent\":\"demo\"}".to_vec(),
        deep.into_bytes(),
    ] {
        let request = api.request("POST", "/v1/conversations").body(body);
        let request = request.header("Content-Type", "application/json");
        api.send(request).await.is_problem(400, "invalid-request");
    }
}

#[tokio::test]
async fn a_whole_number_that_would_be_rounded_is_refused_with_its_field() {
    let api = Api::start().await;
    api.say_until("a", "mail", "suspended").await;
    let json = |method: &str, path: &str, body: &str| {
        let request = api.request(method, path).header("Content-Type", "application/json");
        request.body(body.replace('N', "12345678901234567890123"))
    };
    let resolution = "/v1/conversations/a/calls/call_1_1/resolution";
    for (method, path, body, field) in [
        ("POST", "/v1/conversations", r#"{"agent": "demo", "metadata": {"n": N}}"#, "metadata.n: "),
        ("POST", "/v1/conversations", r#"{"agent": "demo", "assigns": {"n": N}}"#, "assigns.n: "),
        ("POST", resolution, r#"{"approved": true, "args": {"to": [N]}}"#, "args.to.0: "),
        ("POST", resolution, r#"{"result": N}"#, "result: "),
        (
            "POST",
            "/v1/conversations/a/dispatch",
            r#"{"tool": "t", "input": {"n": N}}"#,
            "input.n: ",
        ),
        ("PUT", "/v1/agents/b", r#"{"model": {"options": {"seed": N}}}"#, "model.options.seed: "),
    ] {
        let refused = api.send(json(method, path, body)).await;
        let detail = refused.is_problem(422, "invalid-request");
        assert_eq!(detail, format!("{field}must fit into 64 bits"));
    }
    let yaml = api.request("PUT", "/v1/agents/b").header("Content-Type", "application/yaml");
    let refused = api.send(yaml.body("model: {options: {seed: 12345678901234567890123}}")).await;
    refused.names("model.options.seed: must fit into 64 bits");
    let number = api.send(json("POST", "/v1/conversations", "N")).await;
    number.names("body: must fit into 64 bits");
    assert_eq!(api.get("/v1/conversations/a").await.body["state"], "awaiting_input");
    let exact = r#"{"agent": "demo", "metadata": {"n": 18446744073709551615, "m": 1e300}}"#;
    assert_eq!(api.send(json("POST", "/v1/conversations", exact)).await.status, 201);
}

#[tokio::test]
async fn a_body_in_yaml_that_cannot_be_read_is_called_a_body() {
    let api = Api::start().await;
    let request = api.request("POST", "/v1/conversations");
    let request = request.header("Content-Type", "application/yaml");
    let refused = api.send(request.body("agent: demo\nmetadata: {a: 1, a: 2}\n")).await;
    let detail = refused.is_problem(400, "invalid-request");
    assert_eq!(detail, "the body is not YAML: the key a comes twice at line 2");
}

#[tokio::test]
async fn a_body_of_another_type_is_refused() {
    let api = Api::start().await;
    let body = r#"{"agent":"demo"}"#;
    for media in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "json"]
    {
        let request = api.request("POST", "/v1/conversations").header("Content-Type", media);
        let refused = api.send(request.body(body)).await;
        assert!(refused.is_problem(400, "invalid-request").contains("Content-Type"));
    }
    let page = api.request("POST", "/v1/conversations").header("Origin", "https://evil.example");
    api.send(page.body(body)).await.is_problem(400, "invalid-request");
    let bare = api.request("POST", "/v1/conversations").body(body);
    assert_eq!(api.send(bare).await.status, 201);
    let cased = api.request("POST", "/v1/conversations").body(body);
    let cased = cased.header("Content-Type", "Application/JSON; charset=UTF-8");
    assert_eq!(api.send(cased).await.status, 201);
}

#[tokio::test]
async fn a_request_without_preflight_from_another_origin_changes_nothing() {
    let api = Api::start().await;
    api.say_until("a", "mail", "suspended").await;
    let admin = format!("http://{}/admin", api.node.admin);
    let client = reqwest::Client::new();
    let public = |path: &str| api.request("POST", path);
    let kill = || client.post(format!("{admin}/actors/a/kill"));
    let drain = || client.post(format!("{admin}/nodes/n1/drain"));
    let cancel = || public("/v1/conversations/a/cancel");
    for request in [kill(), drain(), cancel()] {
        for media in [None, Some("text/plain"), Some("application/x-www-form-urlencoded")] {
            let request = request.try_clone().unwrap().header("Origin", "https://evil.example");
            let request = media.iter().fold(request, |it, media| it.header("Content-Type", *media));
            let refused = request.send().await.unwrap();
            assert_eq!(refused.status(), 400, "{media:?}");
            assert_eq!(refused.headers()["content-type"], "application/problem+json");
        }
    }
    assert_eq!(api.get("/v1/conversations/a").await.body["state"], "awaiting_input");
    let own = cancel().header("Origin", "http://a").header("Content-Type", "application/json");
    assert_eq!(api.send(own).await.body, json!({"cancelled": true}));
    let read = api.request("GET", "/v1/agents").header("Origin", "https://evil.example");
    assert_eq!(api.send(read).await.status, 200);
}

#[tokio::test]
async fn operators_get_problems_too() {
    let api = Api::start().await;
    let admin = format!("http://{}/admin", api.node.admin);
    let client = reqwest::Client::new();
    let large = "x".repeat(40_000);
    for (request, status) in [
        (client.get(format!("{admin}/actors/%ff")), 400),
        (client.post(format!("{admin}/actors/%ff/kill")), 400),
        (client.post(format!("{admin}/nodes/%ff/drain")), 400),
        (client.get(format!("{admin}/nodes")).header("X", large), 431),
    ] {
        let refused = request.send().await.unwrap();
        assert_eq!(refused.status(), status);
        assert_eq!(refused.headers()["content-type"], "application/problem+json");
    }
}

#[tokio::test]
async fn a_query_parameter_that_is_wrong_is_named() {
    let api = Api::start().await;
    for (query, parameter) in [
        ("conversations?limit=many", "limit: "),
        ("conversations?limit=0", "limit: "),
        ("conversations?state=asleep", "state: "),
        ("conversations?colour=red", "colour"),
        ("pending?kind=prayer", "kind: "),
        ("pending?limit=-1", "limit: "),
    ] {
        let response = api.get(&format!("/v1/{query}")).await;
        response.names(parameter);
        let detail = response.body["detail"].as_str().unwrap();
        assert!(!detail.contains("deserialize"), "{detail}");
    }
}

#[tokio::test]
async fn a_listing_without_parameters_refuses_any_of_them() {
    let api = Api::start().await;
    api.post("/v1/conversations", json!({"id": "a", "agent": "demo"})).await;
    for listing in [
        "/v1/agents",
        "/v1/agents/demo/decisions",
        "/v1/agents/demo/revisions",
        "/v1/conversations/a/decisions",
        "/v1/conversations/a/queue",
        "/v1/conversations/a/scheduled",
        "/v1/keys",
        "/v1/webhooks",
    ] {
        assert_eq!(api.get(listing).await.status, 200, "{listing}");
        api.get(&format!("{listing}?limit=1")).await.names("limit");
    }
    for listing in ["nodes", "queues"] {
        let url = format!("http://{}/admin/{listing}", api.node.admin);
        assert_eq!(reqwest::get(&url).await.unwrap().status(), 200, "{listing}");
        let refused = reqwest::get(format!("{url}?limit=1")).await.unwrap();
        assert_eq!(refused.status(), 422, "{listing}");
    }
}

#[tokio::test]
async fn a_seq_past_its_maximum_is_refused_with_its_field() {
    let api = Api::start().await;
    api.post("/v1/conversations", json!({"id": "a", "agent": "demo"})).await;
    let max = i64::MAX.unsigned_abs();
    let past = max + 1;
    for path in ["journal", "events"] {
        api.get(&format!("/v1/conversations/a/{path}?after={past}")).await.names("after: ");
    }
    let journal = api.get(&format!("/v1/conversations/a/journal?after={max}")).await;
    assert_eq!(journal.body["events"], json!([]));
    let events = api.request("GET", "/v1/conversations/a/events");
    api.send(events.header("Last-Event-ID", past)).await.names("Last-Event-ID: ");
    api.post("/v1/conversations/a/fork", json!({"at_seq": past})).await.names("at_seq: ");
}

#[tokio::test]
async fn a_body_over_its_limit_is_refused() {
    let api = Api::start().await;
    let text = "x".repeat(2 << 20);
    for path in ["/v1/conversations/a/messages", "/v1/conversations/a/dispatch"] {
        let refused = api.post(path, json!({"text": text})).await;
        refused.is_problem(413, "payload-too-large");
    }
    let chunked =
        futures::stream::iter((0..32).map(|_| Ok::<_, std::io::Error>("x".repeat(65_536))));
    let request = api.request("POST", "/v1/conversations/a/messages");
    let request = request.header("Content-Type", "application/json");
    let request = request.body(reqwest::Body::wrap_stream(chunked));
    api.send(request).await.is_problem(413, "payload-too-large");
}

#[tokio::test]
async fn an_unknown_path_is_not_found() {
    let api = Api::start().await;
    for path in ["/", "/v1", "/v1/agents/", "/v1/nothing", "/v1/conversations/a/nothing", "//v1"] {
        api.get(path).await.is_problem(404, "not-found");
    }
}

#[tokio::test]
async fn an_unknown_method_is_refused_and_allow_lists_the_known_ones() {
    let api = Api::start().await;
    for (method, path, allow) in [
        ("PATCH", "/v1/agents/demo", "PUT,GET,HEAD,DELETE"),
        ("DELETE", "/v1/agents", "GET,HEAD"),
        ("PUT", "/v1/conversations", "GET,HEAD,POST"),
        ("GET", "/v1/conversations/a/cancel", "POST"),
        ("OPTIONS", "/v1/pending", "GET,HEAD"),
        ("FROB", "/v1/pending", "GET,HEAD"),
    ] {
        let refused = api.send(api.request(method, path)).await;
        refused.is_problem(405, "invalid-request");
        let mut known: Vec<&str> = refused.headers["allow"].to_str().unwrap().split(',').collect();
        let mut expected: Vec<&str> = allow.split(',').collect();
        known.sort_unstable();
        expected.sort_unstable();
        assert_eq!(known, expected, "{method} {path}");
    }
}

#[tokio::test]
async fn a_head_is_a_get_without_its_body() {
    let api = Api::start().await;
    api.post("/v1/conversations", json!({"id": "a", "agent": "demo"})).await;
    for (path, status) in [
        ("/v1/agents", 200),
        ("/v1/conversations/a", 200),
        ("/v1/conversations/a/events", 200),
        ("/v1/conversations/none", 404),
    ] {
        let head = api.send(api.request("HEAD", path)).await;
        assert_eq!((head.status, &head.body), (status, &Value::Null), "{path}");
    }
}

#[tokio::test]
async fn a_draining_node_takes_no_work_and_still_answers_reads() {
    let api = Api::start().await;
    api.post("/v1/conversations", json!({"id": "a", "agent": "demo"})).await;
    api.node.drain(std::time::Duration::from_secs(60)).await;
    let refused = api.say("a", "hello").await;
    refused.is_problem(503, "unavailable");
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(api.get("/v1/conversations/a").await.status, 200);
}
