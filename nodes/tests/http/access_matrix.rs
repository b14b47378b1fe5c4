//! Every operation of both APIs by every kind of caller. An operation without a row fails.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::access::{GuardedApi, key, key_line};
use crate::issuer::{Issuer, IssuerKey, now};

/// The callers, each with its roles; Ada owns the conversation, Bob is a member, Eve is neither.
const CALLERS: [(&str, &str); 9] = [
    ("ada", "user"),
    ("bob", "user"),
    ("eve", "user"),
    ("approver", "approver"),
    ("backend", "backend"),
    ("author", "author"),
    ("admin", "tenant-admin"),
    ("auditor", "auditor"),
    ("operator", "operator"),
];

/// What becomes of a request, one letter for each caller: `a`, it is allowed; `f`, it is forbidden;
/// `n`, the conversation does not exist for the caller.
const PUBLIC: [(&str, &str); 55] = [
    ("list_agents", "aaafaaaaf"),
    ("get_agent", "aaafaaaaf"),
    ("put_agent", "fffffafff"),
    ("delete_agent", "fffffafff"),
    ("list_agent_decisions", "ffffffaff"),
    ("revoke_agent_decision", "ffffffaff"),
    ("create_conversation", "aaafaffff"),
    ("list_conversations", "aaafaffaf"),
    ("get_conversation", "aannannan"),
    ("list_messages", "aannannan"),
    ("read_journal", "aannannan"),
    ("stream_events", "aannannan"),
    ("list_decisions", "aannannan"),
    ("send_message", "aannannfn"),
    ("cancel_turn", "aannannfn"),
    ("dispatch_tool", "aannannfn"),
    ("revoke_decision", "aannannfn"),
    ("resolve_call", "aanaannfn"),
    ("resolve_calls", "aanaannfn"),
    ("fork_conversation", "afnnannfn"),
    ("update_conversation", "afnnannfn"),
    ("delete_conversation", "afnnannfn"),
    ("list_pending", "aaaaaffaf"),
    ("put_blob", "aaafaffff"),
    ("get_blob", "aaaaaffaf"),
    ("list_keys", "ffffffaff"),
    ("create_key", "ffffffaff"),
    ("revoke_key", "ffffffaff"),
    ("mint_token", "afnfaffff"),
    ("get_usage", "ffffafaff"),
    ("chat", "aannannfn"),
    ("resume_chat", "aannannan"),
    ("list_chat_messages", "aannannan"),
    ("stop_chat", "aannannfn"),
    ("run_agent", "aannannfn"),
    ("get_agent_capabilities", "aaafaaaaf"),
    ("get_copilotkit_info", "aaaaaaaaa"),
    ("run_copilotkit_agent", "aannannfn"),
    ("connect_copilotkit_agent", "aannannan"),
    ("stop_copilotkit_agent", "aannannfn"),
    ("openai_list_models", "aaafaaaaf"),
    ("openai_create_response", "aannannfn"),
    ("openai_get_response", "aannannan"),
    ("openai_cancel_response", "aannannfn"),
    ("openai_list_input_items", "aannannan"),
    ("openai_create_conversation", "aaafaffff"),
    ("openai_get_conversation", "aannannan"),
    ("openai_delete_conversation", "afnnannfn"),
    ("openai_list_items", "aannannan"),
    ("openai_create_chat_completion", "aannannfn"),
    ("a2a_call", "aannannfn"),
    ("get_agent_card", "aaafaaaaf"),
    ("mcp_call_tool", "aaaaaffaf"),
    ("mcp_call_agent", "aaaaaffaf"),
    ("get_me", "aaaaaaaaa"),
];

/// The operations of the operators' API, as their router lists them.
const ADMIN: [(&str, &str, &str); 19] = [
    ("GET", "/healthz", "aaaaaaaaa"),
    ("GET", "/readyz", "aaaaaaaaa"),
    ("GET", "/console/config.json", "aaaaaaaaa"),
    ("GET", "/metrics", "ffffffffa"),
    ("GET", "/admin/nodes", "ffffffffa"),
    ("GET", "/admin/actors", "ffffffffa"),
    ("GET", "/admin/actors/{id}", "ffffffffa"),
    ("POST", "/admin/actors/{id}/retry", "ffffffffa"),
    ("POST", "/admin/actors/{id}/calls/{call_id}/fail", "ffffffffa"),
    ("POST", "/admin/actors/{id}/cancel", "ffffffffa"),
    ("POST", "/admin/actors/{id}/move", "ffffffffa"),
    ("POST", "/admin/actors/{id}/release", "ffffffffa"),
    ("POST", "/admin/actors/{id}/kill", "ffffffffa"),
    ("GET", "/admin/alarms", "ffffffffa"),
    ("GET", "/admin/audit/{id}", "fffffffaf"),
    ("GET", "/admin/operations", "fffffffaa"),
    ("DELETE", "/admin/blobs/{id}", "ffffffafa"),
    ("POST", "/admin/nodes/{node}/drain", "ffffffffa"),
    ("POST", "/admin/nodes/{node}/declare-dead", "ffffffffa"),
];

/// For everybody, without a credential.
const FOR_EVERYBODY: [&str; 3] = ["/healthz", "/readyz", "/console/config.json"];

async fn guarded(issuer: &Issuer) -> GuardedApi {
    let mut keys: Vec<Value> = CALLERS.iter().map(|(id, role)| key_line(id, &[role])).collect();
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
        "dispatch_tool" => json!({"tool": "nothing", "input": {}}),
        "resolve_call" => json!({"result": 1}),
        "resolve_calls" => json!({"answers": [{"call_id": "call_1_1", "result": 1}]}),
        "fork_conversation" => json!({}),
        "update_conversation" => json!({"metadata": {"a": 1}}),
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
                    .replace("{id}", &format!("blob_{}", "0".repeat(64)));
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
                for refused in refused.into_iter().filter(|_| *caller == "ada") {
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
