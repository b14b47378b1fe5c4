//! Tests of what `glob` finds.

#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use tokio::time::timeout;

use super::*;
use crate::workspace::fixtures::{TestWorkspace, text, ui};

async fn glob(space: &TestWorkspace, args: Value) -> ToolReturn {
    let searching = run(&space.workspace, &args);
    timeout(Duration::from_secs(20), searching).await.expect("it hangs")
}

async fn find(space: &TestWorkspace, pattern: &str) -> String {
    text(&glob(space, json!({"pattern": pattern})).await)
}

#[tokio::test]
async fn paths_that_match_come_sorted_and_relative() {
    let space = TestWorkspace::new();
    for name in ["b.rs", "src/a.rs", "src/deep/er/c.rs", "src-x.rs", "src/a.txt", ".hidden/h.rs"] {
        space.file(name, "");
    }
    space.file(".gitignore", "*").file(".git/x.rs", "").file(".abide-storage", "");
    let returned = glob(&space, json!({"pattern": "**/*.rs"})).await;
    let items = [".hidden/h.rs", "b.rs", "src-x.rs", "src/a.rs", "src/deep/er/c.rs"];
    assert_eq!(text(&returned), items.join("\n"));
    let payload = json!({"pattern": "**/*.rs", "count": 5, "items": items});
    assert_eq!(ui(returned), ("matches".to_owned(), payload));

    assert_eq!(find(&space, "*.rs").await, "b.rs\nsrc-x.rs", "a star does not cross a slash");
    assert_eq!(find(&space, "src/*").await, "src/a.rs\nsrc/a.txt");
    assert_eq!(find(&space, "src/?.{rs,txt}").await, "src/a.rs\nsrc/a.txt");
    assert_eq!(find(&space, "src/**").await, "src/a.rs\nsrc/a.txt\nsrc/deep/er/c.rs");
    assert_eq!(find(&space, ".abide*").await, "(no matches)");
    assert_eq!(find(&space, "src").await, "(no matches)", "a directory is not a file");
    let none = glob(&space, json!({"pattern": "x"})).await;
    assert_eq!(ui(none).1, json!({"pattern": "x", "count": 0, "items": []}));
}

#[tokio::test]
async fn only_as_many_as_wanted_are_shown_and_the_first() {
    let space = TestWorkspace::new();
    for n in 0..300 {
        space.file(format!("{n:03}"), "");
    }
    let shown = async |args: Value| {
        let returned = glob(&space, args).await;
        let text = text(&returned);
        (ui(returned).1["count"].clone(), text)
    };
    let (count, all) = shown(json!({"pattern": "*", "max_results": 300})).await;
    assert!(count == 300 && !all.contains("truncated"));
    let (count, some) = shown(json!({"pattern": "*", "max_results": null})).await;
    assert_eq!(count, 200);
    assert!(some.ends_with("\n199\n[...truncated...]"), "{some}");
    let (count, few) = shown(json!({"pattern": "*", "max_results": 2})).await;
    assert_eq!((count, few.as_str()), (json!(2), "000\n001\n[...truncated...]"));
}

#[tokio::test]
async fn the_text_keeps_its_bound() {
    let space = TestWorkspace::new();
    for n in 0..800 {
        space.file(format!("{n:03}{}", "x".repeat(200)), "");
    }
    let returned = glob(&space, json!({"pattern": "*", "max_results": 5000})).await;
    let text = text(&returned);
    assert!(text.len() <= 64_000 && text.len() > 63_700, "{}", text.len());
    assert!(text.ends_with("x\n[...truncated...]"));
    assert_eq!(ui(returned).1["count"], text.lines().count() - 1);
}

#[tokio::test]
async fn an_invalid_pattern_is_an_error() {
    let space = TestWorkspace::new();
    for args in [json!({}), json!({"pattern": null})] {
        assert_eq!(text(&glob(&space, args).await), "error: missing_pattern");
    }
    let deep = "{a,".repeat(1000);
    let long = "a".repeat(5000);
    // Such a pattern compiles to too large a program.
    let large = format!("{{{}}}", ["[!a]?"; 600].join(","));
    for pattern in ["[", "{a", "a\\", &deep, &long] {
        let text = find(&space, pattern).await;
        assert!(text.starts_with("error: invalid_pattern: ") && text.len() < 600, "{text}");
        assert_eq!(text.lines().count(), 1);
    }
    find(&space, &large).await;
}

#[tokio::test]
async fn only_links_to_files_inside_are_files() {
    let space = TestWorkspace::new();
    space.file("dir/file", "").link("good", "dir/file").link("folder_in", "dir").link("dead", "x");
    space.fifo("fifo").link("to_fifo", "fifo");
    space.links_out();
    assert_eq!(find(&space, "**").await, "dir/file\ngood");
}

#[tokio::test]
async fn names_that_are_not_utf8_are_shown_as_they_can_be() {
    let space = TestWorkspace::new();
    space.file(OsStr::from_bytes(b"a\xff.rs"), "");
    assert_eq!(find(&space, "*.rs").await, "a\u{fffd}.rs");
}
