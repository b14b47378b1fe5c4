//! The console with what nobody wants: long lists, calls that are large, late or answered by others, and credentials
//! that permit little, or end.

use abide_tests::node::Site;
use serde_json::{Map, Value, json};

use crate::ABIDE;
use crate::agents::{agent, call, gated_client, human, steps};
use crate::authentication::{by, guarded, key, line};
use crate::console::Person;

/// An agent whose model calls this tool, which waits for somebody for so long.
fn waiting(tool: Value, args: Value, timeout: &str) -> Value {
    let calls = vec![call("it", tool["name"].as_str().unwrap(), args)];
    let mut definition = agent(steps(&[calls]), vec![tool]);
    definition["suspension_timeout"] = json!(timeout);
    definition
}

/// A gated tool that asks this.
fn asking(question: &str) -> Value {
    let mut tool = gated_client("book");
    tool["confirmation_message"] = json!(question);
    tool
}

/// Opens the call of a conversation of this name, with an agent of the same name.
async fn open(site: &Site, name: &str, definition: &Value, kind: &str) {
    site.client.define(name, definition).await;
    site.client.send_message(name, name, "go").await;
    site.client.wait_for_pending(name, "it", kind).await;
}

#[tokio::test]
async fn an_inbox_of_thousands_draws_what_is_in_view_and_pages_through_the_rest() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    let calls = (0..100).map(|n| call(&format!("k{n}"), "book", json!({"n": n}))).collect();
    let mut definition = agent(steps(&[calls]), vec![asking("Book {{ args.n }}?")]);
    definition["suspension_timeout"] = json!("60m");
    site.client.define("a", &definition).await;
    for number in 0..24 {
        let conversation = format!("c{number}");
        site.client.send_message(&conversation, "a", "go").await;
        site.client.wait_for_pending(&conversation, "k99", "approval").await;
    }
    let url = format!("http://{}/console/", site.client.admin_address());
    Person::start("long_lists.mjs", &url).finish().await;
}

#[tokio::test]
async fn a_person_answers_calls_that_are_large_odd_late_and_answered_by_others() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    let args = json!({"title": "large", "body": "x".repeat(900_000)});
    let large = waiting(asking("Upload it?"), args, "60m");
    open(&site, "large", &large, "approval").await;
    let unknown = vec![call("it", &"name_".repeat(60), json!({"n": 1}))];
    site.client.define("long", &agent(steps(&[unknown]), vec![human("ask")])).await;
    site.client.send_message("long", "long", "go").await;
    site.client.wait_until_settled("long", 1).await;
    let seat = json!({"type": "object", "properties": {"row": {"type": "integer"}}});
    let seats =
        json!({"type": "object", "properties": {"seats": {"type": "array", "items": seat}}});
    let mut choose = human("choose");
    choose["result_schema"] = json!({"$defs": {"seats": seats}, "$ref": "#/$defs/seats"});
    open(&site, "form", &waiting(choose, json!({}), "60m"), "elicitation").await;
    open(&site, "quick", &waiting(asking("Quick?"), json!({}), "60m"), "approval").await;
    open(&site, "patient", &waiting(asking("Later?"), json!({}), "2h"), "approval").await;
    let url = format!("http://{}/console/", site.client.public_address());
    let mut person = Person::start("hostile_calls.mjs", &url);
    person.needs("quicker").await;
    let denial = json!({"approved": false, "reason": "no need"});
    site.client.resolve("quick", "it", denial).await.expect(200);
    person.go_on().await;
    person.needs("late").await;
    open(&site, "late", &waiting(asking("Late?"), json!({}), "15s"), "approval").await;
    person.go_on().await;
    person.finish().await;
    let answered = site.client.wait_until_settled("form", 1).await;
    assert_eq!(answered.result("it")["result"], json!({"seats": [{"row": 7}]}));
}

#[tokio::test]
async fn a_person_is_told_what_a_credential_may_not_do_and_that_it_has_ended() {
    let ids = ["operator", "approver", "first", "second"];
    let roles = ["operator", "approver", "backend", "backend"];
    let keys: Vec<Value> = ids.iter().zip(roles).map(|(id, role)| line(id, &[role])).collect();
    let hello = json!({"provider": "scripted", "script": [{"text": "Hello."}]});
    let site = guarded(Site::new(ABIDE), &keys, &[("talk", agent(hello, vec![]))]);
    let _node = site.start().await;
    by(&site, "second").send_message("talk", "talk", "hi").await;
    let secrets: Map<String, Value> =
        ids.iter().map(|id| ((*id).to_owned(), json!(key(id)))).collect();
    let url = format!("http://{}/console/", site.client.admin_address());
    let secrets = Value::Object(secrets).to_string();
    let mut person = Person::start_with("credentials.mjs", &[&url, &secrets]);
    person.needs("end").await;
    // The file no longer has the first backend's key.
    let kept = json!([keys[0], keys[1], keys[3]]);
    let file = json!({"keys": kept, "tokens": {"keys": ["file:token.pem"]}});
    std::fs::write(site.dir().join("auth.yaml"), file.to_string()).unwrap();
    person.go_on().await;
    person.finish().await;
}
