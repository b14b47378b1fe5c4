//! Which definitions of agents are accepted over HTTP: what runs on a node or names its directories is
//! for its operator, unless the file says otherwise.

use serde_json::{Value, json};

use crate::access::{GuardedApi, key_line};
use crate::api::ApiResponse;

fn definition(extra: Value) -> Value {
    let mut definition = json!({"model": {"provider": "scripted", "script": [{"text": "Yes?"}]}});
    for (field, value) in extra.as_object().unwrap() {
        definition[field] = value.clone();
    }
    definition
}

async fn put(guarded: &GuardedApi, who: &str, extra: Value) -> ApiResponse {
    guarded.send(who, "PUT", "/v1/agents/a", definition(extra)).await
}

#[tokio::test]
async fn an_author_runs_nothing_on_the_node_unless_the_file_says_so() {
    let author = |id: &str, tenant: &str| {
        let mut line = key_line(id, &["author"]);
        line["tenant"] = json!(tenant);
        line
    };
    let keys = [author("plain", "default"), author("trusted", "acme"), author("reader", "beta")];
    let document = json!({"keys": keys, "tenants": {"default": {},
        "acme": {"agents_over_http": "all"}, "beta": {"agents_over_http": "off"}}});
    let guarded = GuardedApi::start(&document).await;
    let bash = json!({"tools": [{"builtin": ["read", "bash"]}]});
    let server = json!({"mcp_servers": {"files": {"command": "/bin/cat"}}});
    let root = json!({"workspace": {"root": "/"}});

    assert_eq!(put(&guarded, "plain", json!({})).await.status, 201);
    for (extra, field) in
        [(&bash, "run.builtin"), (&server, "mcp_servers.files.command"), (&root, "workspace.root")]
    {
        let refused = put(&guarded, "plain", extra.clone()).await;
        assert_eq!(refused.status, 422, "{refused:?}");
        assert_eq!(refused.body["errors"][0]["field"], field, "{refused:?}");
    }
    assert_eq!(put(&guarded, "trusted", bash).await.status, 201);

    put(&guarded, "reader", json!({})).await.is_problem(403, "forbidden");
    let deleted = guarded.send("reader", "DELETE", "/v1/agents/a", Value::Null).await;
    deleted.is_problem(403, "forbidden");
    assert_eq!(guarded.get("reader", "/v1/agents").await.status, 200);
}
