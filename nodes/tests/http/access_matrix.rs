//! Every operation of both APIs by every kind of caller. An operation without a row fails.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::access::{GuardedApi, key, key_line};
use crate::issuer::{Issuer, IssuerKey, now};

/// The callers, each with its roles; Ada owns the conversation, Bob is a member, Eve is neither.
const CALLERS: [(&str, &str); 10] = [
    ("ada", "user"),
    ("bob", "user"),
    ("eve", "user"),
    ("approver", "approver"),
    ("backend", "backend"),
    ("author", "author"),
    ("admin", "tenant-admin"),
    ("auditor", "auditor"),
    ("operator", "operator"),
    ("worker", "worker"),
];

/// What becomes of a request, one letter for each caller: `a`, it is allowed; `f`, it is forbidden;
/// `n`, the conversation does not exist for the caller.
const PUBLIC: [(&str, &str); 100] = [
    ("list_agents", "aaafaaaaff"),
    ("get_agent", "aaafaaaaff"),
    ("list_revisions", "aaafaaaaff"),
    ("get_revision", "aaafaaaaff"),
    ("compare_revisions", "aaafaaaaff"),
    ("roll_back_agent", "fffffaffff"),
    ("get_rollout", "aaafaaaaff"),
    ("put_rollout", "fffffaffff"),
    ("end_rollout", "fffffaffff"),
    ("put_agent", "fffffaffff"),
    ("delete_agent", "fffffaffff"),
    ("list_agent_decisions", "ffffffafff"),
    ("revoke_agent_decision", "ffffffafff"),
    ("create_conversation", "aaafafffff"),
    ("list_conversations", "aaafaffaff"),
    ("get_conversation", "aannannann"),
    ("list_messages", "aannannann"),
    ("read_journal", "aannannann"),
    ("stream_events", "aannannann"),
    ("list_decisions", "aannannann"),
    ("send_message", "aannannfnn"),
    ("cancel_turn", "aannannfnn"),
    ("dispatch_tool", "aannannfnn"),
    ("revoke_decision", "aannannfnn"),
    ("resolve_call", "aanaannfnn"),
    ("resolve_calls", "aanaannfnn"),
    ("fork_conversation", "afnnannfnn"),
    ("update_conversation", "afnnannfnn"),
    ("delete_conversation", "afnnannfnn"),
    ("export_conversation", "afnnannfnn"),
    ("import_conversation", "ffffffafff"),
    ("list_pending", "aaaaaffaff"),
    ("put_blob", "aaafafffff"),
    ("get_blob", "aaaaaffaff"),
    ("list_blobs", "aannannann"),
    ("list_keys", "ffffffafff"),
    ("create_key", "ffffffafff"),
    ("revoke_key", "ffffffafff"),
    ("mint_token", "afnfafffff"),
    ("get_usage", "ffffafafff"),
    ("start_erasure", "ffffffafff"),
    ("list_erasures", "ffffffafff"),
    ("get_erasure", "ffffffafff"),
    ("chat", "aannannfnn"),
    ("resume_chat", "aannannann"),
    ("list_chat_messages", "aannannann"),
    ("stop_chat", "aannannfnn"),
    ("run_agent", "aannannfnn"),
    ("get_agent_capabilities", "aaafaaaaff"),
    ("get_copilotkit_info", "aaaaaaaaaa"),
    ("run_copilotkit_agent", "aannannfnn"),
    ("connect_copilotkit_agent", "aannannann"),
    ("stop_copilotkit_agent", "aannannfnn"),
    ("openai_list_models", "aaafaaaaff"),
    ("openai_create_response", "aannannfnn"),
    ("openai_get_response", "aannannann"),
    ("openai_cancel_response", "aannannfnn"),
    ("openai_list_input_items", "aannannann"),
    ("openai_create_conversation", "aaafafffff"),
    ("openai_get_conversation", "aannannann"),
    ("openai_delete_conversation", "afnnannfnn"),
    ("openai_list_items", "aannannann"),
    ("openai_create_chat_completion", "aannannfnn"),
    ("a2a_call", "aannannfnn"),
    ("get_agent_card", "aaafaaaaff"),
    ("mcp_call_tool", "aaaaaffaff"),
    ("mcp_call_agent", "aaaaaffaff"),
    ("get_me", "aaaaaaaaaa"),
    ("lease_calls", "ffffaffffa"),
    ("extend_lease", "ffffaffffa"),
    ("report_progress", "ffffaffffa"),
    ("complete_call", "ffffaffffa"),
    ("call_back", "aaaaaaaaaa"),
    ("list_webhooks", "ffffffafff"),
    ("put_webhook", "ffffffafff"),
    ("get_webhook", "ffffffafff"),
    ("delete_webhook", "ffffffafff"),
    ("rotate_webhook", "ffffffafff"),
    ("test_webhook", "ffffffafff"),
    ("list_deliveries", "ffffffafff"),
    ("redeliver", "ffffffafff"),
    ("list_scheduled", "aannannann"),
    ("withdraw_scheduled", "aannannfnn"),
    ("list_queue", "aannannann"),
    ("withdraw_turn", "aannannfnn"),
    ("rewind_conversation", "aannannfnn"),
    ("regenerate_turn", "aannannfnn"),
    ("extend_call", "aanaannfnn"),
    ("list_schedules", "aaafaffaff"),
    ("put_schedule", "aaafafffff"),
    ("get_schedule", "aaafaffaff"),
    ("delete_schedule", "aaafafffff"),
    ("pause_schedule", "aaafafffff"),
    ("resume_schedule", "aaafafffff"),
    ("trigger_schedule", "aaafafffff"),
    ("resolve_many", "aaaaannann"),
    ("stream_pending", "aaaaaffaff"),
    ("get_state", "aannannann"),
    ("put_state", "afnnannfnn"),
    ("delete_state", "afnnannfnn"),
];

