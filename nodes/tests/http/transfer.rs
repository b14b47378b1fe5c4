//! Conversations that move: what an export wrote is read elsewhere, as a copy or under its id.

mod damaged;
mod limits;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use self::damaged::Lines;
use crate::api::{Api, ApiResponse, DEADLINE};

/// Turns of four events each.
const LONG_TURNS: usize = 140;
/// How many events an import writes at once.
const IMPORTED_AT_ONCE: usize = 256;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// An agent that asks a person in its first step.
fn agent(max_steps: u32) -> Value {
    let who = json!({"name": "who", "description": "Asks.", "executor": "human",
        "parameters": {"type": "object"}, "result_schema": {"type": "string"}});
    json!({"tools": [who], "max_steps": max_steps, "model": {"provider": "scripted", "script": [
        {"calls": [{"id": "w", "name": "who", "args": {}}]}, {"text": "Done."}]}})
}

/// A node with the conversation `c`, which waits for a person, and the lines of its export.
async fn waiting() -> (Api, Vec<String>) {
    let api = Api::start().await;
    assert_eq!(api.put("/v1/agents/asker", agent(5)).await.status, 201);
    let members = json!(["key:ann", "key:bob"]);
    let new = json!({"id": "c", "agent": "asker", "members": members});
    assert_eq!(api.post("/v1/conversations", new).await.status, 201);
    let left = json!({"members": ["key:bob"]});
    assert_eq!(api.patch("/v1/conversations/c", left).await.status, 200);
    let sent = json!({"text": "go"});
    let rests = api.post("/v1/conversations/c/messages?wait=20s", sent).await;
    assert_eq!(rests.body["outcome"], "awaiting_input", "{rests:?}");
    let lines = export(&api, "c").await;
    (api, lines)
}

async fn export(api: &Api, id: &str) -> Vec<String> {
    let path = format!("/v1/conversations/{id}/export");
    let answer = api.request("GET", &path).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "application/x-ndjson");
    answer.text().await.unwrap().lines().map(str::to_owned).collect()
}

async fn import(api: &Api, query: &str, lines: &[String]) -> ApiResponse {
    let request = api.request("POST", &format!("/v1/conversations/import{query}"));
    let request = request.header("Content-Type", "application/x-ndjson");
    api.send(request.body(lines.join("\n"))).await
}

async fn journal(api: &Api, id: &str) -> Vec<Value> {
    let read = api.get(&format!("/v1/conversations/{id}/journal?limit=1000")).await;
    read.body["events"].as_array().unwrap().clone()
}

async fn answer(api: &Api, id: &str) -> ApiResponse {
    let path = format!("/v1/conversations/{id}/calls/w/resolution?wait=20s");
    api.post(&path, json!({"result": "me"})).await
}

#[tokio::test]
async fn a_kept_conversation_has_the_same_journal_and_goes_on_elsewhere() {
    let (here, lines) = waiting().await;
    let there = Api::start().await;
    let imported = import(&there, "?keep_id=true", &lines).await;
    assert_eq!((imported.status, &imported.body), (201, &json!({"id": "c"})), "{imported:?}");
    assert_eq!(journal(&there, "c").await, journal(&here, "c").await);
    let inbox = there.get("/v1/pending").await.body;
    assert_eq!(inbox["pending"][0]["call_id"], "w", "{inbox}");
    // Its agent did not exist there, and came along.
    assert_eq!(there.get("/v1/agents/asker").await.body["max_steps"], 5);
    let done = answer(&there, "c").await;
    assert_eq!(done.body["outcome"], "completed", "{done:?}");
    let again = import(&there, "?keep_id=true", &lines).await;
    again.is_problem(409, "conversation-exists");
}

