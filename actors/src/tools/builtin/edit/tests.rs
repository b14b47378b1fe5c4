//! Tests of what `edit` changes and what it leaves alone.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::timeout;

use super::*;
use crate::workspace::fixtures::{SECRET, TestWorkspace, text, ui};

async fn edit(space: &TestWorkspace, args: Value) -> ToolReturn {
    let editing = run(&space.workspace, &args);
    timeout(Duration::from_secs(20), editing).await.expect("it hangs")
}

async fn replace(space: &TestWorkspace, path: &str, old: &str, new: &str) -> String {
    let args = json!({"path": path, "old_string": old, "new_string": new});
    text(&edit(space, args).await)
}

fn content(space: &TestWorkspace, path: &str) -> String {
    fs::read_to_string(space.path(path)).unwrap()
}

#[tokio::test]
async fn an_exact_text_is_replaced_and_the_change_shown() {
    let space = TestWorkspace::new();
    space.file("a.txt", "one\r\ntwo\n");
    fs::set_permissions(space.path("a.txt"), fs::Permissions::from_mode(0o750)).unwrap();
    let args = json!({"path": "a.txt", "old_string": "e\r\nt", "new_string": "ä.*"});
    let returned = edit(&space, args).await;
    assert_eq!(text(&returned), "edited a.txt (1 replacement)");
    let (kind, payload) = ui(returned);
    assert_eq!(kind, "diff");
    let (before, after) = ("one\r\ntwo\n", "onä.*wo\n");
    let diff = json!({"path": "a.txt", "before": before, "after": after, "replacements": 1});
    assert_eq!(payload, diff);
    assert_eq!(content(&space, "a.txt"), after);
    assert_eq!(fs::metadata(space.path("a.txt")).unwrap().permissions().mode() & 0o777, 0o750);
}

#[tokio::test]
async fn all_are_replaced_only_if_all_are_meant() {
    let space = TestWorkspace::new();
    space.file("a", "x y x y x");
    assert_eq!(replace(&space, "a", "x", "z").await, "error: ambiguous_match: 3");
    assert_eq!(content(&space, "a"), "x y x y x");
    let args = json!({"path": "a", "old_string": "x", "new_string": "", "replace_all": true});
    assert_eq!(text(&edit(&space, args).await), "edited a (3 replacements)");
    assert_eq!(content(&space, "a"), " y  y ");
    let args = json!({"path": "a", "old_string": "y  ", "new_string": "", "replace_all": true});
    assert_eq!(text(&edit(&space, args).await), "edited a (1 replacement)");
}

#[tokio::test]
async fn what_cannot_be_edited_has_its_own_code() {
    let space = TestWorkspace::new();
    space.file("a", "text").file("dir/x", "").fifo("fifo").sparse("huge");
    let run = async |args| text(&edit(&space, args).await);
    assert_eq!(run(json!({"old_string": "a", "new_string": "b"})).await, "error: missing_path");
    assert_eq!(run(json!({"path": "a", "new_string": "b"})).await, "error: missing_old_string");
    let null = json!({"path": "a", "old_string": "a", "new_string": null});
    assert_eq!(run(null).await, "error: missing_new_string");
    assert_eq!(replace(&space, "a", "", "b").await, "error: empty_old_string");
    assert_eq!(replace(&space, "a", "TEXT", "b").await, "error: old_string_not_found");
    assert_eq!(replace(&space, "gone", "a", "b").await, "error: enoent");
    for name in ["dir", "fifo", "."] {
        assert_eq!(replace(&space, name, "a", "b").await, "error: not_a_regular_file");
    }
    assert_eq!(replace(&space, "huge", "a", "b").await, "error: file_too_large");
    assert_eq!(content(&space, "a"), "text");
}

#[tokio::test]
async fn a_file_never_grows_too_large() {
    let space = TestWorkspace::new();
    space.file("a", "x".repeat(1000));
    let grow = |by: usize| {
        let new = "y".repeat(by);
        json!({"path": "a", "old_string": "x", "new_string": new, "replace_all": true})
    };
    assert_eq!(text(&edit(&space, grow(2001)).await), "error: file_too_large");
    assert_eq!(content(&space, "a").len(), 1000);
    assert_eq!(text(&edit(&space, grow(2000)).await), "edited a (1000 replacements)");
    assert_eq!(content(&space, "a").len(), 2_000_000);
}

#[tokio::test]
async fn a_file_that_is_not_utf8_is_not_destroyed() {
    let space = TestWorkspace::new();
    space.file("latin", b"caf\xe9 text");
    assert_eq!(replace(&space, "latin", "text", "b").await, "error: not_utf8");
    assert_eq!(fs::read(space.path("latin")).unwrap(), b"caf\xe9 text");
}

#[tokio::test]
async fn nothing_outside_is_edited() {
    let space = TestWorkspace::new();
    for link in space.links_out() {
        assert_eq!(replace(&space, link, "the", "no").await, "error: path_outside_roots", "{link}");
    }
    assert_eq!(space.secret(), SECRET);
    assert_eq!(replace(&space, "../a", "a", "b").await, "error: path_traversal_rejected");
    assert_eq!(replace(&space, "a\0", "a", "b").await, "error: null_byte_in_path");
}

#[tokio::test]
async fn only_the_change_of_a_large_file_is_shown() {
    let space = TestWorkspace::new();
    let line = |n: usize| format!("line {n} €\n");
    space.file("big", (0..10_000).map(line).collect::<String>());
    let args = json!({"path": "big", "old_string": line(5000), "new_string": "new\n"});
    let (_, payload) = ui(edit(&space, args).await);
    let around = |middle: &str| {
        let lines = |from, to| (from..to).map(line).collect::<String>();
        format!("{}{middle}{}", lines(4997, 5000), lines(5001, 5004))
    };
    assert_eq!(payload["after"], around("new\n"));
    assert_eq!(payload["before"], around(&line(5000)));

    let args = json!({"path": "big", "old_string": "€", "new_string": "$", "replace_all": true});
    let (_, payload) = ui(edit(&space, args).await);
    let (before, after) = (payload["before"].as_str().unwrap(), payload["after"].as_str().unwrap());
    for shown in [before, after] {
        assert!(shown.len() <= 64_000 && shown.ends_with("[...truncated...]"));
    }
    assert!(before.starts_with("line 0 €\n") && after.starts_with("line 0 $\n"));
}

#[test]
fn a_shown_change_is_cut_between_characters() {
    let head = "same\n".repeat(5);
    for (old, new) in [("€", "₭"), ("€", ""), ("", "€"), ("a", "aa"), ("aa", "a"), ("x\n", "")]
    {
        let text = |middle| format!("{head}ä{middle}ä\n{head}");
        let (before, after) = (text(old), text(new));
        let (before, after) = changed_region(&before, &after);
        let shown = |middle| format!("same\nsame\nsame\nä{middle}ä\nsame\nsame\nsame\n");
        assert_eq!((before, after), (&*shown(old), &*shown(new)));
    }
    assert_eq!(changed_region("a", ""), ("a", ""));
    assert_eq!(changed_region("same", "same"), ("same", "same"));
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_of_one_file_follow_each_other_and_none_is_lost() {
    let space = TestWorkspace::new();
    space.file("list", "end");
    let edits = (0..40).map(|n| {
        let space = &space;
        async move { replace(space, "list", "end", &format!("{n}\nend")).await }
    });
    let results = join_all(edits).await;
    assert!(results.iter().all(|text| text == "edited list (1 replacement)"), "{results:?}");
    assert_eq!(content(&space, "list").lines().count(), 41);
}