/// The operations of the operators' API, as their router lists them.
const ADMIN: [(&str, &str, &str); 23] = [
    ("GET", "/healthz", "aaaaaaaaaa"),
    ("GET", "/readyz", "aaaaaaaaaa"),
    ("GET", "/console/config.json", "aaaaaaaaaa"),
    ("GET", "/metrics", "ffffffffaf"),
    ("GET", "/admin/nodes", "ffffffffaf"),
    ("GET", "/admin/actors", "ffffffffaf"),
    ("GET", "/admin/actors/{id}", "ffffffffaf"),
    ("POST", "/admin/actors/{id}/retry", "ffffffffaf"),
    ("POST", "/admin/actors/{id}/calls/{call_id}/fail", "ffffffffaf"),
    ("POST", "/admin/actors/{id}/cancel", "ffffffffaf"),
    ("POST", "/admin/actors/{id}/move", "ffffffffaf"),
    ("POST", "/admin/actors/{id}/release", "ffffffffaf"),
    ("POST", "/admin/actors/{id}/kill", "ffffffffaf"),
    ("GET", "/admin/alarms", "ffffffffaf"),
    ("GET", "/admin/audit/{id}", "fffffffaff"),
    ("GET", "/admin/operations", "fffffffaaf"),
    ("DELETE", "/admin/blobs/{id}", "ffffffafaf"),
    ("POST", "/admin/nodes/{node}/drain", "ffffffffaf"),
    ("POST", "/admin/nodes/{node}/declare-dead", "ffffffffaf"),
    ("GET", "/admin/queues", "ffffffffaf"),
    ("POST", "/admin/encryption/rewrap", "ffffffffaf"),
    ("GET", "/admin/indexes", "ffffffffaf"),
    ("POST", "/admin/indexes/rebuild", "ffffffffaf"),
];

/// For everybody, without a credential.
const FOR_EVERYBODY: [&str; 3] = ["/healthz", "/readyz", "/console/config.json"];

async fn guarded(issuer: &Issuer) -> GuardedApi {
    let mut keys: Vec<Value> = CALLERS.iter().map(|(id, role)| key_line(id, &[role])).collect();
    let worker = keys.iter_mut().find(|line| line["id"] == "worker").unwrap();
    worker["queues"] = json!(["mail"]);
    let roles = ["user", "approver", "backend", "author", "tenant-admin", "auditor"];
    let mut stranger = key_line("stranger", &roles);
    stranger["tenant"] = json!("acme");
    keys.push(stranger);
    let mut entry = issuer.entry();
    entry["claims"] = json!({"tenant": {"const": "default"}});
    let tenants = json!({"default": {}, "acme": {}});
    GuardedApi::start(&json!({"keys": keys, "issuers": [entry], "tenants": tenants})).await
}

