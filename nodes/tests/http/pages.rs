//! What pages use: the console, the module `abide.js`, and requests from other origins.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use reqwest::Response;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use crate::access::{GuardedApi, key_line};
use crate::api::Api;

async fn file(api: &Api, path: &str) -> Response {
    let file = api.request("GET", path).send().await.unwrap();
    assert_eq!(file.status(), 200, "{path}");
    file
}

/// What would let a text become markup or code.
const UNSAFE_WORDS: [&str; 6] =
    ["innerHTML", "dangerouslySet", "insertAdjacentHTML", "document.write", "eval(", "onclick="];

#[tokio::test]
async fn the_console_and_its_module_come_with_the_node() {
    let api = Api::start().await;
    for (path, text) in abide::http::console::files() {
        let address = path.strip_suffix("index.html").unwrap_or(path);
        let file = file(&api, &format!("/console/{address}")).await;
        let media = match path.rsplit('.').next().unwrap() {
            "js" => "text/javascript; charset=utf-8",
            other => &format!("text/{other}; charset=utf-8"),
        };
        assert_eq!(file.headers()["content-type"], media, "{path}");
        assert_eq!(file.headers()["x-content-type-options"], "nosniff");
        let policy = file.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; "), "{policy}");
        assert!(policy.contains("; connect-src 'self'; ") && !policy.contains("unsafe"));
        assert_eq!(file.text().await.unwrap(), *text, "{path}");
        for unsafe_word in UNSAFE_WORDS {
            // Preact can set HTML; the console's own modules never ask it to.
            let is_allowed = path.starts_with("vendor/");
            assert!(is_allowed || !text.contains(unsafe_word), "{path} has {unsafe_word}");
        }
    }
    // The client follows the redirect.
    assert_eq!(file(&api, "/console").await.url().path(), "/console/");
    for path in ["index.html", "package.json", "%2e%2e", "vendor/", "vendor/VENDOR.json", "nowhere"]
    {
        api.get(&format!("/console/{path}")).await.is_problem(404, "not-found");
    }
    let refused = api.send(api.request("POST", "/console/")).await;
    refused.is_problem(405, "invalid-request");
}

/// The directory of the console's files.
fn console_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("console")
}

#[test]
fn every_module_and_style_of_the_console_is_served() {
    let served: BTreeSet<_> =
        abide::http::console::files().iter().map(|(path, _)| (*path).to_owned()).collect();
    let mut on_disk = BTreeSet::new();
    let parts = ["views/agents/", "views/conversation/", "views/inbox/", "views/why/"];
    for directory in ["", "views/", "vendor/"].into_iter().chain(parts) {
        for entry in std::fs::read_dir(console_directory().join(directory)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let is_part = [".js", ".css", ".html"].iter().any(|end| name.ends_with(end));
            if is_part && !name.ends_with(".test.js") {
                on_disk.insert(format!("{directory}{name}"));
            }
        }
    }
    assert_eq!(served, on_disk);
}

/// What a browser may have to load before it shows a view.
const MAX_CONSOLE_BYTES: usize = 71_000;

#[tokio::test]
async fn the_console_fits_its_budget_with_its_largest_view() {
    let api = Api::start().await;
    let (mut frame, mut views) = (0, BTreeMap::<&str, usize>::new());
    for (path, text) in abide::http::console::files() {
        let address = path.strip_suffix("index.html").unwrap_or(path);
        let request = api.request("GET", &format!("/console/{address}"));
        let file = request.header("accept-encoding", "br, GZIP;q=0.5").send().await.unwrap();
        assert_eq!(file.headers()["content-encoding"], "gzip", "{path}");
        assert_eq!(file.headers()["vary"], "accept-encoding", "{path}");
        let tag = file.headers()["etag"].clone();
        let bytes = file.bytes().await.unwrap();
        let mut unpacked = String::new();
        GzDecoder::new(&bytes[..]).read_to_string(&mut unpacked).unwrap();
        assert_eq!(unpacked, *text, "{path}");
        // The parts of `views/inbox.js` are in `views/inbox/`.
        match path.strip_prefix("views/").and_then(|view| view.split(['.', '/']).next()) {
            Some(view) => *views.entry(view).or_default() += bytes.len(),
            None => frame += bytes.len(),
        }
        for (takes, status) in [("gzip", 304), ("gzip;q=0", 200), ("identity", 200)] {
            let again = api.request("GET", &format!("/console/{address}"));
            let again = again.header("accept-encoding", takes).header("if-none-match", &tag);
            assert_eq!(again.send().await.unwrap().status(), status, "{path} {takes}");
        }
    }
    let bytes = frame + views.into_values().max().unwrap_or_default();
    assert!((10_000..=MAX_CONSOLE_BYTES).contains(&bytes), "{bytes} bytes");
}

