//! Workspace files are whole after a kill, and missing storage is always reported.

use std::path::Path;

use abide_tests::deadline::poll;
use abide_tests::node::Site;
use reqwest::Method;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{able, call, steps};

async fn readiness(site: &Site) -> String {
    let answer = site.client.admin(Method::GET, "/readyz").await;
    answer.expect(200).as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_node_without_a_sandbox_says_so() {
    let site = Site::new(ABIDE).with(&["--sandbox", "off"]);
    let _node = site.start().await;
    let ready = readiness(&site).await;
    assert!(ready.starts_with("ready\n"), "{ready}");
    assert!(ready.lines().any(|line| line == "sandbox: off"), "{ready}");
    assert!(site.log().contains("sandbox: off"));
}

/// Runs another turn of `c`, in which it reads its file. Returns the data of the result.
async fn read_again(site: &Site, turn: usize) -> Value {
    site.client.send_message("c", "reads", "again").await;
    let journal = site.client.wait_until_settled("c", turn).await;
    assert_eq!(journal.outcomes(), vec!["completed"; turn]);
    journal.of("tool_result").last().unwrap()["data"].clone()
}

#[tokio::test]
async fn missing_storage_is_an_error_that_is_reported_everywhere_and_nothing_is_created() {
    let site = Site::new(ABIDE).with(&["--workspaces", "files"]);
    let mut node = site.start().await;
    let write = call("write", "write", json!({"path": "a", "content": "kept"}));
    let read = json!({"when": "again", "steps": [{"calls": [call("read", "read", json!({"path": "a"}))]}]});
    let write = json!({"steps": [{"calls": [write]}]});
    let model = json!({"provider": "scripted", "script": [read, write]});
    site.client.define("reads", &able(model)).await;
    site.client.send_message("c", "reads", "go").await;
    site.client.wait_until_settled("c", 1).await;
    let (files, moved_away) = (site.dir().join("files"), site.dir().join("away"));
    let marker = files.join(".abide-storage");
    let mut turns = 1;
    // The marker, the conversation's directory, and all of it; before and after a restart.
    for (lost, restarts) in [(&marker, false), (&files.join("c"), true), (&files, true)] {
        std::fs::rename(lost, &moved_away).unwrap();
        if restarts {
            node.kill().await;
            node = site.start().await;
        }
        turns += 1;
        let result = read_again(&site, turns).await;
        let error = result["error"].as_str().unwrap_or_default();
        assert!(error.starts_with("workspace_unavailable: "), "{result}");
        assert!(readiness(&site).await.lines().any(|line| line == error), "{error}");
        let log = site.log();
        assert!(
            log.contains("workspace not opened") && log.contains(error),
            "{error} is not in {log}"
        );
        assert!(!lost.exists(), "{lost:?} was made");

        std::fs::rename(&moved_away, lost).unwrap();
        turns += 1;
        assert_eq!(read_again(&site, turns).await["result"], "1\tkept");
        assert_eq!(readiness(&site).await, "ready\n");
    }
}

#[tokio::test]
async fn a_child_whose_agent_works_elsewhere_finds_its_files_there() {
    let site = Site::new(ABIDE).with(&["--workspaces", "files", "--workspace-roots", "docs"]);
    let _node = site.start().await;
    let docs = site.dir().join("docs");
    std::fs::create_dir(&docs).unwrap();
    std::fs::write(docs.join("b"), "other").unwrap();
    let read = call("read", "read", json!({"path": "b"}));
    let script = json!([{"calls": [read]}, {"text": "{{ results.read }}"}]);
    let mut reader = able(json!({"provider": "scripted", "script": script}));
    reader["workspace"] = json!({"root": docs, "shared": true});
    let write = call("write", "write", json!({"path": "a", "content": "kept"}));
    let ask = |id| call(id, "spawn_agent", json!({"agent": "reader", "prompt": "go"}));
    site.client.define("reader", &reader).await;
    site.client
        .define("a", &able(steps(&[vec![ask("before")], vec![write], vec![ask("after")]])))
        .await;
    site.client.send_message("c", "a", "go").await;
    let journal = site.client.wait_until_settled("c", 1).await;
    for call in ["before", "after"] {
        let result = journal.result(call)["result"].as_str().unwrap();
        assert!(result.contains("other"), "{call}: {result}");
    }
}

/// The length of each file, which repeats one letter.
const FILE_LENGTH: usize = 50_000;
const FILES: usize = 4;
const KILLS: usize = 4;

/// The letters of the existing files, each of which must be whole.
fn letters_of_files(dir: &Path) -> Vec<char> {
    let mut letters = Vec::new();
    for number in 0..FILES {
        let Ok(content) = std::fs::read_to_string(dir.join(format!("f{number}"))) else { continue };
        let letter = content.chars().next();
        let one = content.chars().all(|other| Some(other) == letter);
        assert!(one && content.len() == FILE_LENGTH, "f{number} is {} bytes: {one}", content.len());
        letters.extend(letter);
    }
    letters
}

#[tokio::test]
async fn a_kill_in_the_middle_of_writes_never_leaves_half_a_file() {
    let site = Site::new(ABIDE).with(&["--workspaces", "files"]);
    let mut node = site.start().await;
    let letters: Vec<char> = ('a'..='m').collect();
    let write = |letter: &char| {
        let content = format!("{{{{ '{letter}' * {FILE_LENGTH} }}}}");
        let write = |number| {
            let args = json!({"path": format!("f{number}"), "content": content});
            call(&format!("{letter}{number}"), "write", args)
        };
        (0..FILES).map(write).collect()
    };
    let steps = steps(&letters.iter().map(write).collect::<Vec<_>>());
    site.client.define("a", &able(steps)).await;
    site.client.send_message("c", "a", "go").await;
    let dir = site.dir().join("files/c");
    for kill in 0..KILLS {
        let newest = letters[3 * kill + 1];
        poll("a write", async || letters_of_files(&dir).contains(&newest).then_some(())).await;
        node.kill().await;
        assert!(!letters_of_files(&dir).is_empty());
        node = site.start().await;
    }
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.outcomes(), ["completed"]);
    assert_eq!(letters_of_files(&dir), ['m'; FILES]);
}
