//! Blobs over HTTP: store, read, refer to, delete; and the audit.

use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use crate::api::{Api, ApiResponse};

const AT: &str = "/v1/conversations/a/messages";
/// The 30 bytes from 0 to 29.
const BASE64: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwd";

async fn put(api: &Api, media_type: &str, bytes: &[u8]) -> ApiResponse {
    let request = api.request("POST", "/v1/blobs").header("Content-Type", media_type);
    api.send(request.body(bytes.to_vec())).await
}

async fn read(api: &Api, id: &str, headers: &[(&str, &str)]) -> (u16, HeaderMap, Vec<u8>) {
    let mut request = api.request("GET", &format!("/v1/blobs/{id}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    (status, headers, response.bytes().await.unwrap().to_vec())
}

/// Sends a request to the operators' API.
async fn admin(api: &Api, method: &str, path: &str) -> (u16, Value) {
    let url = format!("http://{}/admin{path}", api.node.admin);
    let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
    let response = reqwest::Client::new().request(method, url).send().await.unwrap();
    let status = response.status().as_u16();
    (status, response.json().await.unwrap_or(Value::Null))
}

async fn echo(api: &Api) {
    let model = json!({"provider": "scripted", "script": [{"text": "{{ user }}"}]});
    let agent = json!({"model": model, "audit": {"ttl": "1h"}});
    assert_eq!(api.put("/v1/agents/echo", agent).await.status, 201);
}

/// Sends content, waits for the end of the turn, and returns all messages.
async fn send(api: &Api, content: Value) -> Value {
    let sent = api.post(AT, json!({"agent": "echo", "content": content})).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    let after = sent.body["seq"].as_u64().unwrap();
    let mut stream = api.stream(&format!("/v1/conversations/a/events?after={after}")).await;
    stream.until("turn_completed").await;
    api.get(AT).await.body["messages"].clone()
}

#[tokio::test]
async fn bytes_are_stored_once_and_read_back_unchanged() {
    let api = Api::start().await;
    let bytes: Vec<u8> = (0..200_000_u32).map(|n| (n * 7 / 3) as u8).collect();
    let first = put(&api, "image/png", &bytes).await;
    assert_eq!((first.status, &first.body["size"]), (201, &json!(200_000)));
    assert_eq!(first.body["media_type"], "image/png");
    let again = put(&api, "image/png", &bytes).await;
    assert_eq!((again.status, &again.body), (200, &first.body));
    let other = put(&api, "image/gif", &bytes).await;
    assert_eq!(other.status, 201);
    assert_ne!(other.body["id"], first.body["id"]);
    let id = first.body["id"].as_str().unwrap();
    let (status, headers, read_back) = read(&api, id, &[]).await;
    assert_eq!((status, read_back == bytes), (200, true));
    let header = |name: &str| headers.get(name).map_or("", |value| value.to_str().unwrap());
    assert_eq!(header("content-type"), "image/png");
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert_eq!(header("content-disposition"), "inline");
    assert_eq!(header("content-security-policy"), "default-src 'none'; sandbox");
    assert!(header("cache-control").contains("immutable"));
    let tag = format!("\"{id}\"");
    assert_eq!(header("etag"), tag);
    let (status, headers, bytes) = read(&api, id, &[("If-None-Match", &tag)]).await;
    assert_eq!((status, bytes.len(), headers["etag"].to_str().unwrap()), (304, 0, &*tag));
    let unknown = format!("blob_{}", "0".repeat(64));
    for missing in [&*unknown, "blob_1", "x"] {
        assert_eq!(read(&api, missing, &[("If-None-Match", "*")]).await.0, 404);
        api.get(&format!("/v1/blobs/{missing}")).await.is_problem(404, "not-found");
    }
}

#[tokio::test]
async fn nothing_that_is_stored_runs_in_our_origin() {
    let api = Api::start().await;
    for (media_type, disposition) in [
        ("text/html", "attachment"),
        ("image/svg+xml", "attachment"),
        ("application/javascript", "attachment"),
        ("application/octet-stream", "attachment"),
        ("application/pdf", "inline"),
        ("Text/Plain; charset=utf-8", "inline"),
    ] {
        let id = put(&api, media_type, b"<script>").await.body["id"].clone();
        let (_, headers, _) = read(&api, id.as_str().unwrap(), &[]).await;
        assert_eq!(headers["content-type"], media_type);
        assert_eq!(headers["content-disposition"], disposition, "{media_type}");
        assert_eq!(headers["x-content-type-options"], "nosniff");
        let is_pdf = media_type == "application/pdf";
        assert_eq!(headers.contains_key("content-security-policy"), !is_pdf, "{media_type}");
    }
}

#[tokio::test]
async fn an_upload_that_is_not_a_blob_is_refused() {
    let api = Api::start().await;
    put(&api, "image/png", b"").await.names("body: is empty");
    for wrong in ["image", "image/", "/png", "a b/c", "x/y; z=\"ä\""] {
        put(&api, wrong, b"x").await.names("Content-Type: must be a media type");
    }
    put(&api, &format!("image/{}", "x".repeat(300)), b"x").await.names("Content-Type");
    let bare = api.request("POST", "/v1/blobs").body("x");
    api.send(bare).await.names("Content-Type: is missing");
    let large = vec![0; (20 << 20) + 1];
    put(&api, "image/png", &large).await.is_problem(413, "payload-too-large");
    let head = "POST /v1/blobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
        Content-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\n1500000\r\n";
    let unannounced = [head.as_bytes(), &large].concat();
    assert!(api.raw(&unannounced).await.starts_with("HTTP/1.1 413"));
    let largest = put(&api, "image/png", &large[1..]).await;
    assert_eq!((largest.status, &largest.body["size"]), (201, &json!(20 << 20)));
}

#[tokio::test]
async fn a_page_of_another_origin_cannot_put_a_blob_without_preflight() {
    let api = Api::start().await;
    let from_page = |media_type: &str| {
        let request = api.request("POST", "/v1/blobs").header("Origin", "https://evil.example");
        request.header("Content-Type", media_type).body("x")
    };
    for simple in
        ["text/plain", "Multipart/Form-Data; boundary=x", "application/x-www-form-urlencoded"]
    {
        api.send(from_page(simple)).await.is_problem(400, "invalid-request");
        let with_key = from_page(simple).header("Idempotency-Key", "1");
        assert_eq!(api.send(with_key).await.status, 201, "{simple}");
    }
    assert_eq!(api.send(from_page("image/png")).await.status, 201);
}

#[tokio::test]
async fn a_message_names_blobs_and_the_model_reads_their_bytes() {
    let api = Api::start().await;
    echo(&api).await;
    let blob = put(&api, "image/png", &[7; 5_000]).await.body;
    let messages = send(&api, json!([image(&blob["id"])])).await;
    let source = json!({"type": "blob", "blobId": blob["id"], "mimeType": "image/png",
        "size": 5_000});
    assert_eq!(messages[0]["content"][0]["source"], source);
    assert_eq!(messages[1]["content"][0]["text"], "[image/png, 5 kB]");

    let path = format!("/blobs/{}", blob["id"].as_str().unwrap());
    assert_eq!(admin(&api, "DELETE", &path).await.0, 204);
    assert_eq!(admin(&api, "DELETE", &path).await.0, 404);
    assert_eq!(read(&api, blob["id"].as_str().unwrap(), &[]).await.0, 404);
    let gone = api.post(AT, json!({"content": [image(&blob["id"])]})).await;
    gone.names("content[0].source.blobId: blob not found");
    let pdf = put(&api, "application/pdf", b"x").await.body;
    let text = json!({"type": "text", "text": "see"});
    let wrong = api.post(AT, json!({"content": [text, image(&pdf["id"])]})).await;
    wrong.names("content[1].source.blobId: the blob is application/pdf");
    let wrong = api.post(AT, json!({"content": [image(&json!("blob_1"))]})).await;
    wrong.names("content[0].source.blobId: must be an id that a blob has");
}

#[tokio::test]
async fn a_messages_own_bytes_become_a_blob() {
    let api = Api::start().await;
    echo(&api).await;
    let data = BASE64.repeat(100);
    let source = json!({"type": "base64", "mimeType": "image/png", "data": data});
    let photo = json!({"type": "image", "altText": "a cat", "source": source});
    let messages = send(&api, json!([photo])).await;
    let block = &messages[0]["content"][0];
    assert_eq!((&block["altText"], &block["source"]["type"]), (&json!("a cat"), &json!("blob")));
    assert_eq!(messages[1]["content"][0]["text"], "[image/png, 3 kB: a cat]");
    let journal = api.get("/v1/conversations/a/journal?limit=100").await.body.to_string();
    assert!(!journal.contains(BASE64), "{journal}");
    let id = block["source"]["blobId"].as_str().unwrap();
    assert_eq!(read(&api, id, &[]).await.2, (0..30).collect::<Vec<u8>>().repeat(100));
    assert_eq!(read(&api, id, &[]).await.0, 200);
}

fn image(id: &Value) -> Value {
    json!({"type": "image", "source": {"type": "blob", "blobId": id}})
}

/// Waits until the node knows the names of all blobs, which it looks for when it starts.
async fn wait_for_names(api: &Api) {
    let known = tokio::time::timeout(crate::api::DEADLINE, async {
        while admin(api, "GET", "/indexes").await.1["rebuild"]["has_blob_names"] != true {
            tokio::task::yield_now().await;
        }
    });
    known.await.unwrap();
}

#[tokio::test]
async fn a_blob_goes_with_the_last_conversation_that_names_it() {
    let api = Api::start().await;
    echo(&api).await;
    wait_for_names(&api).await;
    let [shared, own, unnamed] = [&b"shared"[..], b"own pic", b"unnamed"]
        .map(|bytes| async { put(&api, "image/png", bytes).await.body["id"].clone() });
    let (shared, own) = (shared.await, own.await);
    let unnamed = unnamed.await;
    send(&api, json!([image(&shared), image(&own)])).await;
    let forked = api.post("/v1/conversations/a/fork", json!({"id": "b"})).await;
    assert_eq!(forked.status, 201, "{forked:?}");
    let there = async |id: &Value| read(&api, id.as_str().unwrap(), &[]).await.0;
    let other = json!({"agent": "echo", "content": [image(&shared)]});
    assert_eq!(api.post("/v1/conversations/c/messages", other).await.status, 202);
    for (conversation, shared_left, own_left) in [("a", 200, 200), ("b", 200, 404), ("c", 404, 404)]
    {
        let path = format!("/v1/conversations/{conversation}");
        assert_eq!(api.delete(&path).await.status, 204);
        assert_eq!((there(&shared).await, there(&own).await), (shared_left, own_left));
        assert_eq!(there(&unnamed).await, 200, "its day is not over");
    }
    let gone = api.post(AT, json!({"agent": "echo", "content": [image(&own)]})).await;
    gone.names("content[0].source.blobId: blob not found");
    assert_eq!(put(&api, "image/png", b"own pic").await.status, 201);
    let sent = api.post(AT, json!({"agent": "echo", "content": [image(&own)]})).await;
    assert_eq!(sent.status, 202, "{sent:?}");
}

#[tokio::test]
async fn an_upload_is_used_up_by_the_message_of_its_uploader_and_of_nobody_else() {
    let api = Api::start().await;
    echo(&api).await;
    wait_for_names(&api).await;
    let by = |who: &str, path: &str| api.request("POST", path).header("Abide-Principal", who);
    let mut id = Value::Null;
    for who in ["ada", "bob"] {
        let upload = by(who, "/v1/blobs").header("Content-Type", "image/png").body("same");
        id = api.send(upload).await.body["id"].clone();
    }
    for (who, conversation, left) in [("ada", "a", 200), ("bob", "b", 404)] {
        let path = format!("/v1/conversations/{conversation}");
        let message = json!({"agent": "echo", "content": [image(&id)]});
        let sent = api.send(by(who, &format!("{path}/messages")).json(&message)).await;
        assert_eq!(sent.status, 202, "{sent:?}");
        assert_eq!(api.delete(&path).await.status, 204);
        assert_eq!(read(&api, id.as_str().unwrap(), &[]).await.0, left, "{who}");
    }
}

#[tokio::test]
async fn the_blob_of_a_schedule_stays_until_the_schedule_is_deleted() {
    let api = Api::start().await;
    echo(&api).await;
    wait_for_names(&api).await;
    let source = json!({"type": "base64", "mimeType": "image/png", "data": BASE64.repeat(100)});
    let photo = json!({"type": "image", "source": source});
    let daily = json!({"agent": "echo", "every": "24h", "content": [photo]});
    let schedule = api.put("/v1/schedules/daily", daily).await;
    assert_eq!(schedule.status, 201, "{schedule:?}");
    let id = schedule.body["content"][0]["source"]["blobId"].clone();
    send(&api, json!([image(&id)])).await;
    assert_eq!(api.delete("/v1/conversations/a").await.status, 204);
    assert_eq!(read(&api, id.as_str().unwrap(), &[]).await.0, 200);
    assert_eq!(api.delete("/v1/schedules/daily").await.status, 204);
    assert_eq!(read(&api, id.as_str().unwrap(), &[]).await.0, 404);
}

#[tokio::test]
async fn a_schedule_that_is_replaced_or_refused_keeps_no_blob() {
    let api = Api::start().await;
    echo(&api).await;
    wait_for_names(&api).await;
    let there = async |id: &Value| read(&api, id.as_str().unwrap(), &[]).await.0;
    let id = put(&api, "image/png", b"one").await.body["id"].clone();
    send(&api, json!([image(&id)])).await;
    let named = json!({"agent": "echo", "every": "24h", "content": [image(&id)]});
    assert_eq!(api.put("/v1/schedules/daily", named.clone()).await.status, 201);
    let plain = json!({"agent": "echo", "every": "24h", "text": "hello"});
    assert_eq!(api.put("/v1/schedules/daily", plain).await.status, 200);
    let mut over = named.clone();
    over["until"] = json!("2020-01-01T00:00:00Z");
    api.put("/v1/schedules/over", over).await.names("until: ");
    let mut large = named;
    let text = json!({"type": "text", "text": "x".repeat(70_000)});
    large["content"].as_array_mut().unwrap().push(text);
    api.put("/v1/schedules/large", large).await.names("content: ");
    assert_eq!(there(&id).await, 200);
    assert_eq!(api.delete("/v1/conversations/a").await.status, 204);
    assert_eq!(there(&id).await, 404);
}

#[tokio::test]
async fn operators_read_the_audit_newest_first() {
    let api = Api::start().await;
    echo(&api).await;
    for text in ["one", "two", "three"] {
        send(&api, json!([{"type": "text", "text": text}])).await;
    }
    // The last entry may not be written yet.
    let all = tokio::time::timeout(crate::api::DEADLINE, async {
        loop {
            let (status, all) = admin(&api, "GET", "/audit/a").await;
            assert_eq!(status, 200);
            if all["entries"].as_array().unwrap().len() == 3 {
                return all;
            }
            tokio::task::yield_now().await;
        }
    });
    let all = all.await.unwrap();
    let texts = |page: &Value| -> Vec<Value> {
        let entries = page["entries"].as_array().unwrap().iter();
        entries.map(|entry| entry["came"]["text"]["value"].clone()).collect()
    };
    assert_eq!(texts(&all), ["three", "two", "one"]);
    assert_eq!((&all["conversation_id"], &all["cursor"]), (&json!("a"), &Value::Null));
    assert_eq!(all["entries"][0]["purpose"], "step");
    let (_, page) = admin(&api, "GET", "/audit/a?limit=2").await;
    assert_eq!(texts(&page), ["three", "two"]);
    let cursor = page["cursor"].as_str().unwrap();
    let (_, rest) = admin(&api, "GET", &format!("/audit/a?limit=2&before={cursor}")).await;
    assert_eq!((texts(&rest), &rest["cursor"]), (vec![json!("one")], &Value::Null));
    for wrong in ["limit=0", "limit=51", "surprise=1"] {
        assert_eq!(admin(&api, "GET", &format!("/audit/a?{wrong}")).await.0, 422, "{wrong}");
    }
    assert_eq!(admin(&api, "GET", "/audit/b").await.0, 404);
    assert_eq!(api.get("/admin/audit/a").await.status, 404);
    assert_eq!(api.delete("/v1/conversations/a").await.status, 204);
    assert_eq!(admin(&api, "GET", "/audit/a").await.0, 404);
}

#[tokio::test]
async fn the_blobs_that_a_conversation_names_are_listed_by_page() {
    let api = Api::start().await;
    echo(&api).await;
    let first = put(&api, "image/png", b"one").await.body["id"].clone();
    let second = put(&api, "image/png", b"two").await.body["id"].clone();
    put(&api, "image/png", b"named by nobody").await;
    let text = json!({"type": "text", "text": "look"});
    send(&api, json!([text, image(&first)])).await;
    send(&api, json!([text, image(&first), image(&second)])).await;
    let ids = |page: &Value| {
        let blobs = page["blobs"].as_array().unwrap().iter();
        blobs.map(|blob| blob["id"].clone()).collect::<Vec<_>>()
    };
    let all = api.get("/v1/blobs?conversation=a").await.body;
    assert_eq!(ids(&all), [first.clone(), second.clone()]);
    assert_eq!(
        (&all["blobs"][0]["media_type"], &all["cursor"]),
        (&json!("image/png"), &Value::Null)
    );
    assert_eq!(all["blobs"][1]["size"], 3);
    let page = api.get("/v1/blobs?conversation=a&limit=1").await.body;
    assert_eq!(ids(&page), std::slice::from_ref(&first));
    let next = format!("/v1/blobs?conversation=a&limit=9&after={}", page["cursor"]);
    assert!(ids(&api.get(&next).await.body).contains(&second));
    let path = format!("/blobs/{}", first.as_str().unwrap());
    assert_eq!(admin(&api, "DELETE", &path).await.0, 204);
    let deleted = api.get("/v1/blobs?conversation=a").await.body["blobs"][0].clone();
    assert_eq!((&deleted["id"], &deleted["size"]), (&first, &Value::Null));
    api.get("/v1/blobs?conversation=nobody").await.is_problem(404, "not-found");
    for wrong in ["", "?conversation=a&limit=0", "?conversation=a&after=x", "?conversation=a&x=1"] {
        let refused = api.get(&format!("/v1/blobs{wrong}")).await;
        assert_eq!(refused.status, 422, "{wrong}: {refused:?}");
    }
}
