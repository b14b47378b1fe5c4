//! Agents of a directory: checked without a node, applied once, pruned when asked to.

use crate::shell::{Shell, demo, write_agent};

#[tokio::test]
async fn agents_that_are_applied_twice_change_nothing() {
    let (_site, _node, shell) = demo().await;
    let directory = shell.home.path().join("agents");
    write_agent(&directory, "one", "1");
    write_agent(&directory, "two", "2");
    let apply = ["agents", "apply", "-f", "agents"];
    let dry = shell.run(&[&apply[..], &["--dry-run"]].concat()).await.expect(0);
    assert_eq!(dry.matches("created").count(), 2, "{dry}");
    shell.run(&["agents", "get", "one"]).await.expect(3);

    let first = shell.run(&apply).await.expect(0);
    assert_eq!(first.matches("created").count(), 2, "{first}");
    let revisions = shell.run(&["agents", "ls", "-o", "json"]).await.json();
    let operations = || async { shell.run(&["agents", "ls", "-o", "json"]).await.json() };
    let second = shell.run(&apply).await.expect(0);
    assert_eq!(second.matches("unchanged").count(), 2, "{second}");
    assert_eq!(operations().await, revisions);

    write_agent(&directory, "two", "3");
    let third = shell.run(&[&apply[..], &["-o", "jsonl"]].concat()).await.json_lines();
    let changes: Vec<_> = third.iter().map(|it| it["change"].as_str().unwrap()).collect();
    assert_eq!(changes, ["unchanged", "changed"]);
    assert_eq!(third[1]["fields"], serde_json::json!(["model"]));

    std::fs::remove_file(directory.join("one.yaml")).unwrap();
    let prune = [&apply[..], &["--prune"]].concat();
    let asked = shell.run(&prune).await;
    assert!(asked.stderr.contains("Delete the agents demo, one?"), "{asked:?}");
    asked.expect(2);
    shell.run(&["agents", "get", "one"]).await.expect(0);
    let pruned = shell.run(&[&prune[..], &["-y"]].concat()).await.expect(0);
    assert_eq!(pruned.matches("deleted").count(), 2, "{pruned}");
    let left = shell.run(&["agents", "ls"]).await.expect(0);
    assert!(left.contains("two") && !left.contains("demo"), "{left}");
}

#[tokio::test]
async fn agents_are_validated_without_a_node_and_as_a_node_does() {
    let shell = Shell::new();
    let directory = shell.home.path().join("agents");
    write_agent(&directory, "one", "1");
    let valid = shell.run(&["agents", "validate", "-f", "agents"]).await.expect(0);
    assert!(valid.contains("one"), "{valid}");
    shell.run(&["agents", "validate", "-f", "agents/one.yaml"]).await.expect(0);
    shell.file("agents/bad.yaml", "name: bad\nmodel: {provider: nobody}\nmax_steps: -1\n");
    shell.file("agents/worse.yaml", "name: [");
    let wrong = shell.run(&["agents", "validate", "-f", "agents"]).await;
    assert!(wrong.stderr.contains("worse.yaml"), "every wrong file is named: {wrong:?}");
    assert!(wrong.stderr.contains("bad.yaml") && wrong.stderr.contains("max_steps"), "{wrong:?}");
    wrong.expect(2);
    let missing = shell.run(&["agents", "validate", "-f", "nowhere"]).await;
    assert!(missing.stderr.contains("nowhere"), "{missing:?}");
    missing.expect(2);
}
