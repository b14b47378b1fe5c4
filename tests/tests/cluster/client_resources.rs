//! What our own clients do with rollouts, erasures, and conversations that move.

use std::path::Path;
use std::process::Stdio;

use abide_tests::node::Site;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::clients::{Runtime, output};

/// Runs a program of this directory, and returns what it prints.
async fn run(runtime: Runtime, program: &str, arguments: [&str; 2]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(program);
    let mut command = runtime.command(&path, dir.path());
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let text = output(program, command.kill_on_drop(true).spawn().unwrap()).await;
    serde_json::from_str(&text).unwrap()
}

/// Each runtime, its program, and the name of its agent and of the person whom it erases.
const TENANTS: [(Runtime, &str, &str); 4] = [
    (Runtime::OldestPython, "tenant.py", "old-py"),
    (Runtime::Python, "tenant.py", "py"),
    (Runtime::OldestNode, "tenant.mjs", "old-js"),
    (Runtime::Node, "tenant.mjs", "js"),
];

#[tokio::test]
async fn each_client_begins_and_ends_a_rollout_and_erases_a_person() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    let hello = json!({"model": {"provider": "scripted", "script": [{"text": "Hello."}]}});
    site.client.define("a", &hello).await;
    let url = format!("http://{}", site.client.public_address());
    for (runtime, program, name) in TENANTS {
        for (id, participants) in
            [("own", json!({"owner": name})), ("other", json!({"owner": "bob", "members": [name]}))]
        {
            let mut new = json!({"id": format!("{id}-of-{name}"), "agent": "a"});
            new.as_object_mut().unwrap().extend(participants.as_object().unwrap().clone());
            site.client.post("/v1/conversations", &new).await.expect(201);
        }
        let told = run(runtime, program, [&url, name]).await;
        let expected = json!({
            "no rollout": "NotFoundError",
            "rolled out": [true, 100],
            "read again": true,
            "shares": [null, 100],
            "in the share": "old",
            "titles": ["A title", null],
            "ended": "NotFoundError",
            "ended twice": "NotFoundError",
            "after it": "new",
            "nobody": "InvalidRequestError",
            "erased": [1, 1, null],
            "listed": true,
            "no erasure": "NotFoundError",
        });
        assert_eq!(told, expected, "{runtime:?}");
        let gone = site.client.get(&format!("/v1/conversations/own-of-{name}")).await;
        gone.expect_problem(404, "not-found");
    }
}

#[tokio::test]
async fn each_client_finds_notes_and_moves_a_conversation() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    let hello = json!({"index": ["customer"],
        "model": {"provider": "scripted", "script": [{"text": "Hello."}]}});
    site.client.define("a", &hello).await;
    let url = format!("http://{}", site.client.public_address());
    for (runtime, program, name) in [
        (Runtime::OldestPython, "moving.py", "old-py"),
        (Runtime::Python, "moving.py", "py"),
        (Runtime::OldestNode, "moving.mjs", "old-js"),
        (Runtime::Node, "moving.mjs", "js"),
    ] {
        let told = run(runtime, program, [&url, name]).await;
        let expected = json!({
            "missing": "NotFoundError",
            "state": {"items": [1]},
            "too large": ["InvalidRequestError", "state"],
            "deleted": "NotFoundError",
            "copy": [true, true],
            "found": [[true, "A title"], [false, "A title"]],
            "taken": "ConflictError",
            "kept": [true, true],
            "one key": true,
            "no end": true,
            "half-way": ["InvalidRequestError", "line 2"],
            "left": true,
            "nobody": "NotFoundError",
        });
        assert_eq!(told, expected, "{runtime:?}");
    }
}