#[tokio::test]
async fn the_console_learns_its_views_from_its_listener() {
    let api = Api::start().await;
    let public = json!({"views": ["inbox", "conversations", "agents", "schedules", "webhooks",
        "erasures"], "sign_in": {"required": false, "issuers": []}});
    assert_eq!(api.get("/console/config.json").await.body, public);
    let admin = format!("http://{}", api.node.admin);
    let settings = reqwest::get(format!("{admin}/console/config.json")).await.unwrap();
    let settings: Value = settings.json().await.unwrap();
    let views = json!([
        "inbox",
        "conversations",
        "agents",
        "schedules",
        "webhooks",
        "erasures",
        "queues",
        "cluster",
        "why"
    ]);
    assert_eq!(settings["views"], views);
    // Everything that the page needs is at the origin that it came from.
    for path in ["/console/", "/console/views/why.js", "/v1/pending", "/v1/agents", "/admin/nodes"]
    {
        let answer = reqwest::get(format!("{admin}{path}")).await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
    }
    let unknown = reqwest::get(format!("{admin}/nowhere")).await.unwrap();
    assert_eq!(unknown.status(), 404);
    let foreign = reqwest::Client::new().get(format!("{admin}/v1/agents"));
    let foreign = foreign.header("Host", "evil.example").send().await.unwrap();
    assert!(foreign.status().is_client_error(), "a page of another name reaches it");
}

#[tokio::test]
async fn the_console_may_reach_the_issuer_that_people_sign_in_with() {
    let key = key_line("one", &["backend"]);
    let issuer = json!({"issuer": "https://login.example", "audience": ["abide"],
        "jwks": "https://login.example/keys", "console": {"client_id": "console",
            "token": "id_token", "connect": ["https://tokens.example/oauth/token"]}});
    let guarded = GuardedApi::start(&json!({"keys": [key], "issuers": [issuer]})).await;
    let base = format!("http://{}/console/", guarded.api.node.public);
    let page = reqwest::get(&base).await.unwrap();
    let policy = page.headers()["content-security-policy"].to_str().unwrap().to_owned();
    let connect = "; connect-src 'self' https://login.example https://tokens.example; ";
    assert!(policy.contains(connect), "{policy}");
    let settings = reqwest::get(format!("{base}config.json")).await.unwrap();
    let settings: Value = settings.json().await.unwrap();
    let expected = json!({"required": true, "issuers": [{"issuer": "https://login.example",
        "client_id": "console", "scope": "openid profile", "resource": null,
        "token": "id_token"}]});
    assert_eq!(settings["sign_in"], expected);
}

#[tokio::test]
async fn a_browser_that_has_the_file_is_not_sent_it_again() {
    let api = Api::start().await;
    let first = file(&api, "/console/abide.js").await;
    assert_eq!(first.headers()["cache-control"], "no-cache");
    let tag = first.headers()["etag"].to_str().unwrap().to_owned();
    assert_ne!(tag, file(&api, "/console/").await.headers()["etag"].to_str().unwrap());
    for (known, status) in
        [(tag.clone(), 304), (format!("\"other\", W/{tag}"), 304), ("\"other\"".to_owned(), 200)]
    {
        let request = api.request("GET", "/console/abide.js").header("If-None-Match", &known);
        let again = request.send().await.unwrap();
        assert_eq!(again.status(), status, "{known}");
        assert_eq!(again.headers()["etag"], tag);
        assert_eq!(again.bytes().await.unwrap().is_empty(), status == 304);
    }
}

/// The response headers of the preflight that a browser sends for a page of this origin.
async fn preflight(api: &Api, origin: &str) -> HeaderMap {
    let request = api.request("OPTIONS", "/v1/conversations/a/messages");
    let request = request.header("Origin", origin).header("Access-Control-Request-Method", "POST");
    let headers = "authorization,content-type,idempotency-key,last-event-id,abide-conversation,\
        mcp-protocol-version,mcp-method,mcp-name,a2a-version";
    let request = request.header("Access-Control-Request-Headers", headers);
    request.send().await.unwrap().headers().clone()
}

