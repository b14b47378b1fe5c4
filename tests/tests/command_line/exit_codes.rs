//! Every exit code, and every kind of bad input that has one.

use std::net::TcpListener;

use abide_tests::node::Site;

use crate::ABIDE;
use crate::shell::{Shell, demo};

#[tokio::test]
async fn each_exit_code_says_why() {
    let (_site, _node, shell) = demo().await;
    shell.run(&["say", "c", "hello", "--agent", "demo"]).await.expect(0);
    shell.run(&["say", "c", "send a mail"]).await.expect(4);
    for (code, arguments, says) in [
        (2, vec!["say", "c"], "TEXT"),
        (2, vec!["say", "c", "x", "--wait", "a while"], "must be a duration"),
        (2, vec!["ls", "--limit", "0"], "0 is not in"),
        (2, vec!["approve", "c"], "must be CONVERSATION/CALL"),
        (2, vec!["approve", "c/"], "must be CONVERSATION/CALL"),
        (2, vec!["approve", "c/call_1_1", "--args", "{"], "--args: must be JSON"),
        (2, vec!["show", ".."], "is no id"),
        (2, vec!["say", "c", ""], "text"),
        (2, vec!["inbox", "--kind", "wish"], "wish"),
        (2, vec!["--store", "memory", "ls"], "ls"),
        (3, vec!["show", "nobody"], "conversation not found"),
        (3, vec!["tail", "nobody"], "conversation not found"),
        (3, vec!["say", "nobody", "hi"], "not found"),
        (3, vec!["say", "new", "hi", "--agent", "nobody"], "agent"),
        (3, vec!["agents", "get", "nobody"], "agent"),
        (3, vec!["show", "a b/c"], "not found"),
        (3, vec!["show", "c", "--context", "nowhere"], "no context"),
        (5, vec!["say", "c", "again"], "a turn is in progress"),
        (5, vec!["new", "c", "--agent", "demo"], "exists"),
        (5, vec!["approve", "c/call_9"], "call"),
        (5, vec!["approve", "c/call_1_1/2"], "call"),
        (5, vec!["answer", "c/call_1_1", "1"], "does not fit"),
    ] {
        let run = shell.run(&arguments).await;
        assert!(run.stderr.contains(says), "{arguments:?}: {run:?}");
        assert!(run.stderr.starts_with("abide: "), "{arguments:?}: {run:?}");
        assert_eq!((run.code, run.stdout.as_str()), (code, ""), "{arguments:?}: {run:?}");
    }
}

#[tokio::test]
async fn a_refusal_is_the_problem_itself_where_json_is_asked_for() {
    let (_site, _node, shell) = demo().await;
    let run = shell.run(&["show", "nobody", "-o", "json"]).await;
    let problem: serde_json::Value = serde_json::from_str(&run.stderr).unwrap();
    assert_eq!(problem["type"], "/problems/not-found");
    run.expect(3);
}

#[tokio::test]
async fn a_node_that_is_away_is_said_to_be_so_at_once() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let shell = Shell::new().with("ABIDE_URL", &format!("http://127.0.0.1:{port}"));
    for arguments in [vec!["ls"], vec!["say", "c", "hi"], vec!["tail", "c"]] {
        let run = shell.run(&arguments).await;
        assert!(run.stderr.starts_with("abide: no node answers: "), "{run:?}");
        run.expect(1);
    }
    let wrong = Shell::new().with("ABIDE_URL", "http://user:secret@127.0.0.1:1");
    let run = wrong.run(&["ls"]).await;
    assert!(run.stderr.contains("--url: ") && !run.stderr.contains("secret"), "{run:?}");
    run.expect(2);
}

#[tokio::test]
async fn a_turn_that_fails_or_is_not_over_is_a_failure() {
    let (site, _node, shell) = demo().await;
    let step = serde_json::json!({"text": "{}", "calls": [
        {"id": "1", "name": "look_up", "args": {"query": "x"}}]});
    let tool = serde_json::json!({"name": "look_up", "run": {"native": "demo_look_up"}});
    let model = serde_json::json!({"provider": "scripted", "script": [step, {"text": "done"}]});
    let definition = serde_json::json!({"model": model, "max_steps": 1, "tools": [tool]});
    site.client.define("short", &definition).await;
    let over = shell.run(&["say", "a", "x", "--agent", "short"]).await;
    assert!(over.stderr.contains("the turn is halted: max_steps"), "{over:?}");
    over.expect(1);
    let early = shell.run(&["say", "b", "look it up", "--agent", "demo", "--wait", "100ms"]).await;
    assert!(early.stderr.contains("still runs"), "{early:?}");
    early.expect(1);
}

#[tokio::test]
async fn a_token_without_rights_is_forbidden_and_a_wrong_one_unauthorized() {
    let site = guarded();
    let _node = site.start().await;
    let shell = Shell::of([&site.client].into_iter());
    let none = shell.run(&["ls"]).await;
    assert!(none.stderr.contains("credential"), "{none:?}");
    none.expect(6);
    let backend = Shell::of([&site.client].into_iter()).with("ABIDE_TOKEN", &key("backend"));
    assert!(backend.run(&["whoami"]).await.expect(0).contains("backend"));
    let forbidden = backend.run(&["agents", "rm", "demo", "--yes"]).await;
    assert!(forbidden.stderr.contains("define_agents"), "{forbidden:?}");
    forbidden.expect(6);
    backend.run(&["nodes"]).await.expect(6);
    backend.run(&["say", "c", "send a mail", "--agent", "demo"]).await.expect(4);
    backend.run(&["approve", "c/call_1_1"]).await.expect(6);
    let verbose = backend.run(&["ls", "-v"]).await;
    assert!(verbose.stderr.contains("> GET http") && !verbose.stderr.contains("PLANTED"));
    verbose.expect(0);

    let minted = backend.run(&[
        "tokens",
        "mint",
        "--conversation",
        "c",
        "--subject",
        "ada",
        "--can",
        "read",
        "--for",
        "5m",
    ]);
    let token = minted.await.expect(0);
    let reader = Shell::of([&site.client].into_iter()).with("ABIDE_TOKEN", token.trim());
    reader.run(&["show", "c"]).await.expect(0);
    let refused = reader.run(&["say", "c", "hi"]).await;
    assert!(refused.stderr.contains("needs"), "{refused:?}");
    refused.expect(6);
}

/// An Ed25519 key of `openssl genpkey`, for tests alone.
const TOKEN_KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n\
    -----END PRIVATE KEY-----\n";

fn key(id: &str) -> String {
    format!("abide_{id}_PLANTED-secret-of-a-test-that-nobody-else-has-{id}")
}

/// A node that knows one key, of a backend.
fn guarded() -> Site {
    use sha2::{Digest, Sha256};
    let site = Site::new(ABIDE);
    let sha256: String =
        Sha256::digest(key("backend")).iter().map(|byte| format!("{byte:02x}")).collect();
    let line = serde_json::json!({"id": "backend", "sha256": sha256, "tenant": "default",
        "roles": ["backend"], "name": "backend"});
    let file = serde_json::json!({"keys": [line], "tokens": {"keys": ["file:token.pem"]}});
    std::fs::write(site.dir().join("token.pem"), TOKEN_KEY).unwrap();
    std::fs::write(site.dir().join("auth.yaml"), file.to_string()).unwrap();
    site.with(&["--auth", "auth.yaml"])
}
