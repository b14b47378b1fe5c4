//! The commands of conversations, from the first message to the deletion.

use abide_tests::deadline::within;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::shell::demo;
use crate::spec::check;

#[tokio::test]
async fn a_conversation_is_led_by_commands_alone() {
    let (_site, _node, shell) = demo().await;
    let rests = shell.run(&["say", "walk", "Please send a mail", "--agent", "demo"]).await;
    let stdout = rests.expect(4);
    assert!(stdout.contains("please approve it"), "{stdout}");
    assert!(stdout.contains("abide approve walk/call_1_1"), "{stdout}");

    let inbox = shell.run(&["inbox"]).await.expect(0);
    assert!(inbox.contains("walk/call_1_1") && inbox.contains("send_email"), "{inbox}");
    let shown = shell.run(&["show", "walk"]).await.expect(0);
    assert!(shown.contains("awaiting_input") && shown.contains("walk/call_1_1"), "{shown}");

    let args = "{\"to\": \"bob@example.com\"}";
    let approved =
        shell.run(&["approve", "walk/call_1_1", "--reason", "fine", "--args", args]).await;
    assert_eq!(approved.expect(0), "accepted\n");
    let said = shell.run(&["say", "walk", "hello", "--if-busy", "queue"]).await.expect(0);
    assert!(said.contains("You said: hello"), "{said}");
    let messages = shell.run(&["messages", "walk"]).await.expect(0);
    assert!(messages.contains("bob@example.com"), "the tool ran with the approver's arguments");
    assert_eq!(shell.run(&["inbox"]).await.expect(0).lines().count(), 1, "only the head is left");

    let fork = shell.run(&["fork", "walk", "--at", "2", "--id", "other"]).await;
    assert_eq!(fork.expect(0), "other\n");
    let listed = shell.run(&["ls", "--agent", "demo"]).await.expect(0);
    assert!(listed.contains("walk") && listed.contains("other"), "{listed}");
    let cancelled = shell.run(&["cancel", "walk"]).await;
    assert_eq!(cancelled.expect(0), "there was nothing to cancel\n");
    shell.run(&["rm", "walk"]).await.expect(2);
    shell.run(&["rm", "walk", "--yes"]).await.expect(0);
    shell.run(&["show", "walk"]).await.expect(3);
}

#[tokio::test]
async fn a_conversation_is_found_by_its_metadata_as_they_were_typed() {
    let (site, _node, shell) = demo().await;
    let script = json!({"provider": "scripted", "script": [{"text": "Hello."}]});
    site.client.define("a", &json!({"index": ["customer"], "model": script})).await;
    for value in ["1", "1.0", "true", "null", "[1]", "a=b", ""] {
        let metadata = format!("customer={value}");
        let new = shell.run(&["new", "--agent", "a", "--metadata", &metadata]).await.expect(0);
        let found = shell.run(&["ls", "--metadata", &metadata, "-o", "json"]).await.json();
        let found = found["conversations"].as_array().unwrap();
        let ids: Vec<_> = found.iter().map(|it| it["id"].as_str().unwrap()).collect();
        assert_eq!(ids, [new.trim()], "{metadata}");
    }
    let typed = ["customer:=1", "tags:=[\"x\"]", "flag:=true"];
    let mut new = vec!["new", "j", "--agent", "a"];
    new.extend(typed.iter().flat_map(|it| ["--metadata", *it]));
    shell.run(&new).await.expect(0);
    let metadata = shell.run(&["show", "j", "-o", "json"]).await.json()["metadata"].take();
    assert_eq!(metadata, json!({"customer": 1, "tags": ["x"], "flag": true}));
    for wrong in ["customer", "customer:=x"] {
        let refused = shell.run(&["new", "--agent", "a", "--metadata", wrong]).await;
        assert!(refused.stderr.contains("customer"), "{refused:?}");
        refused.expect(2);
    }
}