#[tokio::test]
async fn a_page_of_an_origin_that_is_allowed_may_do_what_the_own_page_may() {
    let api = Api::start_with(&["--allow-origin", "https://a.example,https://b.example/"]).await;
    for origin in ["https://a.example", "https://b.example"] {
        let headers = preflight(&api, origin).await;
        assert_eq!(headers["access-control-allow-origin"], origin);
        assert_eq!(headers["access-control-max-age"], "3600");
        assert_eq!(headers["access-control-allow-methods"], "GET,POST,PUT,PATCH,DELETE");
        let allowed = "authorization,content-type,idempotency-key,last-event-id,abide-conversation,\
            mcp-protocol-version,mcp-method,mcp-name,a2a-version";
        assert_eq!(headers["access-control-allow-headers"], allowed);
        let say = api.request("POST", "/v1/conversations/a/messages").header("Origin", origin);
        let response = api.send(say.json(&json!({"agent": "demo", "text": ""}))).await;
        response.names("text");
        assert_eq!(response.headers["access-control-allow-origin"], origin);
        assert_eq!(
            response.headers["access-control-expose-headers"],
            "abide-conversation,retry-after"
        );
        assert!(response.headers["vary"].to_str().unwrap().contains("origin"));
        let plain = api.request("POST", "/v1/conversations/a/cancel").header("Origin", origin);
        let refused = api.send(plain).await;
        refused.is_problem(400, "invalid-request");
        assert_eq!(refused.headers["access-control-allow-origin"], origin);
    }
    for origin in ["https://evil.example", "http://a.example", "https://a.example:444", "null"] {
        let headers = preflight(&api, origin).await;
        assert!(!headers.contains_key("access-control-allow-origin"), "{origin}");
        let read = api.request("GET", "/v1/agents").header("Origin", origin);
        let response = api.send(read).await;
        assert!(!response.headers.contains_key("access-control-allow-origin"), "{origin}");
    }
}

#[tokio::test]
async fn any_origin_is_allowed_when_configured_and_none_by_default() {
    let open = Api::start_with(&["--allow-origin", "*"]).await;
    let headers = preflight(&open, "https://evil.example").await;
    assert_eq!(headers["access-control-allow-origin"], "*");
    assert!(!headers.contains_key("access-control-allow-credentials"));
    let closed = Api::start().await;
    let headers = preflight(&closed, "https://evil.example").await;
    assert!(headers.keys().all(|name| !name.as_str().starts_with("access-control")));
}

/// Opens a client call in conversation `a` and returns the path that resolves it.
async fn open_client_call(api: &Api) -> String {
    let open = api.say_until("a", "where am I", "suspended").await;
    assert_eq!((&open["tool"], &open["kind"]), (&json!("locate"), &json!("client_exec")));
    let call = open["call_id"].as_str().unwrap().to_owned();
    format!("/v1/conversations/a/calls/{call}/resolution")
}

#[tokio::test]
async fn a_page_cannot_answer_the_call_of_another_conversation() {
    let api = Api::start().await;
    let path = open_client_call(&api).await;
    // The calls of both have the same id, as a model gives it.
    let other = path.replace("/a/", "/b/");
    api.post("/v1/conversations", json!({"id": "b", "agent": "demo"})).await;
    api.post(&other, json!({"result": "forged"})).await.is_problem(409, "call-not-open");
    let nowhere = path.replace("/a/", "/none/");
    api.post(&nowhere, json!({"result": "forged"})).await.is_problem(404, "not-found");
    assert_eq!(api.get("/v1/conversations/a").await.body["pending"].as_array().unwrap().len(), 1);
    assert_eq!(api.post(&path, json!({"result": "own"})).await.status, 200);
    let mut stream = api.stream("/v1/conversations/a/events?after=0").await;
    let done = stream.until("tool_call_resolved").await.data;
    assert_eq!(done["result"], json!({"ok": true, "result": "own"}));
}

#[tokio::test]
async fn a_page_that_answers_twice_or_with_too_much_changes_nothing() {
    let api = Api::start().await;
    let path = open_client_call(&api).await;
    let large = api.post(&path, json!({"result": "x".repeat(10 << 20)})).await;
    large.is_problem(413, "payload-too-large");
    let deep = format!("{{\"result\": {}1{}}}", "[".repeat(200), "]".repeat(200));
    let deep = api.request("POST", &path).header("Content-Type", "application/json").body(deep);
    api.send(deep).await.is_problem(400, "invalid-request");
    assert_eq!(api.get("/v1/conversations/a").await.body["state"], "awaiting_input");
    // The largest answer, to the byte.
    let max_chars = abide::http::extract::MAX_BODY_BYTES - json!({"result": ""}).to_string().len();
    let largest = "x".repeat(max_chars);
    assert_eq!(api.post(&path, json!({"result": largest})).await.status, 200);
    api.post(&path, json!({"result": 2})).await.is_problem(409, "call-not-open");
    let mut stream = api.stream("/v1/conversations/a/events?after=0").await;
    let done = stream.until("tool_call_resolved").await.data;
    assert_eq!(done["result"]["result"], largest);
    stream.until("turn_completed").await;
}