#[tokio::test]
async fn a_copy_has_another_id_and_its_open_call_is_cancelled() {
    let (api, lines) = waiting().await;
    let imported = import(&api, "", &lines).await;
    assert_eq!(imported.status, 201, "{imported:?}");
    let id = imported.body["id"].as_str().unwrap();
    assert_ne!(id, "c");
    let (first, copy) = (journal(&api, "c").await, journal(&api, id).await);
    assert_eq!(copy[1..first.len()], first[1..]);
    assert_eq!(copy[0]["data"]["fork"]["conversation_id"], "c");
    let cancelled = copy.iter().find(|event| event["type"] == "tool_result").unwrap();
    assert!(cancelled["data"].to_string().contains("[cancelled]"), "{cancelled}");
    // A member who was removed is none in the copy.
    let kinds: Vec<_> = copy.iter().rev().take(2).map(|event| event["type"].clone()).collect();
    assert_eq!(kinds, ["updated", "forked"]);
    assert_eq!(copy.last().unwrap()["data"]["members"], json!(["key:bob"]));
    let again = json!({"text": "again"});
    let path = format!("/v1/conversations/{id}/messages?wait=20s");
    let turn = api.post(&path, again).await;
    assert!(["completed", "awaiting_input"].contains(&turn.body["outcome"].as_str().unwrap()));
    // The source waits as before.
    assert_eq!(answer(&api, "c").await.body["outcome"], "completed");
}

#[tokio::test]
async fn an_open_turn_goes_on_with_the_revision_of_its_journal() {
    let (_, lines) = waiting().await;
    let there = Api::start().await;
    assert_eq!(there.put("/v1/agents/asker", agent(9)).await.status, 201);
    assert_eq!(import(&there, "?keep_id=true", &lines).await.status, 201);
    assert_eq!(there.get("/v1/agents/asker").await.body["max_steps"], 9);
    assert_eq!(answer(&there, "c").await.body["outcome"], "completed");
    let revisions = there.get("/v1/agents/asker/revisions").await.body;
    assert_eq!(revisions["revisions"].as_array().unwrap().len(), 2, "{revisions}");
}

#[tokio::test]
async fn an_open_turn_needs_the_definition_of_its_revision() {
    let (_, mut lines) = waiting().await;
    let started = lines.iter_mut().find(|line| line.contains("turn_started")).unwrap();
    let mut event: Value = serde_json::from_str(started).unwrap();
    event["data"]["revision"] = json!("0123456789abcdef");
    *started = event.to_string();
    let there = Api::start().await;
    let refused = import(&there, "?keep_id=true", &lines).await;
    let detail = refused.is_problem(422, "invalid-request");
    assert!(detail.contains("revision 0123456789abcdef"), "{detail}");
    assert_eq!(import(&there, "", &lines).await.status, 201, "a copy runs nothing");
}

#[tokio::test]
async fn blobs_travel_with_the_journal() {
    let here = Api::start().await;
    let bytes = here.request("POST", "/v1/blobs").header("Content-Type", "image/png").body("png");
    let stored = here.send(bytes).await;
    let id = stored.body["id"].as_str().unwrap().to_owned();
    here.put("/v1/agents/asker", agent(5)).await;
    let image = json!({"type": "image", "source": {"type": "blob", "blobId": id}});
    let sent = json!({"agent": "asker", "content": [{"type": "text", "text": "go"}, image]});
    let sent = here.post("/v1/conversations/c/messages?wait=20s", sent).await;
    assert_eq!(sent.body["outcome"], "awaiting_input", "{sent:?}");
    let lines = export(&here, "c").await;
    let there = Api::start().await;
    assert_eq!(import(&there, "?keep_id=true", &lines).await.status, 201);
    let read = there.request("GET", &format!("/v1/blobs/{id}")).send().await.unwrap();
    assert_eq!(read.text().await.unwrap(), "png");
    // Other bytes under the id are refused.
    let forged: Vec<String> = lines.iter().map(|line| line.replace("cG5n", "cG5m")).collect();
    assert_ne!(forged, lines);
    import(&Api::start().await, "?keep_id=true", &forged).await.names("another hash");
}

