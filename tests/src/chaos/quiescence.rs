//! Checks that nothing waits, runs or has an alarm once everything has settled.

use reqwest::Method;
use serde_json::Value;

use crate::checks::Evidence;
use crate::client::Client;
use crate::deadline::try_poll;

/// What is left, as a node's public and operators' APIs show it: open suspensions, conversations
/// that are not idle, alarms, live actors that have something to do, and quarantined conversations.
pub(super) async fn leftovers(client: &Client, evidence: &Evidence) -> Vec<String> {
    let client = client.clone().without_history();
    let mut leftovers = Vec::new();
    for (what, public, path, rows) in [
        ("waits in the inbox", true, "/v1/pending?limit=1000", "pending"),
        ("is not idle", true, "/v1/conversations?root_only=false&limit=1000", "conversations"),
        ("has an alarm", false, "/admin/alarms?limit=1000", "alarms"),
        ("has something to do", false, "/admin/actors?limit=1000", "actors"),
    ] {
        let mut last = vec![Value::String(format!("{path} was not answered"))];
        // The last writes may just have been made.
        try_poll(async || {
            last = all(&client, public, path, rows).await?;
            last.is_empty().then_some(())
        })
        .await;
        leftovers.extend(last.iter().map(|row| format!("at the end {what}: {row}")));
    }
    for id in evidence.journals.keys() {
        let answer = client.try_admin(Method::GET, &format!("/admin/actors/{id}")).await;
        let state = answer.map(|answer| answer.body).unwrap_or_default();
        if state["state"] == "quarantined" {
            leftovers.push(format!("{id} is quarantined: {}", state["why"]["waits_for"]));
        }
    }
    leftovers
}

/// The rows of all pages that are not idle; `None` when they cannot be read now.
async fn all(client: &Client, public: bool, path: &str, rows: &str) -> Option<Vec<Value>> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("{path}{after}");
        let page = if public {
            client.ask(Method::GET, &path, None, None).await?
        } else {
            client.try_admin(Method::GET, &path).await?
        };
        let found = page.body[rows].as_array()?;
        all.extend(found.iter().filter(|row| row["state"] != "idle").cloned());
        match page.body["cursor"].as_str() {
            Some(cursor) => after = format!("&cursor={cursor}"),
            None => return Some(all),
        }
    }
}
