//! Texts of models and of strangers on a terminal, large ones, and readers who leave early.

use std::process::Stdio;

use abide_tests::node::{Node, Site};
use serde_json::json;

use crate::ABIDE;
use crate::shell::{Shell, finish};

const HOSTILE: &str = "a\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}b\u{8}";

/// A node whose agent says this, asks for an approval with it, and then says it again.
async fn start(text: &str) -> (Site, Node, Shell) {
    let site = Site::new(ABIDE);
    let node = site.start().await;
    let call = json!({"id": "1", "name": "send_email", "args": {"to": text}});
    let script = json!([{"text": text, "calls": [call]}, {"text": text}]);
    let tool = json!({"name": "send_email", "approval": "requires_approval",
        "confirmation_message": "{{ args.to }}", "run": {"native": "demo_send_email"}});
    let definition = json!({"description": text,
        "model": {"provider": "scripted", "script": script}, "tools": [tool]});
    site.client.define("hostile", &definition).await;
    let shell = Shell::of([&site.client].into_iter());
    (site, node, shell)
}

fn assert_harmless(text: &str, what: &str) {
    let is_active = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{202a}'..='\u{202e}');
    assert!(!text.contains(is_active), "{what}: {text:?}");
}

#[tokio::test]
async fn no_escape_sequence_of_a_model_reaches_the_terminal() {
    let (_site, _node, shell) = start(HOSTILE).await;
    let said = shell.run(&["say", "c", HOSTILE, "--agent", "hostile"]).await;
    assert!(said.stdout.contains("owned"), "{said:?}");
    assert_harmless(&said.expect(4), "say");
    for arguments in [
        vec!["inbox"],
        vec!["inbox", "-o", "jsonl"],
        vec!["show", "c"],
        vec!["messages", "c"],
        vec!["messages", "c", "-o", "json"],
        vec!["journal", "c"],
        vec!["agents", "ls"],
        vec!["why", "c"],
    ] {
        let printed = shell.run(&arguments).await.expect(0);
        assert_harmless(&printed, &arguments.join(" "));
    }
    let refused = shell.run(&["show", HOSTILE]).await;
    assert_harmless(&refused.stderr, "an error");
    let chat = shell.run_with(&["chat", "d", "--agent", "hostile"], "hi\ny\n").await;
    assert!(chat.stdout.matches("owned").count() > 2, "{chat:?}");
    assert_harmless(&chat.expect(0), "chat");
}

#[tokio::test]
async fn an_answer_of_a_megabyte_is_printed_whole() {
    let (_site, _node, shell) = start("x").await;
    let text = "word ".repeat(100_000);
    let said = shell.run_with(&["say", "c", "-", "--agent", "demo"], &text).await.expect(0);
    assert!(said.len() > text.len(), "{} bytes", said.len());
    let journal = shell.run(&["journal", "c", "-o", "json"]).await.json();
    assert!(journal.to_string().len() > 2 * text.len());
    let table = shell.run(&["journal", "c"]).await.expect(0);
    assert!(table.lines().all(|line| line.len() < 400), "cells are cut");
    let much = "x".repeat((1 << 20) + 1);
    let refused = shell.run_with(&["say", "c", "-"], &much).await;
    assert!(refused.stderr.contains("at most 1 MiB"), "{}", refused.stderr);
    refused.expect(2);
}

#[tokio::test]
async fn a_reader_who_has_enough_ends_the_command_without_a_word() {
    let (_site, _node, shell) = start("x").await;
    shell.run(&["say", "c", "hello", "--agent", "demo"]).await.expect(0);
    for arguments in ["tail c --after 0", "journal c -o jsonl", "completion bash"] {
        let script = format!("\"$0\" {arguments} | head -n 1; echo \"${{PIPESTATUS[0]}}\"");
        let mut bash = tokio::process::Command::new("bash");
        let site = shell.command(&[]);
        let environment = site.as_std().get_envs();
        for (name, value) in environment {
            match value {
                Some(value) => bash.env(name, value),
                None => bash.env_remove(name),
            };
        }
        bash.args(["-c", &script, ABIDE]).stdin(Stdio::null());
        bash.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        // A tail sees that it is not read only when the next frame comes.
        let pipe = bash.spawn().unwrap();
        let more = async {
            if arguments.starts_with("tail") {
                shell.run(&["say", "c", "more"]).await.expect(0);
            }
        };
        let (run, ()) = tokio::join!(finish(pipe, arguments), more);
        assert_eq!(run.stderr, "", "{arguments}");
        assert_eq!(run.stdout.lines().last(), Some("0"), "{arguments}: {}", run.stdout);
    }
}