/// The body of a request to this operation.
fn body(operation: &str, caller: &str, id: &str) -> Value {
    match operation {
        "put_agent" => json!({"model": {"provider": "scripted", "script": [{"text": "hi"}]}}),
        "create_conversation" => json!({"agent": "demo"}),
        "send_message" => json!({"text": "hi", "if_busy": "queue"}),
        "roll_back_agent" => json!({"revision": "0123456789abcdef"}),
        "put_rollout" => json!({"revision": "0123456789abcdef", "percent": 10}),
        "dispatch_tool" => json!({"tool": "nothing", "input": {}}),
        "resolve_call" => json!({"result": 1}),
        "extend_call" => json!({"for": "1h"}),
        "resolve_many" => json!({"resolutions": [{"conversation_id": id, "call_id": "call_1_1",
            "result": 1}]}),
        // What is forbidden must not depend on whose it is.
        "put_schedule" => json!({"agent": "nobody", "every": "1h", "text": "hi"}),
        "resolve_calls" => json!({"answers": [{"call_id": "call_1_1", "result": 1}]}),
        "fork_conversation" | "regenerate_turn" => json!({}),
        "rewind_conversation" => json!({"to_seq": 1}),
        "update_conversation" => json!({"metadata": {"a": 1}}),
        "lease_calls" => json!({"wait": "0s"}),
        "extend_lease" => json!({}),
        "report_progress" => json!({"progress": 1}),
        "complete_call" | "call_back" => json!({"result": 1}),
        "put_state" => json!(1),
        "create_key" => json!({"name": "k", "roles": ["user"]}),
        "chat" => json!({"id": id, "messages": [{"id": "m", "role": "user",
            "parts": [{"type": "text", "text": "hi"}]}], "abide": {"if_busy": "queue"}}),
        "run_agent" | "run_copilotkit_agent" | "connect_copilotkit_agent" => json!({
            "threadId": id, "runId": "r", "forwardedProps": {"abide": {"if_busy": "queue"}},
            "messages": [{"id": "m", "role": "user", "content": "hi"}]}),
        "openai_create_response" => json!({"model": "demo", "conversation": id, "input": "hi",
            "background": true}),
        "openai_create_chat_completion" => json!({"model": "demo", "conversation": id,
            "messages": [{"role": "user", "content": "hi"}]}),
        "openai_create_conversation" => json!({"metadata": {"agent": "demo"}}),
        "a2a_call" => crate::a2a::call(
            "SendMessage",
            json!({"message": {"messageId": "m",
            "role": "ROLE_USER", "contextId": id, "parts": [{"text": "hi"}]}}),
        ),
        "mcp_call_tool" | "mcp_call_agent" => {
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        }
        "mint_token" => json!({"subject": format!("key:{caller}"), "conversation": id,
            "scope": ["read"], "ttl": "1m"}),
        _ => Value::Null,
    }
}

async fn status_of(url: &str, request: &Request<'_>) -> (u16, Value) {
    let client = reqwest::Client::new();
    let method = reqwest::Method::from_bytes(request.method.as_bytes()).unwrap();
    let mut sent = client.request(method, format!("{url}{}", request.path));
    if request.operation == "a2a_call" {
        sent = sent.header("A2A-Version", "1.0");
    }
    if let Some(credential) = request.credential {
        sent = sent.bearer_auth(credential);
    }
    if !request.body.is_null() {
        sent = sent.json(&request.body);
    } else if request.operation == "put_blob" {
        sent = sent.header("Content-Type", "text/plain").body("bytes");
    }
    let answer = sent.send().await.unwrap();
    let status = answer.status().as_u16();
    // A stream has no end.
    let media = answer.headers().get("content-type").and_then(|media| media.to_str().ok());
    let is_problem = media.is_some_and(|media| media.contains("problem"));
    let may_be_error = status >= 400 || request.operation == "a2a_call";
    let is_error = is_problem || media == Some("application/json") && may_be_error;
    let body = if is_error { answer.json().await.unwrap() } else { Value::Null };
    (status, body)
}

struct Request<'a> {
    operation: &'a str,
    method: &'a str,
    path: String,
    body: Value,
    credential: Option<&'a str>,
}

fn class(status: u16, body: &Value) -> char {
    let detail = body["detail"].as_str().or_else(|| body["error"]["message"].as_str());
    match (status, detail) {
        (403, _) => 'f',
        // JSON-RPC has no status.
        (404 | 200, Some("conversation not found")) => 'n',
        (401, _) => 'u',
        _ => 'a',
    }
}

