//! What pages get: the console, the module for pages of others, and who may ask from elsewhere.

use reqwest::Response;
use reqwest::header::HeaderMap;
use serde_json::json;

use crate::api::Api;

async fn file(api: &Api, path: &str) -> Response {
    let file = api.request("GET", path).send().await.unwrap();
    assert_eq!(file.status(), 200, "{path}");
    file
}

#[tokio::test]
async fn the_console_and_its_module_come_with_the_node() {
    let api = Api::start().await;
    for (path, media) in [
        ("/console/", "text/html; charset=utf-8"),
        ("/console/console.css", "text/css; charset=utf-8"),
        ("/console/console.js", "text/javascript; charset=utf-8"),
        ("/console/abide.js", "text/javascript; charset=utf-8"),
    ] {
        let file = file(&api, path).await;
        assert_eq!(file.headers()["content-type"], media);
        assert_eq!(file.headers()["x-content-type-options"], "nosniff");
        let policy = file.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"));
        let text = file.text().await.unwrap();
        for unsafe_word in
            ["innerHTML", "insertAdjacentHTML", "document.write", "eval(", "onclick="]
        {
            assert!(!text.contains(unsafe_word), "{path} has {unsafe_word}");
        }
    }
    // The client follows the redirect.
    assert_eq!(file(&api, "/console").await.url().path(), "/console/");
    for path in ["/console/index.html", "/console/package.json", "/console/%2e%2e"] {
        api.get(path).await.is_problem(404, "not-found");
    }
    let said = api.send(api.request("POST", "/console/")).await;
    said.is_problem(405, "invalid-request");
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
        let asked = api.request("GET", "/console/abide.js").header("If-None-Match", &known);
        let again = asked.send().await.unwrap();
        assert_eq!(again.status(), status, "{known}");
        assert_eq!(again.headers()["etag"], tag);
        assert_eq!(again.bytes().await.unwrap().is_empty(), status == 304);
    }
}

/// What a browser asks before it sends a page's request to another origin.
async fn preflight(api: &Api, origin: &str) -> HeaderMap {
    let asked = api.request("OPTIONS", "/v1/conversations/a/messages");
    let asked = asked.header("Origin", origin).header("Access-Control-Request-Method", "POST");
    let headers = "content-type,idempotency-key,last-event-id,authorization";
    let asked = asked.header("Access-Control-Request-Headers", headers);
    asked.send().await.unwrap().headers().clone()
}

#[tokio::test]
async fn a_page_of_an_origin_that_is_allowed_may_do_what_the_own_page_may() {
    let api = Api::start_with(&["--allow-origin", "https://a.example,https://b.example/"]).await;
    for origin in ["https://a.example", "https://b.example"] {
        let headers = preflight(&api, origin).await;
        assert_eq!(headers["access-control-allow-origin"], origin);
        assert_eq!(headers["access-control-max-age"], "3600");
        assert_eq!(headers["access-control-allow-methods"], "GET,POST,PUT,DELETE");
        let allowed = "content-type,authorization,idempotency-key,last-event-id";
        assert_eq!(headers["access-control-allow-headers"], allowed);
        let say = api.request("POST", "/v1/conversations/a/messages").header("Origin", origin);
        let said = api.send(say.json(&json!({"agent": "demo", "text": ""}))).await;
        said.names("text");
        assert_eq!(said.headers["access-control-allow-origin"], origin);
        assert_eq!(said.headers["access-control-expose-headers"], "retry-after");
        assert!(said.headers["vary"].to_str().unwrap().contains("origin"));
        let plain = api.request("POST", "/v1/conversations/a/cancel").header("Origin", origin);
        let refused = api.send(plain).await;
        refused.is_problem(400, "invalid-request");
        assert_eq!(refused.headers["access-control-allow-origin"], origin);
    }
    for origin in ["https://evil.example", "http://a.example", "https://a.example:444", "null"] {
        let headers = preflight(&api, origin).await;
        assert!(!headers.contains_key("access-control-allow-origin"), "{origin}");
        let looks = api.request("GET", "/v1/agents").header("Origin", origin);
        let looked = api.send(looks).await;
        assert!(!looked.headers.contains_key("access-control-allow-origin"), "{origin}");
    }
}

#[tokio::test]
async fn any_origin_is_allowed_when_the_operator_says_so_and_none_when_nothing_is_said() {
    let open = Api::start_with(&["--allow-origin", "*"]).await;
    let headers = preflight(&open, "https://evil.example").await;
    assert_eq!(headers["access-control-allow-origin"], "*");
    assert!(!headers.contains_key("access-control-allow-credentials"));
    let closed = Api::start().await;
    let headers = preflight(&closed, "https://evil.example").await;
    assert!(headers.keys().all(|name| !name.as_str().starts_with("access-control")));
}
