//! Conversations and stores that move, and agents that go back to an earlier revision.

use abide_tests::redis::Redis;

use crate::shell::{demo, write_agent};

#[tokio::test]
async fn a_conversation_is_exported_and_imported_as_a_copy_or_elsewhere() {
    let (_site, _node, shell) = demo().await;
    shell.run(&["say", "c", "hello", "--agent", "demo"]).await.expect(0);
    let lines = shell.run(&["export", "c"]).await.expect(0);
    assert!(lines.lines().last().unwrap().contains("\"end\""), "{lines}");
    let copy = shell.run_with(&["import"], &lines).await.expect(0);
    let answer = shell.run(&["say", copy.trim(), "again"]).await.expect(0);
    assert!(answer.contains("again"), "{answer}");
    shell.run_with(&["import", "--keep-id"], &lines).await.expect(5);
    shell.run(&["export", "nobody"]).await.expect(3);
    let cut = lines.lines().take(2).collect::<Vec<_>>().join("\n");
    let refused = shell.run_with(&["import"], &cut).await;
    assert!(refused.stderr.contains("line 2"), "{refused:?}");
    refused.expect(2);

    let (_other_site, _other, there) = demo().await;
    let all = shell.run(&["export", "--all"]).await.expect(0);
    there.run(&["agents", "rm", "demo", "-y"]).await.expect(0);
    let ids = there.run_with(&["import", "--keep-id"], &all).await.expect(0);
    let in_order = ["c", copy.trim()];
    assert_eq!(ids.lines().collect::<Vec<_>>(), in_order, "a parent comes before its children");
    let theirs = there.run(&["journal", "c", "-o", "json"]).await.json();
    assert_eq!(theirs, shell.run(&["journal", "c", "-o", "json"]).await.json());
}

#[tokio::test]
async fn an_export_that_was_cut_off_between_conversations_is_no_whole_store() {
    let (_site, _node, shell) = demo().await;
    for conversation in ["a", "b"] {
        shell.run(&["say", conversation, "hello", "--agent", "demo"]).await.expect(0);
    }
    let all = shell.run(&["export", "--all"]).await.expect(0);
    let lines: Vec<&str> = all.lines().collect();
    assert!(lines.last().unwrap().contains("\"store_end\""), "{all}");
    let cut = lines[..lines.len() - 1].join("\n");
    let twice = format!("{all}{all}");
    for (input, imported) in [("", 0), (&*cut, 2), (&*twice, 2)] {
        let counted = format!("{imported} conversations imported");
        let by_node = shell.run_with(&["import"], input).await;
        let directory = format!("embedded:new-{}", input.len());
        let by_store = shell.run_with(&["import", "--store", &directory], input).await;
        for refused in [by_node, by_store] {
            assert!(refused.stderr.contains("the end of the store"), "{refused:?}");
            assert!(refused.stderr.contains(&counted), "{refused:?}");
            refused.expect(1);
        }
        // Whatever was whole is there, and is found by a repeat with the whole file.
        let whole = shell.run_with(&["import", "--store", &directory], &all).await;
        assert!(whole.stderr.contains(&format!("{imported} were there already")), "{whole:?}");
        whole.expect(0);
    }
}

#[tokio::test]
async fn a_store_that_is_served_is_not_read_by_another_process() {
    let (site, _node, shell) = demo().await;
    let store = format!("embedded:{}", site.store().display());
    let refused = shell.run(&["export", "--all", "--store", &store]).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{refused:?}");
    shell.run(&["export", "--store", &store]).await.expect(2);
    shell.run(&["export", "c", "--all"]).await.expect(2);
    shell.run(&["export", "c", "--store", &store]).await.expect(2);
    let missing = shell.run(&["export", "--all", "--store", "embedded:mistyped"]).await;
    assert!(missing.stderr.contains("no store in mistyped"), "{missing:?}");
    missing.expect(1);
    shell.run(&["export", "--all", "--store", "memory"]).await.expect(1);
}