#[tokio::test]
async fn a_conversation_has_the_client_tools_that_its_page_declares() {
    let api = Api::start().await;
    let script = json!([{"calls": [
        {"id": "map", "name": "show_map", "args": {"city": "Graz"}},
        {"id": "note", "name": "notify", "args": {}},
        {"id": "bad", "name": "show_map", "args": {"city": 7}},
    ]}, {"text": "Done."}]);
    let definition = json!({"model": {"provider": "scripted", "script": script}, "tools": []});
    assert_eq!(api.put("/v1/agents/a", definition).await.status, 201);
    let city = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let tools = json!([
        {"name": "show_map", "description": "Shows a map.", "executor": "client",
            "parameters": city, "intent": "render", "result_schema": {"type": "boolean"}},
        {"name": "notify", "description": "Shows a note.", "executor": "client",
            "parameters": {"type": "object"}, "requires_response": false,
            "default_result": {"shown": true}},
    ]);
    let new = json!({"id": "c", "agent": "a", "tools": tools});
    assert_eq!(api.post("/v1/conversations", new).await.status, 201);
    let mut stream = api.stream("/v1/conversations/c/events").await;
    api.post("/v1/conversations/c/messages", json!({"text": "go"})).await;
    let frames = stream.all_until("suspended").await;
    let waiting = &frames.last().unwrap().data;
    assert_eq!((&waiting["call_id"], &waiting["intent"]), (&json!("map"), &json!("render")));
    let path = "/v1/conversations/c/calls/map/resolution";
    api.post(path, json!({"result": "yes"})).await.names("result");
    assert_eq!(api.post(path, json!({"result": true})).await.status, 200);
    let rest = stream.all_until("turn_completed").await;
    let all: Vec<_> = frames.iter().chain(&rest).collect();
    let frame_of = |event: &str, call: &str| {
        let matches =
            |frame: &&&crate::stream::Frame| frame.event == event && frame.data["call_id"] == call;
        all.iter().find(matches).map(|frame| frame.data.clone())
    };
    // A call that needs no response tells the page what to show, and has its result at once.
    assert_eq!(frame_of("tool_call_started", "note").unwrap()["tool"], "notify");
    assert_eq!(frame_of("suspended", "note"), None);
    let noted = frame_of("tool_call_resolved", "note").unwrap();
    assert_eq!(noted["result"]["result"], json!({"shown": true}));
    let bad = frame_of("tool_call_errored", "bad").unwrap();
    assert_eq!(bad["result"]["error_type"], "VALIDATION_ERROR");
    // Another conversation of the agent does not have these tools.
    api.post("/v1/conversations/d/messages", json!({"agent": "a", "text": "go"})).await;
    let mut other = api.stream("/v1/conversations/d/events?after=0").await;
    let unknown = other.until("tool_call_errored").await;
    assert_eq!(unknown.data["result"]["error_type"], "TOOL_NOT_FOUND");
}

#[tokio::test]
async fn only_client_tools_can_be_declared_on_a_conversation() {
    let api = Api::start().await;
    let parameters = json!({"type": "object"});
    for (more, field) in [
        (json!({"executor": "server", "run": {"native": "demo_look_up"}}), "tool t"),
        (json!({"executor": "server", "run": {"http": {"url": "http://127.0.0.1/"}}}), "tool t"),
        (json!({"executor": "client", "result_schema": {"type": "odd"}}), "result_schema"),
        (json!({"executor": "client", "surprise": 1}), "surprise"),
        (json!({"executor": "client", "requires_response": "no"}), "requires_response"),
    ] {
        let mut tool = json!({"name": "t", "description": "d", "parameters": parameters});
        tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let new = json!({"id": "c", "agent": "demo", "tools": [tool]});
        let refused = api.post("/v1/conversations", new).await;
        assert!(refused.is_problem(422, "invalid-request").contains(field), "{}", refused.body);
    }
    let twice = json!({"name": "t", "description": "d", "parameters": parameters,
        "executor": "client"});
    let new = json!({"agent": "demo", "tools": [twice, twice]});
    api.post("/v1/conversations", new).await.is_problem(422, "invalid-request");
}