#[tokio::test]
async fn a_question_is_answered_with_or_without_quotes() {
    let (_site, _node, shell) = demo().await;
    for (conversation, answer) in [("a", "window"), ("b", "\"aisle\"")] {
        shell.run(&["say", conversation, "Choose a seat", "--agent", "demo"]).await.expect(4);
        let call = format!("{conversation}/call_1_1");
        let wrong = shell.run(&["answer", &call, "middle"]).await;
        assert!(wrong.stderr.contains("result"), "{wrong:?}");
        wrong.expect(2);
        let missing = shell.run(&["answer", &call]).await;
        assert!(missing.stderr.contains("a value is missing"), "{missing:?}");
        missing.expect(2);
        shell.run_with(&["answer", &call, "-"], "{").await.expect(2);
        shell.run(&["answer", &call, answer]).await.expect(0);
        let said = shell.run(&["say", conversation, "hi", "--if-busy", "queue"]).await.expect(0);
        assert!(said.contains("You said: hi"), "{said}");
    }
    shell.run(&["say", "c", "Where am I", "--agent", "demo"]).await.expect(4);
    shell.run_with(&["answer", "c/call_1_1", "-"], "{\"city\": \"Graz\"}").await.expect(0);
}

#[tokio::test]
async fn json_is_what_the_document_describes() {
    let (_site, _node, shell) = demo().await;
    let created = shell.run(&["new", "c", "--agent", "demo", "--metadata", "a=1", "-o", "json"]);
    check("Created", &created.await.json());
    let sent = shell.run(&["say", "c", "everything", "--wait", "0s", "-o", "json"]).await;
    check("Sent", &sent.json());
    let waited = shell.run(&["say", "d", "a mail", "--agent", "demo", "-o", "json"]).await;
    check("AnsweredMessage", &serde_json::from_str(&waited.expect(4)).unwrap());
    let snapshot = shell.run(&["-o", "json", "show", "c"]).await.json();
    assert_eq!(snapshot["metadata"], json!({"a": "1"}));
    check("Snapshot", &snapshot);
    for (schema, command) in [
        ("ConversationPage", vec!["ls"]),
        ("PendingPage", vec!["inbox"]),
        ("MessagePage", vec!["messages", "c"]),
        ("JournalPage", vec!["journal", "c"]),
        ("AgentList", vec!["agents", "ls"]),
        ("AgentDefinition", vec!["agents", "get", "demo"]),
        ("Me", vec!["whoami"]),
        ("ResolutionReply", vec!["deny", "d/call_1_1", "--reason", "no"]),
        ("Cancelled", vec!["cancel", "c"]),
        ("Created", vec!["fork", "c"]),
    ] {
        let arguments: Vec<&str> = command.iter().copied().chain(["-o", "json"]).collect();
        check(schema, &shell.run(&arguments).await.json());
    }
    for (schema, command) in [
        ("ConversationRow", vec!["ls"]),
        ("ListedMessage", vec!["messages", "c"]),
        ("JournalEvent", vec!["journal", "c"]),
    ] {
        let arguments: Vec<&str> = command.iter().copied().chain(["-o", "jsonl"]).collect();
        let lines = shell.run(&arguments).await.json_lines();
        assert!(lines.len() > 1, "{schema}");
        lines.iter().for_each(|line| check(schema, line));
    }
}

