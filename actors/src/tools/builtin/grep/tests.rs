//! Tests of what `grep` finds and which files it skips.

#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::timeout;

use super::*;
use crate::workspace::fixtures::{TestWorkspace, text, ui};

async fn grep(space: &TestWorkspace, args: Value) -> ToolReturn {
    let searching = run(&space.workspace, &args);
    timeout(Duration::from_secs(20), searching).await.expect("it hangs")
}

async fn find(space: &TestWorkspace, pattern: &str) -> String {
    text(&grep(space, json!({"pattern": pattern})).await)
}

#[tokio::test]
async fn lines_that_match_come_with_path_and_number() {
    let space = TestWorkspace::new();
    space.file("b.txt", "hit\nmiss\n  hit again\r\n").file("a/x.rs", "no\nhit").file("e", "");
    let returned = grep(&space, json!({"pattern": "^\\s*hit"})).await;
    let items = ["a/x.rs:2:hit", "b.txt:1:hit", "b.txt:3:  hit again"];
    assert_eq!(text(&returned), items.join("\n"));
    let payload = json!({"pattern": "^\\s*hit", "count": 3, "items": items});
    assert_eq!(ui(returned), ("matches".to_owned(), payload));
    assert_eq!(find(&space, "hit$").await, "a/x.rs:2:hit\nb.txt:1:hit");
    assert_eq!(find(&space, "HIT").await, "(no matches)");
    assert_eq!(find(&space, "(?i)HIT again").await, "b.txt:3:  hit again");
}

#[tokio::test]
async fn only_files_whose_path_matches_are_searched() {
    let space = TestWorkspace::new();
    space.file("a.rs", "hit").file("src/b.rs", "hit").file("src/c.txt", "hit");
    let within = async |paths: Value| {
        text(&grep(&space, json!({"pattern": "hit", "path_glob": paths})).await)
    };
    assert_eq!(within(json!("**/*.rs")).await, "a.rs:1:hit\nsrc/b.rs:1:hit");
    assert_eq!(within(json!("*.rs")).await, "a.rs:1:hit");
    assert_eq!(within(json!(null)).await.lines().count(), 3);
    assert!(within(json!("[")).await.starts_with("error: invalid_pattern: "));
}

#[tokio::test]
async fn the_first_results_are_shown_whatever_thread_finds_them() {
    let space = TestWorkspace::new();
    for n in 0..400 {
        space.file(format!("d{}/{n:03}", n % 7), "hit\n".repeat(3));
    }
    let all = text(&grep(&space, json!({"pattern": "hit", "max_results": 2000})).await);
    assert_eq!(all.lines().count(), 1200);
    let ordered = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>().is_sorted();
    assert!(ordered(&all));
    for most in [1, 100, 200] {
        for _ in 0..5 {
            let some = grep(&space, json!({"pattern": "hit", "max_results": most})).await;
            let first: Vec<&str> = all.lines().take(most).chain(["[...truncated...]"]).collect();
            assert_eq!(text(&some), first.join("\n"));
            assert_eq!(ui(some).1["count"], most);
        }
    }
    assert_eq!(find(&space, "hit").await.lines().count(), 201, "the default limit and the mark");
}

#[tokio::test]
async fn long_lines_and_long_results_are_cut() {
    let space = TestWorkspace::new();
    let wide = format!("a{}", "€".repeat(400));
    space.file("fits", format!("a{}", "x".repeat(499))).file("wide", &wide);
    space.file("over", format!("a{}", "x".repeat(500)));
    let text_of = find(&space, "a").await;
    let lines: Vec<&str> = text_of.lines().collect();
    assert_eq!(lines[0], format!("fits:1:a{}", "x".repeat(499)));
    assert_eq!(lines[1], format!("over:1:a{}[...truncated...]", "x".repeat(482)));
    assert_eq!(lines[2], format!("wide:1:a{}[...truncated...]", "€".repeat(160)));

    space.file("many", format!("{}\n", "y".repeat(400)).repeat(2000));
    let text_of = text(&grep(&space, json!({"pattern": "y", "max_results": 2000})).await);
    assert!(text_of.len() <= 64_000 && text_of.len() > 63_500, "{}", text_of.len());
    assert!(text_of.ends_with("y\n[...truncated...]"));
}

