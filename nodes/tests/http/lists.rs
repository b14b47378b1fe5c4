//! The list of conversations: what is found, in which order, and what is refused.

use serde_json::{Map, Value, json};

use crate::api::Api;

/// Defines an agent that indexes these keys.
async fn define(api: &Api, name: &str, index: Value) {
    let model = json!({"provider": "scripted", "script": [{"text": "hello"}]});
    let agent = json!({"model": model, "index": index});
    let defined = api.put(&format!("/v1/agents/{name}"), agent).await;
    assert!([200, 201].contains(&defined.status), "{defined:?}");
}

async fn create(api: &Api, body: Value) {
    let created = api.post("/v1/conversations", body).await;
    assert_eq!(created.status, 201, "{created:?}");
}

async fn ids(api: &Api, query: &str) -> Vec<String> {
    let page = api.get(&format!("/v1/conversations?{query}")).await;
    assert_eq!(page.status, 200, "{query}: {page:?}");
    let rows = page.body["conversations"].as_array().unwrap().clone();
    rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn conversations_are_found_by_the_metadata_that_their_agent_indexes() {
    let api = Api::start().await;
    define(&api, "shop", json!(["customer", "a.b", "__proto__"])).await;
    let new = |id: &str, metadata: Value| json!({"id": id, "agent": "shop", "metadata": metadata});
    create(&api, new("a", json!({"customer": "7", "plan": "gold", "a.b": "x y"}))).await;
    create(&api, new("b", json!({"customer": "7", "__proto__": "p"}))).await;
    create(&api, new("c", json!({"customer": 7}))).await;
    for (query, expected) in [
        ("metadata.customer=7&dir=asc", vec!["a", "b"]),
        ("metadata.customer=7&agent=shop", vec!["b", "a"]),
        ("metadata.customer=7&metadata.a.b=x%20y", vec!["a"]),
        ("metadata%2Ecustomer=7&metadata.__proto__=p", vec!["b"]),
        ("metadata.customer=8", vec![]),
        ("metadata.plan=gold", vec![]),
        ("metadata.customer=7&agent=demo2", vec![]),
    ] {
        assert_eq!(ids(&api, query).await, expected, "{query}");
    }
    // What a PATCH changes is found at its new place only.
    let patch = json!({"metadata": {"customer": "8", "__proto__": null}});
    assert_eq!(api.patch("/v1/conversations/b", patch).await.status, 200);
    assert_eq!(ids(&api, "metadata.customer=7").await, ["a"]);
    assert_eq!(ids(&api, "metadata.customer=8").await, ["b"]);
    assert_eq!(ids(&api, "metadata.__proto__=p").await, [""; 0]);
    assert_eq!(api.delete("/v1/conversations/b").await.status, 204);
    assert_eq!(ids(&api, "metadata.customer=8").await, [""; 0]);
    for (query, field) in [
        ("agent=shop&metadata.plan=gold", "metadata.plan: "),
        ("metadata.a=1&metadata.b=1&metadata.c=1&metadata.d=1&metadata.e=1", "metadata: "),
        ("metadata.a=1&metadata.a=2", "metadata.a: "),
    ] {
        api.get(&format!("/v1/conversations?{query}")).await.names(field);
    }
}

#[tokio::test]
async fn a_map_of_ten_thousand_keys_costs_the_index_nothing() {
    let api = Api::start().await;
    define(&api, "shop", json!(["k9999"])).await;
    let many: Map<String, Value> = (0..10_000)
        .map(|n| (format!("k{n}"), if n == 9_999 { json!("x") } else { json!("") }))
        .collect();
    let body = json!({"agent": "shop", "metadata": many});
    api.post("/v1/conversations", body).await.names("metadata: ");
    let fewer: Map<String, Value> = many.into_iter().skip(6_000).collect();
    create(&api, json!({"id": "a", "agent": "shop", "metadata": fewer})).await;
    assert_eq!(ids(&api, "metadata.k9999=x").await, ["a"]);
}

#[tokio::test]
async fn a_list_is_sorted_by_the_last_activity_and_shows_what_was_used() {
    let api = Api::start().await;
    define(&api, "shop", json!([])).await;
    for id in ["a", "b"] {
        create(&api, json!({"id": id, "agent": "shop"})).await;
    }
    let sent = api.post("/v1/conversations/a/messages?wait=30s", json!({"text": "hi"})).await;
    assert_eq!(sent.body["outcome"], "completed", "{sent:?}");
    assert_eq!(ids(&api, "order=active").await, ["a", "b"]);
    assert_eq!(ids(&api, "order=active&dir=asc").await, ["b", "a"]);
    assert_eq!(ids(&api, "").await, ["b", "a"]);
    let page = api.get("/v1/conversations?order=active").await.body;
    let [first, second] = [0, 1].map(|at| page["conversations"][at].clone());
    assert_eq!((&first["turns"], &first["pending"]), (&json!(1), &json!(0)));
    assert_eq!(first["usage"], api.get("/v1/conversations/a").await.body["usage"]);
    assert_eq!(second["active_at"], second["created_at"]);
    let at = first["active_at"].as_str().unwrap();
    assert_eq!(ids(&api, &format!("active_after={at}")).await, [""; 0]);
    assert_eq!(ids(&api, &format!("active_before={at}")).await, ["b"]);
    for (query, field) in [
        (format!("created_after={at}&created_before={at}"), "created_before: "),
        (format!("active_after={at}&active_before=2020-01-01T00:00:00Z"), "active_before: "),
        ("created_after=yesterday".to_owned(), "created_after: "),
        ("order=name".to_owned(), "order: "),
        ("dir=up".to_owned(), "dir: "),
        ("owner=system".to_owned(), "owner: "),
        ("parent=a/b".to_owned(), "parent: "),
        ("root_only=perhaps".to_owned(), "root_only: "),
    ] {
        api.get(&format!("/v1/conversations?{query}")).await.names(field);
    }
}

#[tokio::test]
async fn children_are_listed_under_their_parent() {
    let api = Api::start().await;
    let script = |steps: Value| json!({"provider": "scripted", "script": steps});
    let kid = json!({"model": script(json!([{"text": "done"}]))});
    assert_eq!(api.put("/v1/agents/kid", kid).await.status, 201);
    let call = json!({"id": "x", "name": "ask", "args": {"prompt": "go"}});
    let boss = json!({"model": script(json!([{"calls": [call]}, {"text": "ok"}])),
        "tools": [{"name": "ask", "run": {"agent": "kid"}}]});
    assert_eq!(api.put("/v1/agents/boss", boss).await.status, 201);
    let sent = json!({"agent": "boss", "text": "go"});
    let sent = api.post("/v1/conversations/p/messages?wait=30s", sent).await;
    assert_eq!(sent.body["outcome"], "completed", "{sent:?}");
    assert_eq!(ids(&api, "").await, ["p"]);
    let children = api.get("/v1/conversations?parent=p").await.body["conversations"].clone();
    assert_eq!((children.as_array().unwrap().len(), &children[0]["parent"]), (1, &json!("p")));
    assert_eq!(ids(&api, "root_only=false").await.len(), 2);
    assert_eq!(ids(&api, "agent=kid").await, [""; 0]);
    assert_eq!(ids(&api, "agent=kid&root_only=false").await.len(), 1);
}

#[tokio::test]
async fn a_cursor_is_of_one_list() {
    let api = Api::start().await;
    for id in ["a", "b"] {
        create(&api, json!({"id": id, "agent": "demo"})).await;
    }
    let page = api.get("/v1/conversations?limit=1").await.body;
    let cursor = page["cursor"].as_str().unwrap();
    assert_eq!(ids(&api, &format!("limit=5&cursor={cursor}")).await, ["a"]);
    for other in ["dir=asc", "order=active", "agent=demo", "metadata.a=1", "root_only=false"] {
        let refused = api.get(&format!("/v1/conversations?{other}&cursor={cursor}")).await;
        refused.names("cursor: ");
    }
    let inbox = api.get(&format!("/v1/pending?cursor={cursor}")).await;
    inbox.names("cursor: ");
}

/// The last rebuild, as the operators' API shows it.
async fn rebuild(api: &Api) -> Value {
    let shown = reqwest::get(format!("http://{}/admin/indexes", api.node.admin)).await.unwrap();
    shown.json::<Value>().await.unwrap()["rebuild"].clone()
}

async fn rebuilt(api: &Api, number: u64) -> Value {
    let deadline = std::time::Instant::now() + crate::api::DEADLINE;
    loop {
        let last = rebuild(api).await;
        if last["number"] == number && last["state"] == "done" {
            return last;
        }
        assert!(std::time::Instant::now() < deadline, "{last}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_key_that_is_indexed_later_counts_after_a_rebuild() {
    let api = Api::start().await;
    // The index of a new store is complete at once.
    rebuilt(&api, 1).await;
    define(&api, "shop", json!([])).await;
    for id in ["a", "b"] {
        let body = json!({"id": id, "agent": "shop", "metadata": {"customer": "7"}});
        create(&api, body).await;
    }
    define(&api, "shop", json!(["customer"])).await;
    // The list says that it lacks some, until they are indexed by themselves or on request.
    let list = "/v1/conversations?metadata.customer=7";
    for list in [list.to_owned(), format!("{list}&agent=shop")] {
        let page = api.get(&list).await.body;
        assert_eq!((&page["conversations"], &page["incomplete"]), (&json!([]), &json!(true)));
    }
    for list in ["/v1/conversations?agent=shop", &format!("{list}&agent=demo-2")] {
        assert_eq!(api.get(list).await.body.get("incomplete"), None, "{list}");
    }
    let shown = reqwest::get(format!("http://{}/admin/indexes", api.node.admin)).await.unwrap();
    let agents = shown.json::<Value>().await.unwrap()["agents"].clone();
    assert_eq!(agents[0]["agent"], "shop", "{agents}");
    let url = format!("http://{}/admin/indexes/rebuild", api.node.admin);
    let answer = reqwest::Client::new().post(&url).send().await.unwrap();
    assert_eq!(answer.status(), 202);
    let begun: Value = answer.json().await.unwrap();
    assert_eq!(
        (&begun["rebuild"]["number"], &begun["rebuild"]["state"]),
        (&json!(2), &json!("running"))
    );
    assert_eq!(rebuilt(&api, 2).await["conversations"], 2);
    assert_eq!(ids(&api, "metadata.customer=7&agent=shop").await, ["b", "a"]);
}