/// An export writes nothing. An import is told what the store promises, as a node is.
#[tokio::test]
async fn a_store_that_promises_less_is_read_at_once_and_written_when_that_is_asked_for() {
    let redis = Redis::process_with(&["--appendfsync", "everysec"]).await;
    let (_site, _node, shell) = demo().await;
    shell.run(&["say", "c", "hello", "--agent", "demo"]).await.expect(0);
    let lines = shell.run(&["export", "--all"]).await.expect(0);
    let import = ["import", "--store", redis.url()];
    let refused = shell.run_with(&import, &lines).await;
    assert!(refused.stderr.contains("cannot promise --durability fsync"), "{refused:?}");
    refused.expect(1);
    let with = |durability| [&import[..], &["--durability", durability]].concat();
    shell.run_with(&with("never"), &lines).await.expect(1);
    shell.run_with(&with("os"), &lines).await.expect(0);
    shell.run_with(&["import", "--durability", "os"], &lines).await.expect(2);
    let moved = shell.run(&["export", "--all", "--store", redis.url()]).await.expect(0);
    assert!(moved.contains("\"store_end\",\"conversations\":1"), "{moved}");
}

#[tokio::test]
async fn what_is_imported_is_compressed_where_a_store_compresses() {
    let redis = Redis::process_with(&["--appendfsync", "everysec"]).await;
    let (_site, _node, shell) = demo().await;
    let shell = shell.with("ABIDE_STORE_COMPRESSION", "zstd");
    shell.run(&["say", "c", &"hello again ".repeat(20), "--agent", "demo"]).await.expect(0);
    let lines = shell.run(&["export", "--all"]).await.expect(0);
    let import = ["import", "--store", redis.url(), "--durability", "os"];
    shell.run_with(&import, &lines).await.expect(0);
    let keys: Vec<String> = redis.ask(&["KEYS", "*:j:c"]).await;
    let events: Vec<Vec<u8>> = redis.ask(&["LRANGE", &keys[0], "0", "-1"]).await;
    assert!(events.iter().any(|event| event[0] == b'('), "{events:?}");
    let moved = shell.run(&["export", "--all", "--store", redis.url()]).await.expect(0);
    shell.run_with(&["import", "--store", "embedded:back"], &moved).await.expect(0);
    let back = shell.run(&["export", "--all", "--store", "embedded:back"]).await.expect(0);
    assert_eq!(back, moved);
}

#[tokio::test]
async fn an_agent_goes_back_to_an_earlier_revision() {
    let (_site, _node, shell) = demo().await;
    let directory = shell.home.path().join("agents");
    for answer in ["1", "2"] {
        write_agent(&directory, "one", answer);
        shell.run(&["agents", "apply", "-f", "agents"]).await.expect(0);
    }
    let listed = shell.run(&["agents", "revisions", "one", "-o", "json"]).await.json();
    let revision = listed["revisions"][1]["revision"].as_str().unwrap().to_owned();
    let before = shell.run(&["agents", "get", "one", "--revision", &revision]).await.json();
    let diff = shell.run(&["agents", "diff", "one", &revision]).await.expect(0);
    assert!(diff.contains("model.script changed"), "{diff}");
    let rolled = shell.run(&["agents", "rollout", "one", &revision, "25"]).await.expect(0);
    assert!(rolled.contains(&format!("25 % on {revision}")), "{rolled}");
    let listed = shell.run(&["agents", "revisions", "one", "-o", "json"]).await.json();
    assert_eq!(listed["revisions"][1]["rollout_percent"], 25);
    assert_eq!(shell.run(&["agents", "rollout", "one"]).await.expect(0), rolled);
    shell.run(&["agents", "rollout", "one", "--end"]).await.expect(0);
    shell.run(&["agents", "rollout", "one"]).await.expect(3);
    shell.run(&["agents", "rollout", "one", &revision, "101"]).await.expect(2);
    shell.run(&["agents", "rollout", "one", &revision]).await.expect(2);
    let back = shell.run(&["agents", "rollback", "one", &revision]).await.expect(0);
    assert!(back.contains(&revision), "{back}");
    assert_eq!(shell.run(&["agents", "get", "one", "-o", "json"]).await.json(), before);
    shell.run(&["agents", "rollback", "one", "0123456789abcdef"]).await.expect(3);
}