#[tokio::test]
async fn an_invalid_or_exploding_expression_is_refused() {
    let space = TestWorkspace::new();
    space.file("a", "a");
    for args in [json!({}), json!({"pattern": null})] {
        assert_eq!(text(&grep(&space, args).await), "error: missing_pattern");
    }
    let deep = format!("{}{}", "(".repeat(2000), ")".repeat(2000));
    let long = "a".repeat(5000);
    for pattern in ["(", "a\\nb", "(?:a{1000}){1000}", "\\w{10000}", "(?<=a)b", &deep, &long] {
        let text = find(&space, pattern).await;
        assert!(text.starts_with("error: invalid_regex: ") && text.len() < 600, "{text}");
        assert_eq!(text.lines().count(), 1);
    }
}

#[tokio::test]
async fn an_expression_that_is_slow_elsewhere_takes_no_time() {
    let space = TestWorkspace::new();
    space.file("a", format!("{}b\n", "a".repeat(100_000)));
    assert_eq!(find(&space, "^(a+)+$").await, "(no matches)");
    assert_eq!(find(&space, "^(a|a)*c").await, "(no matches)");
}

#[tokio::test]
async fn binary_files_are_skipped_and_other_bytes_are_not() {
    let space = TestWorkspace::new();
    space
        .file("early", b"\0hit\n")
        .file("late", [b"hit\n".repeat(5), b"x\n".repeat(200_000), vec![0]].concat());
    space.file("latin", b"hit caf\xe9\n").file(OsStr::from_bytes(b"n\xffme"), "hit");
    assert_eq!(find(&space, "hit").await, "latin:1:hit caf\u{fffd}\nn\u{fffd}me:1:hit");
}

#[tokio::test]
async fn what_is_no_file_is_never_opened() {
    let space = TestWorkspace::new();
    space.file("file", "hit\nthe secret inside").fifo("fifo").link("link", "file").sparse("huge");
    space.file(".git/config", "hit").file("sub/.git/x", "hit").file(".abide-storage", "hit");
    space.links_out();
    assert_eq!(find(&space, "hit").await, "file:1:hit");
    assert_eq!(find(&space, "secret|root").await, "file:2:the secret inside");
}

#[tokio::test]
async fn an_endless_line_is_not_buffered() {
    let space = TestWorkspace::new();
    space.file("a", format!("hit\n{}hit\nhit\n", "x".repeat(3_000_000)));
    assert_eq!(find(&space, "hit").await, "a:1:hit");
}

#[tokio::test]
async fn files_up_to_64_mb_are_searched() {
    let space = TestWorkspace::new();
    let line = format!("{}\n", "x".repeat(99_999));
    space.file("most", format!("{}hit\n", line.repeat(639)));
    space.file("more", format!("{}hit\n", line.repeat(640)));
    assert_eq!(find(&space, "hit").await, "most:640:hit");
}

#[tokio::test]
async fn a_cancelled_search_makes_room_for_others() {
    let space = TestWorkspace::new();
    for n in 0..300 {
        space.file(format!("{n}"), "hit\n".repeat(1000));
    }
    let args = json!({"pattern": "no"});
    // More searches than may run concurrently.
    for _ in 0..50 {
        assert!(run(&space.workspace, &args).now_or_never().is_none());
    }
    let mut waiting = Vec::new();
    for _ in 0..20 {
        waiting.push(grep(&space, args.clone()));
    }
    let all = futures::future::join_all(waiting).await;
    assert!(all.iter().all(|one| text(one) == "(no matches)"));
}
