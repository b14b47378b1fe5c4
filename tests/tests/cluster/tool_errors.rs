//! The errors of the built-in tools, as readers of the event stream see them.

use abide_tests::node::Site;
use abide_tests::tool_server::ToolServer;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{able, agent, call, steps};
use crate::tools::end_of;

/// Failing calls, each with the code with which its error begins.
fn failing_calls(tools: &ToolServer) -> Vec<(&'static str, Value, &'static str)> {
    let edit = |old| json!({"path": "two", "old_string": old, "new_string": "x"});
    let todo = |todo: Value| json!({"todos": [todo]});
    vec![
        ("read", json!({}), "missing_path"),
        ("read", json!({"path": "nowhere"}), "enoent"),
        ("read", json!({"path": "."}), "not_a_regular_file"),
        ("read", json!({"path": "pipe"}), "not_a_regular_file"),
        ("read", json!({"path": "big"}), "file_too_large"),
        ("read", json!({"path": "../c/two"}), "path_traversal_rejected"),
        ("read", json!({"path": "/etc/passwd"}), "path_outside_roots"),
        ("read", json!({"path": "out"}), "path_outside_roots"),
        ("read", json!({"path": "a\u{0}b"}), "null_byte_in_path"),
        ("glob", json!({}), "missing_pattern"),
        ("grep", json!({"pattern": null}), "missing_pattern"),
        ("grep", json!({"pattern": "("}), "invalid_regex"),
        ("write", json!({"content": ""}), "missing_path"),
        ("write", json!({"path": "x"}), "missing_content"),
        ("write", json!({"path": "out", "content": ""}), "path_outside_roots"),
        ("edit", edit("three"), "old_string_not_found"),
        ("edit", edit("2"), "ambiguous_match: 2"),
        ("edit", edit(""), "empty_old_string"),
        ("bash", json!({}), "missing_command"),
        (
            "bash",
            json!({"command": "echo so far; sleep 60", "timeout_ms": 500}),
            "timeout: after 500 ms\nso far\n",
        ),
        ("web_fetch", json!({}), "missing_url"),
        ("web_fetch", json!({"url": "ftp://abide.test/"}), "invalid_scheme: ftp"),
        ("web_fetch", json!({"url": "http://"}), "missing_host"),
        ("web_fetch", json!({"url": "http://169.254.169.254/"}), "blocked_host: 169.254.169.254"),
        ("web_fetch", json!({"url": "http://[::ffff:10.0.0.1]/"}), "blocked_host"),
        ("web_fetch", json!({"url": tools.url("/fail")}), "http_error: 500"),
        ("web_fetch", json!({"url": tools.url("/around")}), "too_many_redirects"),
        ("web_fetch", json!({"url": tools.url("/drop")}), "fetch_failed"),
        ("todo_write", json!({}), "missing_todos"),
        ("todo_write", todo(json!(1)), "invalid_todo"),
        ("todo_write", todo(json!({"content": "a", "status": "odd"})), "invalid_status"),
        ("todo_write", todo(json!({"status": "pending"})), "invalid_content"),
        ("plan_mode", json!({"action": "leave"}), "invalid_action"),
        ("spawn_agent", json!({}), "missing_prompt"),
        ("spawn_agent", json!({"prompt": "go", "agent": "nobody"}), "sub_agent_failed"),
        ("hurried", json!({"prompt": "go"}), "sub_agent_timeout"),
    ]
}

/// A node whose conversation `c` starts with a file of 10 GB.
fn files() -> Site {
    let site = Site::new(ABIDE).with(&["--workspaces", "files"]);
    let dir = site.dir().join("files/c");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::File::create(dir.join("big")).unwrap().set_len(10 << 30).unwrap();
    site
}

#[tokio::test]
async fn each_mistake_is_the_error_that_its_tool_promises() {
    let (site, tools) = (files(), ToolServer::start().await);
    let _node = site.start().await;
    let failing = failing_calls(&tools);
    let prepare = "echo 2 2 > two; mkfifo pipe; ln -s /etc/passwd out";
    let numbered = failing.iter().enumerate();
    let tried =
        numbered.map(|(n, (name, args, _))| call(&format!("m{n}"), name, args.clone())).collect();
    let calls = [vec![call("prepare", "bash", json!({"command": prepare}))], tried];
    let mut definition = able(steps(&calls));
    let hurried = json!({"name": "hurried", "description": "Asks one that is slow.",
        "parameters": {"type": "object"}, "run": {"agent": "slow"}, "run_timeout": "300ms"});
    definition["tools"].as_array_mut().unwrap().push(hurried);
    let slow = json!({"provider": "scripted", "script": [{"text": "late", "delay": "1m"}]});
    site.client.define("slow", &agent(slow, vec![])).await;
    site.client.define("a", &definition).await;
    site.client.post("/v1/conversations", &json!({"id": "c", "agent": "a"})).await.expect(201);
    let mut frames = site.client.events("c", None).await;
    site.client.send_message("c", "a", "go").await;
    let read = frames.wait_for("turn_completed").await;
    assert_eq!(end_of(&read, "prepare").0.data["result"]["result"], "exit 0\n");
    for (n, (name, args, code)) in failing.iter().enumerate() {
        let (ended, next) = end_of(&read, &format!("m{n}"));
        assert_eq!(ended.name, "tool_call_errored", "{name} {args}: {:#}", ended.data);
        assert_ne!(next.name, "tool_ui");
        let error = ended.data["result"]["error"].as_str().unwrap();
        let is_code = error == *code || error.starts_with(&format!("{code}: "));
        assert!(is_code, "{name} {args}: {error:?} is not {code:?}");
        assert_eq!(ended.data["result"]["error_type"], "TOOL_ERROR", "{name} {args}");
    }
}
