//! The console's views of erasures and rollouts, and who is offered them.

use std::path::Path;

use abide_tests::kill_matrix::{Side, WatchedNode};
use abide_tests::node::Site;
use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::ABIDE;
use crate::agents::agent;
use crate::authentication::{by, guarded, key, line};
use crate::console::Person;

fn greeter(prompt: &str) -> Value {
    let model = json!({"provider": "scripted", "script": [{"text": "Hello."}]});
    let mut definition = agent(model, vec![]);
    definition["system_prompt"] = json!(prompt);
    definition
}

#[tokio::test]
async fn a_person_erases_another_sees_how_far_that_is_and_reads_the_report() {
    // The job is held where it takes the name out of a conversation of somebody else.
    let place = Some(("rewrite: created, user_msg", Side::Before));
    let watched = WatchedNode::start(Path::new(ABIDE), &[], place).await;
    let client = watched.client();
    client.define("a", &greeter("Be kind.")).await;
    for new in [
        json!({"id": "own", "agent": "a", "owner": "zq-person"}),
        json!({"id": "other", "agent": "a", "owner": "bob", "members": ["zq-person"]}),
    ] {
        client.post("/v1/conversations", &new).await.expect(201);
    }
    let message = json!({"text": "hi"});
    let person = client.clone().named("zq-person");
    person.post("/v1/conversations/other/messages?wait=10s", &message).await.expect(200);
    watched.watch();
    let url = format!("http://{}/console/", client.admin_address());
    let mut admin = Person::start("erasures.mjs", &url);
    watched.wait_until_held().await;
    admin.needs("held").await;
    watched.release();
    admin.go_on().await;
    admin.finish().await;
}

#[tokio::test]
async fn rollouts_and_erasures_are_offered_to_those_who_may_change_them() {
    let roles = [("user", "user"), ("author", "author"), ("admin", "tenant-admin")];
    let lines = roles.map(|(id, role)| line(id, &[role]));
    let site = guarded(Site::new(ABIDE), &lines, &[("a", greeter("Be kind."))]);
    let _node = site.start().await;
    let author = by(&site, "author");
    let listed = author.get("/v1/agents").await.expect(200);
    let older = &listed["agents"][0]["revision"];
    author.define("a", &greeter("Be short.")).await;
    let rollout = json!({"revision": older, "percent": 30});
    let put = author.ask(Method::PUT, "/v1/agents/a/rollout", None, Some(&rollout)).await;
    put.unwrap().expect(200);
    let keys: Map<String, Value> =
        roles.iter().map(|(id, _)| ((*id).to_owned(), json!(key(id)))).collect();
    let url = format!("http://{}/console/", site.client.public_address());
    let keys = Value::Object(keys).to_string();
    Person::start_with("rights.mjs", &[&url, &keys]).finish().await;
}