#[tokio::test]
async fn what_cannot_have_happened_is_refused_and_leaves_nothing() {
    let (here, _) = waiting().await;
    assert_eq!(answer(&here, "c").await.body["outcome"], "completed");
    let whole = Lines(export(&here, "c").await);
    let in_end = |line: &str| whole.with(whole.at("turn_ended"), line);
    let unknown = whole.0[whole.at("turn_ended")].replace("turn_ended", "turn_evaporated");
    let (opening, closing) = ("[".repeat(5_000), "]".repeat(5_000));
    let deep = format!(r#"{{"seq":2,"at":"","type":"x","data":{opening}1{closing}}}"#);
    let within_turn = json!({"turn_id": null, "type": "rewound",
        "data": {"to_seq": 4, "by": "x", "point": {"context": {}}}});
    let there = Api::start().await;
    for (lines, named) in [
        (whole.without(whole.at("user_msg")), "follows event"),
        (whole.without_event("tool_result"), "cannot have happened"),
        (whole.without_event("turn_started"), "cannot have happened"),
        (
            whole.without_event("tool_call"),
            "data.call_id: cannot have happened: call w has no tool_call",
        ),
        (whole.without_event("suspension"), "data.suspension: cannot have happened"),
        (whole.without_event("resolution"), "type: cannot have happened: call w ends while"),
        (whole.without_event("assistant_msg"), "there is no open call w"),
        (
            whole.with_member("assistant_msg", "/data/message/tool_calls", json!([])),
            "data.call_id: cannot have happened: there is no open call w",
        ),
        (
            whole.with_member("turn_ended", "/data/mood", json!({"is": "new"})),
            "data.mood: is of a newer format",
        ),
        (
            whole.with_member("assistant_msg", "/data/message/tone", json!(false)),
            "data.message.tone: is of a newer format",
        ),
        (whole.with_member("turn_ended", "/epoch", json!(7)), "epoch: is of a newer format"),
        (whole.with_member("created", "/data/agent", json!("other")), "names another agent"),
        (whole.with_more("user_msg", json!({})), "an earlier turn has"),
        (whole.with_more("turn_ended", within_turn), "no turn had ended with"),
        (in_end(&unknown), "does not know"),
        (in_end("{"), "no JSON"),
        (in_end(&deep), "levels"),
        (in_end("7"), "no JSON"),
        (whole.with_format("\"format\":2"), "format 2"),
        (whole.with_format("\"format\":0"), "format 0"),
        (whole.with_format("\"format\":1,\"epoch\":7"), "epoch"),
        (whole.with_last_seq(0, 2), "seq: is an event behind the end"),
        (whole.with_last_seq(whole.0.len() - 1, 2), "last_seq: ends another journal"),
        (whole.without(0), "before the conversation"),
        (whole.without(whole.0.len() - 1), "end is missing"),
        (Vec::new(), "end is missing"),
        ([whole.0.clone(), whole.0.clone()].concat(), "follows the end"),
    ] {
        for query in ["", "?keep_id=true"] {
            let refused = import(&there, query, &lines).await;
            let detail = refused.is_problem(422, "invalid-request").to_owned();
            assert!(detail.contains(named) && detail.starts_with("line "), "{named}: {detail}");
        }
    }
    let listed = there.get("/v1/conversations").await.body;
    assert_eq!(listed["conversations"], json!([]));
    assert_eq!(import(&there, "?keep_id=true", &whole.0).await.status, 201);
}

#[tokio::test]
async fn a_journal_that_ends_before_its_last_call_is_planned_is_refused() {
    let (_here, lines) = waiting().await;
    let message = Lines(lines.clone()).at("assistant_msg");
    let seq = serde_json::from_str::<Value>(&lines[message]).unwrap()["seq"].clone();
    let ends_there = |line: &String| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        value["last_seq"] = seq.clone();
        value.to_string()
    };
    let mut cut = lines[..=message].to_vec();
    cut.push(ends_there(lines.last().unwrap()));
    cut[0] = ends_there(&cut[0]);
    let there = Api::start().await;
    for query in ["", "?keep_id=true"] {
        let refused = import(&there, query, &cut).await;
        let detail = refused.is_problem(422, "invalid-request");
        assert!(detail.contains("ends before the tool_call event of call w"), "{detail}");
    }
}

#[tokio::test]
async fn a_long_journal_is_imported_whole_and_in_its_order() {
    let here = Api::start().await;
    let echo = json!({"model": {"provider": "scripted", "script": [{"text": "{{ user }}"}]}});
    assert_eq!(here.put("/v1/agents/echo", echo).await.status, 201);
    for number in 0..LONG_TURNS {
        let message = json!({"agent": "echo", "text": format!("message {number}")});
        let sent = here.post("/v1/conversations/c/messages?wait=20s", message).await;
        assert_eq!(sent.body["outcome"], "completed", "{sent:?}");
    }
    let (source, lines) = (journal(&here, "c").await, export(&here, "c").await);
    assert!(source.len() > 2 * IMPORTED_AT_ONCE, "{} events", source.len());
    let there = Api::start().await;
    assert_eq!(import(&there, "?keep_id=true", &lines).await.status, 201);
    assert_eq!(journal(&there, "c").await, source);
    let copy = import(&there, "", &lines).await.body["id"].as_str().unwrap().to_owned();
    assert_eq!(journal(&there, &copy).await[1..source.len()], source[1..]);
}

