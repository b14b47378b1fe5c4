//! What our own clients do with rollouts and erasures.

use std::path::Path;
use std::process::Stdio;

use abide_tests::node::Site;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::clients::{Runtime, output};

/// Each runtime, its program, and the name of its agent and of the person whom it erases.
const PROGRAMS: [(Runtime, &str, &str); 4] = [
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
    for (runtime, program, name) in PROGRAMS {
        for (id, participants) in
            [("own", json!({"owner": name})), ("other", json!({"owner": "bob", "members": [name]}))]
        {
            let mut new = json!({"id": format!("{id}-of-{name}"), "agent": "a"});
            new.as_object_mut().unwrap().extend(participants.as_object().unwrap().clone());
            site.client.post("/v1/conversations", &new).await.expect(201);
        }
        let dir = tempfile::tempdir().unwrap();
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(program);
        let mut command = runtime.command(&program, dir.path());
        command.args([&url, name]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let text = output("the tenant's things", command.kill_on_drop(true).spawn().unwrap()).await;
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
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected, "{runtime:?}");
        let gone = site.client.get(&format!("/v1/conversations/own-of-{name}")).await;
        gone.expect_problem(404, "not-found");
    }
}
