//! Messages that come later, schedules, deadlines that move, webhooks and queues.

use crate::shell::demo;
use crate::spec::check;

#[tokio::test]
async fn a_message_is_scheduled_listed_and_withdrawn() {
    let (_site, _node, shell) = demo().await;
    let later = ["say", "c", "remember the milk", "--agent", "demo", "--in", "2h"];
    let id = shell.run(&later).await.expect(0).trim().to_owned();
    let listed = shell.run(&["scheduled", "ls", "c"]).await.expect(0);
    for text in [id.as_str(), "remember the milk", "in 2h"] {
        assert!(listed.contains(text), "{text}: {listed}");
    }
    shell.run(&["scheduled", "rm", "c", &id]).await.expect(0);
    let listed = shell.run(&["scheduled", "ls", "c", "-o", "json"]).await.json();
    assert_eq!(listed["scheduled"], serde_json::json!([]));
    let wrong = shell.run(&["say", "c", "x", "--at", "yesterday"]).await;
    assert!(wrong.stderr.contains("deliver_at"), "{wrong:?}");
    wrong.expect(2);
    shell.run(&["say", "c", "x", "--in", "1h", "--at", "2030-01-01T00:00:00Z"]).await.expect(2);
}

#[tokio::test]
async fn a_schedule_is_put_triggered_paused_and_deleted() {
    let (_site, _node, shell) = demo().await;
    let put = ["schedules", "put", "morning", "good morning", "--agent", "demo"];
    let cron = ["--cron", "0 9 * * *", "--timezone", "Europe/Berlin"];
    let next = shell.run(&[&put[..], &cron[..]].concat()).await.expect(0);
    assert!(next.starts_with("next in "), "{next}");
    let listed = shell.run(&["schedules", "ls"]).await.expect(0);
    assert!(listed.contains("morning") && listed.contains("0 9 * * * Europe/Berlin"), "{listed}");
    let conversation = shell.run(&["schedules", "trigger", "morning"]).await.expect(0);
    let conversation = conversation.trim();
    assert!(conversation.starts_with("morning-"), "{conversation}");
    shell.run(&["show", conversation]).await.expect(0);
    let paused = shell.run(&["schedules", "pause", "morning"]).await.expect(0);
    assert_eq!(paused, "it sends nothing\n");
    assert!(shell.run(&["schedules", "ls"]).await.expect(0).contains("paused"));
    shell.run(&["schedules", "resume", "morning"]).await.expect(0);
    let shown = shell.run(&["schedules", "show", "morning", "-o", "json"]).await.json();
    check("Schedule", &shown);
    assert_eq!(shown["timezone"], "Europe/Berlin");
    let never = shell.run(&[&put[..], &["--cron", "0 0 30 2 *"]].concat()).await;
    assert!(never.stderr.contains("cron"), "{never:?}");
    never.expect(2);
    shell.run(&put).await.expect(2);
    shell.run(&["schedules", "rm", "morning", "--yes"]).await.expect(0);
    shell.run(&["schedules", "show", "morning"]).await.expect(3);
}

#[tokio::test]
async fn a_call_is_given_more_time() {
    let (_site, _node, shell) = demo().await;
    shell.run(&["say", "c", "send a mail", "--agent", "demo"]).await.expect(4);
    let extended = shell.run(&["extend", "c/call_1_1", "--for", "5h"]).await.expect(0);
    assert!(extended.starts_with("it expires in 5h"), "{extended}");
    shell.run(&["extend", "c/call_1_1", "--for", "90000h"]).await.expect(2);
    shell.run(&["extend", "c/call_9"]).await.expect(5);
}

#[tokio::test]
async fn a_webhook_is_put_tested_rotated_and_deleted() {
    let (_site, _node, shell) = demo().await;
    // Nobody listens there.
    let put = ["webhooks", "put", "ops", "http://127.0.0.1:9/", "--events", "turn.completed"];
    let secret = shell.run(&put).await.expect(0);
    assert!(secret.starts_with("whsec_"), "{secret}");
    assert_eq!(shell.run(&put).await.expect(0), "changed\n");
    let listed = shell.run(&["webhooks", "ls"]).await.expect(0);
    assert!(listed.contains("ops") && listed.contains("turn.completed"), "{listed}");
    let tested = shell.run(&["webhooks", "test", "ops"]).await.expect(0);
    assert!(tested.starts_with("not delivered: "), "{tested}");
    assert_ne!(shell.run(&["webhooks", "rotate", "ops"]).await.expect(0), secret);
    let shown = shell.run(&["webhooks", "show", "ops", "-o", "json"]).await.json();
    check("WebhookStatus", &shown);
    shell.run(&["say", "c", "hello", "--agent", "demo"]).await.expect(0);
    let owed = shell.run(&["webhooks", "deliveries", "ops"]).await.expect(0);
    assert!(owed.contains("turn.completed"), "{owed}");
    let owed = shell.run(&["webhooks", "deliveries", "ops", "-o", "json"]).await.json();
    let id = owed["deliveries"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(shell.run(&["webhooks", "redeliver", "ops", &id]).await.expect(0).trim(), id);
    let dead = shell.run(&["webhooks", "deliveries", "ops", "--dead", "-o", "json"]).await.json();
    assert_eq!(dead["deliveries"], serde_json::json!([]));
    let wrong = ["webhooks", "put", "ops", "http://127.0.0.1:9/", "--events", "turn.begun"];
    shell.run(&wrong).await.expect(2);
    shell.run(&["webhooks", "rm", "ops"]).await.expect(2);
    shell.run(&["webhooks", "rm", "ops", "--yes"]).await.expect(0);
    shell.run(&["webhooks", "show", "ops"]).await.expect(3);
}

#[tokio::test]
async fn a_queue_shows_what_waits_and_that_no_worker_was_seen() {
    let (_site, _node, shell) = demo().await;
    let definition = serde_json::json!({
        "name": "mailer",
        "model": {"provider": "scripted", "script": [
            {"calls": [{"name": "send_mail", "args": {}}]},
            {"text": "sent"},
        ]},
        "tools": [{"name": "send_mail", "description": "d", "run": {"queue": "mail"}}],
    });
    shell.file("agents/mailer.json", &definition.to_string());
    shell.run(&["agents", "apply", "-f", "agents"]).await.expect(0);
    shell.run(&["say", "c", "hello", "--agent", "mailer", "--wait", "0s"]).await.expect(0);
    let why = abide_tests::deadline::poll("the call to wait for a worker", async || {
        let why = shell.run(&["why", "c"]).await.expect(0);
        why.contains("a worker of queue mail").then_some(why)
    });
    assert!(why.await.contains("none was seen"));
    let queues = shell.run(&["queues"]).await.expect(0);
    assert!(queues.contains("mail") && queues.contains('1'), "{queues}");
}