#[tokio::test]
async fn the_alarm_of_a_kept_conversation_fires_where_it_is_now() {
    let here = Api::start().await;
    let later = json!({"agent": "demo", "text": "later", "deliver_in": "2s"});
    assert_eq!(here.post("/v1/conversations/c/messages", later).await.status, 202);
    let lines = export(&here, "c").await;
    assert!(!lines.iter().any(|line| line.contains("\"turn_started\"")), "{lines:?}");
    let there = Api::start().await;
    assert_eq!(import(&there, "?keep_id=true", &lines).await.status, 201);
    // Nobody asks for the conversation itself, which would load it.
    let fired = tokio::time::timeout(DEADLINE, async {
        while there.get("/v1/conversations").await.body["conversations"][0]["turns"] != 1 {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    });
    fired.await.unwrap();
}

#[tokio::test]
async fn a_body_of_gigabytes_is_refused_before_it_is_sent() {
    let api = Api::start().await;
    let head = "POST /v1/conversations/import HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
        Content-Length: 2147483648\r\n\r\n";
    let answer = api.raw(head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("payload-too-large"), "{answer}");
    import(&api, "?keep=1", &[]).await.is_problem(422, "invalid-request");
    api.get("/v1/conversations/nobody/export").await.is_problem(404, "not-found");
}

#[tokio::test]
async fn a_repeated_import_with_a_key_has_one_conversation() {
    let (_here, lines) = waiting().await;
    let there = Api::start().await;
    let keyed = async |query: &str, key: &str| {
        let request = there.request("POST", &format!("/v1/conversations/import{query}"));
        let request = request.header("Content-Type", "application/x-ndjson");
        let request = request.header("Idempotency-Key", key);
        there.send(request.body(lines.join("\n"))).await
    };
    for (query, key) in [("", "copy"), ("?keep_id=true", "kept")] {
        let first = keyed(query, key).await;
        assert_eq!(first.status, 201, "{first:?}");
        let again = keyed(query, key).await;
        assert_eq!((again.status, again.body), (201, first.body));
    }
    keyed("?keep_id=true", "other").await.is_problem(409, "conversation-exists");
    let listed = there.get("/v1/conversations").await.body;
    assert_eq!(listed["conversations"].as_array().unwrap().len(), 2, "{listed}");
}

#[tokio::test]
async fn a_page_imports_with_the_type_that_no_form_can_send() {
    let (_here, lines) = waiting().await;
    let there = Api::start().await;
    let from_page = |media_type: &str| {
        let request = there.request("POST", "/v1/conversations/import");
        let request = request.header("Origin", "http://a").header("Content-Type", media_type);
        request.body(lines.join("\n"))
    };
    for simple in ["text/plain", "multipart/form-data", "application/x-www-form-urlencoded"] {
        there.send(from_page(simple)).await.is_problem(400, "invalid-request");
    }
    let imported = there.send(from_page("Application/X-NDJSON; charset=utf-8")).await;
    assert_eq!(imported.status, 201, "{imported:?}");
}

#[tokio::test]
async fn a_client_that_sends_on_after_a_refusal_reads_why() {
    let api = Api::start().await;
    for (path, media_type) in [("conversations/import", "application/x-ndjson"), ("blobs", "none")]
    {
        let mut connection = TcpStream::connect(api.node.public).await.unwrap();
        let head = format!(
            "POST /v1/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media_type}\r\n\
             Transfer-Encoding: chunked\r\n\r\n2\r\n7\n\r\n"
        );
        let piece = [b"100000\r\n".as_slice(), &[b'\n'; 1 << 20], b"\r\n"].concat();
        let mut response = [0; 10];
        let talk = async {
            connection.write_all(head.as_bytes()).await.unwrap();
            // More than the buffers of a connection hold.
            for _ in 0..24 {
                connection.write_all(&piece).await.unwrap();
            }
            connection.read_exact(&mut response).await.unwrap();
        };
        tokio::time::timeout(DEADLINE, talk).await.unwrap();
        assert_eq!(&response, b"HTTP/1.1 4", "{path}");
    }
}