#[tokio::test]
async fn every_operation_is_open_to_the_callers_of_its_row_and_to_nobody_else() {
    let issuers_key = IssuerKey::ed25519("k");
    let issuer = Issuer::start(&[&issuers_key]).await;
    let guarded = guarded(&issuer).await;
    let document: Value = serde_json::from_str(abide::http::openapi::text()).unwrap();
    let mut without_row = BTreeSet::new();
    let base = format!("http://{}", guarded.api.node.public);
    let mut expired = issuer.claims("ada", &["lead", "bot"]);
    expired["exp"] = json!(now() - 3_600);
    let expired = issuers_key.sign(&expired);
    let stranger = key("stranger");
    let mut number = 0;
    for (template, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let operation = operation["operationId"].as_str().unwrap();
            if operation == "get_openapi" {
                continue;
            }
            let Some((_, row)) = PUBLIC.iter().find(|(name, _)| *name == operation) else {
                without_row.insert(operation.to_owned());
                continue;
            };
            for ((caller, _), expected) in CALLERS.iter().zip(row.chars()) {
                number += 1;
                let id = format!("c{number}");
                let new = json!({"id": id, "agent": "demo", "members": ["key:bob"]});
                let created = guarded.send("ada", "POST", "/v1/conversations", new).await;
                assert_eq!(created.status, 201);
                let path = template
                    .replace("/conversations/{id}", &format!("/conversations/{id}"))
                    .replace("/agents/{name}/ui", "/agents/demo/ui")
                    .replace("/agents/{name}/ag-ui", "/agents/demo/ag-ui")
                    .replace("/agent/{name}", "/agent/demo")
                    .replace("/a2a/{name}", "/a2a/demo")
                    .replace("/mcp/{name}", "/mcp/demo")
                    .replace("{thread}", &id)
                    .replace("{chat}", &id)
                    .replace("{response_id}", &format!("resp_1.k_a.{id}"))
                    .replace("{conversation_id}", &id)
                    .replace("{name}", "other")
                    .replace("{call_id}", "call_1_1")
                    .replace("{decision_id}", "dec_1")
                    .replace("{queue}", "mail")
                    .replace("{scheduled_id}", "sch_1")
                    .replace("{key}", "cart")
                    .replace("{revision}", "0123456789abcdef")
                    .replace("{a}", "0123456789abcdef")
                    .replace("{b}", "0123456789abcdef")
                    .replace("{id}", &format!("blob_{}", "0".repeat(64)));
                let path = match operation {
                    "list_blobs" => format!("{path}?conversation={id}"),
                    _ => path,
                };
                let method = method.to_uppercase();
                let body = body(operation, caller, &id);
                let request = |credential| Request {
                    operation,
                    method: &method,
                    path: path.clone(),
                    body: body.clone(),
                    credential,
                };
                let refused = [None, Some("garbage"), Some(&*expired)];
                // A callback brings its own token.
                let is_public = operation == "call_back";
                for refused in refused.into_iter().filter(|_| *caller == "ada" && !is_public) {
                    let (status, _) = status_of(&base, &request(refused)).await;
                    assert_eq!(status, 401, "{operation} by {refused:?}");
                }
                if *caller == "ada" {
                    // Whatever the roles in another tenant.
                    let names_it = path.contains(&id) || operation == "mint_token";
                    let (status, answer) = status_of(&base, &request(Some(&stranger))).await;
                    let expected = if names_it { 'n' } else { 'a' };
                    let found = class(status, &answer);
                    assert_eq!(found, expected, "{operation} by a stranger: {status} {answer}");
                }
                let own = key(caller);
                let (status, answer) = status_of(&base, &request(Some(&own))).await;
                let found = class(status, &answer);
                assert_eq!(found, expected, "{operation} by {caller}: {status} {answer}");
            }
        }
    }
    assert!(without_row.is_empty(), "no row: {without_row:?}");
}

#[tokio::test]
async fn the_operators_api_is_for_operators() {
    let issuer = Issuer::start(&[&IssuerKey::ed25519("k")]).await;
    let guarded = guarded(&issuer).await;
    let base = format!("http://{}", guarded.api.node.admin);
    let rows: BTreeSet<(String, String)> =
        ADMIN.iter().map(|(method, path, _)| (method.to_string(), path.to_string())).collect();
    let routes: BTreeSet<(String, String)> = abide::admin::operations().into_iter().collect();
    assert_eq!(rows, routes, "each operation has a row");
    // The drain comes last: a node that drains refuses the rest.
    let is_drain = |path: &str| path.ends_with("/drain");
    let (drain, others): (Vec<_>, Vec<_>) = ADMIN.iter().partition(|(_, path, _)| is_drain(path));
    for (method, template, row) in others.into_iter().chain(drain) {
        let path = template
            .replace("{id}", &format!("blob_{}", "0".repeat(64)))
            .replace("{call_id}", "c")
            .replace("{node}", "nobody");
        let (status, _) = status_of(&base, &operators(method, &path, None)).await;
        let expected = if FOR_EVERYBODY.contains(&template) { 200 } else { 401 };
        assert_eq!(status, expected, "{method} {path} without a credential");
        for ((caller, _), expected) in CALLERS.iter().zip(row.chars()) {
            let own = key(caller);
            let (status, answer) = status_of(&base, &operators(method, &path, Some(&own))).await;
            let found = if class(status, &answer) == 'n' { 'a' } else { class(status, &answer) };
            assert_eq!(found, expected, "{method} {path} by {caller}: {status} {answer}");
        }
    }
}

/// A request to the operators' API.
fn operators<'a>(method: &'a str, path: &str, credential: Option<&'a str>) -> Request<'a> {
    Request { operation: "", method, path: path.to_owned(), body: Value::Null, credential }
}