#[tokio::test]
async fn a_list_is_read_to_the_limit_and_says_that_there_is_more() {
    let (_site, _node, shell) = demo().await;
    for id in ["a", "b", "c"] {
        shell.run(&["new", id, "--agent", "demo"]).await.expect(0);
    }
    let two = shell.run(&["ls", "--limit", "2"]).await;
    assert!(two.stderr.contains("more than 2"), "{two:?}");
    assert_eq!(two.expect(0).lines().count(), 3);
    let page = shell.run(&["ls", "--limit", "2", "-o", "json"]).await.json();
    check("ConversationPage", &page);
    assert!(page["cursor"].is_string());
    let all = shell.run(&["ls"]).await;
    assert_eq!((all.stderr.as_str(), all.stdout.lines().count()), ("", 4));
    shell.run(&["say", "a", "one"]).await.expect(0);
    shell.run(&["say", "a", "two"]).await.expect(0);
    let last = shell.run(&["messages", "a", "--limit", "1", "-o", "jsonl"]).await.json_lines();
    assert_eq!((last.len(), &last[0]["role"]), (1, &json!("assistant")));
    let events = shell.run(&["journal", "a", "--after", "2", "--limit", "2", "-o", "jsonl"]).await;
    let seqs: Vec<_> = events.json_lines().iter().map(|it| it["seq"].as_u64()).collect();
    assert_eq!(seqs, [Some(3), Some(4)]);
}

#[tokio::test]
async fn a_structured_answer_is_printed_as_its_object() {
    let (site, _node, shell) = demo().await;
    let script = json!([{"text": "{\"city\": \"Graz\"}"}]);
    let definition = json!({"model": {"provider": "scripted", "script": script}});
    site.client.define("where", &definition).await;
    let schema = "{\"type\": \"object\", \"required\": [\"city\"]}";
    let schema = shell.file("schema.json", schema);
    let schema = schema.to_str().unwrap();
    let said = shell.run(&["say", "c", "x", "--agent", "where", "--schema", schema]).await;
    let object: serde_json::Value = serde_json::from_str(&said.expect(0)).unwrap();
    assert_eq!(object, json!({"city": "Graz"}));
    let missing = shell.run(&["say", "c", "x", "--schema", "/no/such"]).await;
    assert!(missing.stderr.contains("--schema: /no/such"), "{missing:?}");
    missing.expect(2);
}

#[tokio::test]
async fn an_inbox_that_is_watched_tells_what_comes_and_what_goes() {
    let (_site, _node, shell) = demo().await;
    let mut watch = shell.command(&["inbox", "--watch"]).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    shell.run(&["say", "c", "a mail", "--agent", "demo"]).await.expect(4);
    let mut wait_for = async |text: &str| {
        while !within(text, lines.next_line()).await.unwrap().unwrap().contains(text) {}
    };
    wait_for("+ c/call_1_1 approval of send_email").await;
    shell.run(&["deny", "c/call_1_1"]).await.expect(0);
    wait_for("- c/call_1_1 waits no longer").await;
}

#[tokio::test]
async fn turns_are_withdrawn_begun_anew_and_taken_back() {
    let (_site, _node, shell) = demo().await;
    shell.run(&["say", "c", "a mail", "--agent", "demo"]).await.expect(4);
    shell.run(&["say", "c", "later", "--if-busy", "queue", "--wait", "0s"]).await.expect(0);
    let queue = shell.run(&["queue", "ls", "c", "-o", "json"]).await.json();
    check("QueueList", &queue);
    let turn = queue["queued"][0]["turn_id"].as_str().unwrap();
    shell.run(&["queue", "rm", "c", turn]).await.expect(0);
    assert_eq!(shell.run(&["queue", "ls", "c"]).await.expect(0).lines().count(), 1);
    let busy = shell.run(&["rewind", "c", "--to", "1"]).await;
    assert!(busy.stderr.contains("turn"), "{busy:?}");
    shell.run(&["cancel", "c"]).await.expect(0);
    shell.run(&["rewind", "c", "--to", "1"]).await.expect(0);
    assert_eq!(shell.run(&["messages", "c", "-o", "jsonl"]).await.expect(0), "");
    shell.run(&["say", "c", "hello"]).await.expect(0);
    let begun = shell.run(&["regenerate", "c", "-o", "json"]).await.json();
    assert!(begun["turn_id"].as_str().unwrap().starts_with("turn_"), "{begun}");
}
