//! Tests of what `read` shows and what it refuses.

#![allow(clippy::unwrap_used)]

mod symlink_swap;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use tokio::time::timeout;

use super::*;
use crate::workspace::fixtures::{SECRET, TestWorkspace, text, ui};

async fn read(space: &TestWorkspace, args: Value) -> ToolReturn {
    let reading = run(&space.workspace, &args);
    timeout(Duration::from_secs(20), reading).await.expect("it hangs")
}

async fn path(space: &TestWorkspace, path: &str) -> String {
    text(&read(space, json!({"path": path})).await)
}

#[tokio::test]
async fn lines_come_with_the_numbers_that_they_have_in_the_file() {
    let space = TestWorkspace::new();
    space.file("a/b.txt", "one\n\n\tthree\r\nfour");
    let returned = read(&space, json!({"path": "a/b.txt"})).await;
    assert_eq!(text(&returned), "1\tone\n2\t\n3\t\tthree\r\n4\tfour");
    let (kind, payload) = ui(returned);
    assert_eq!(kind, "file");
    let content = "one\n\n\tthree\r\nfour";
    assert_eq!(payload, json!({"path": "a/b.txt", "content": content, "line_range": null}));

    let returned = read(&space, json!({"path": "a/b.txt", "offset": 2, "limit": 2})).await;
    assert_eq!(text(&returned), "2\t\n3\t\tthree\r");
    assert_eq!(ui(returned).1["line_range"], json!([2, 3]));
    let returned = read(&space, json!({"path": "a/b.txt", "offset": 3, "limit": null})).await;
    assert_eq!(text(&returned), "3\t\tthree\r\n4\tfour");
    let (_, payload) = ui(returned);
    assert_eq!(
        (&payload["content"], &payload["line_range"]),
        (&json!("\tthree\r\nfour"), &json!([3, 4]))
    );
}

#[tokio::test]
async fn there_is_nothing_after_the_end() {
    let space = TestWorkspace::new();
    space.file("a", "one\ntwo\n").file("empty", "");
    for offset in [3, u64::MAX] {
        let returned = read(&space, json!({"path": "a", "offset": offset, "limit": offset})).await;
        assert_eq!(text(&returned), "");
        assert_eq!(ui(returned).1, json!({"path": "a", "content": "", "line_range": null}));
    }
    assert_eq!(path(&space, "empty").await, "");
}

#[tokio::test]
async fn a_long_text_is_cut_between_characters() {
    let space = TestWorkspace::new();
    // "1\t" and 16,000 bytes less that: exactly the limit.
    space.file("fits", "x".repeat(15_998)).file("long", "x".repeat(15_999));
    assert_eq!(path(&space, "fits").await.len(), 16_000);
    let long = path(&space, "long").await;
    assert_eq!(long.len(), 16_000);
    assert!(long.ends_with("x[...truncated...]"));

    for start in ["", "a", "ab"] {
        space.file("wide", format!("{start}{}", "€".repeat(10_000)));
        let returned = read(&space, json!({"path": "wide"})).await;
        let output = text(&returned);
        assert!(
            output.ends_with("€[...truncated...]") && output.len() > 15_997,
            "{}",
            output.len()
        );
        let (_, payload) = ui(returned);
        assert_eq!(format!("1\t{}", payload["content"].as_str().unwrap()), output);
        assert_eq!(payload["line_range"], json!([1, 1]));
    }

    space.file("lines", "0123456789\n".repeat(10_000));
    let returned = read(&space, json!({"path": "lines", "offset": 5})).await;
    let last = text(&returned).lines().count() as u64;
    assert_eq!(ui(returned).1["line_range"], json!([5, 4 + last]));
}

#[tokio::test]
async fn bytes_that_are_not_utf8_are_shown_as_such() {
    let space = TestWorkspace::new();
    space.file("latin", b"caf\xe9\n\xff\xfe");
    assert_eq!(path(&space, "latin").await, "1\tcaf\u{fffd}\n2\t\u{fffd}\u{fffd}");
}

#[tokio::test]
async fn a_missing_path_is_named_and_so_is_a_missing_file() {
    let space = TestWorkspace::new();
    space.file("file", "");
    for args in [json!({}), json!({"path": null})] {
        assert_eq!(text(&read(&space, args).await), "error: missing_path");
    }
    for missing in ["gone", "gone/file"] {
        assert_eq!(path(&space, missing).await, "error: enoent");
    }
    assert_eq!(path(&space, "file/below").await, "error: io_error: not a directory");
}

#[tokio::test]
async fn what_is_not_a_file_is_never_waited_for() {
    let space = TestWorkspace::new();
    space.fifo("fifo").file("dir/file", "");
    let _socket = std::os::unix::net::UnixListener::bind(space.path("socket")).unwrap();
    for name in ["fifo", "dir", ".", "", "socket", "dir/"] {
        assert_eq!(path(&space, name).await, "error: not_a_regular_file", "{name}");
    }
}

#[tokio::test]
async fn a_device_is_not_read() {
    let space = TestWorkspace::new();
    let zero = std::ffi::CString::new(space.path("zero").as_os_str().as_bytes()).unwrap();
    let mode = Mode::from_raw_mode(0o600);
    match mknodat(CWD, zero, FileType::CharacterDevice, mode, makedev(1, 5)) {
        Ok(()) => assert_eq!(path(&space, "zero").await, "error: not_a_regular_file"),
        // Only root can create devices; for others a link to a device leads out.
        Err(_) => {
            space.link("zero", "/dev/zero");
            assert_eq!(path(&space, "zero").await, "error: path_outside_roots");
        }
    }
}

#[tokio::test]
async fn a_file_that_is_too_large_is_refused_at_once() {
    let space = TestWorkspace::new();
    space.sparse("huge").file("most", vec![b'\n'; 2_000_000]).file("more", vec![b'\n'; 2_000_001]);
    assert_eq!(path(&space, "huge").await, "error: file_too_large");
    assert_eq!(path(&space, "more").await, "error: file_too_large");
    assert!(path(&space, "most").await.starts_with("1\t\n2\t\n"));
}

#[tokio::test]
async fn nothing_outside_is_read() {
    let space = TestWorkspace::new();
    for link in space.links_out() {
        assert_eq!(path(&space, link).await, "error: path_outside_roots", "{link}");
    }
    let absolute = space.outside.join("secret.txt").display().to_string();
    for outside in [absolute.as_str(), "/proc/self/environ", "/"] {
        assert_eq!(path(&space, outside).await, "error: path_outside_roots");
    }
    assert_eq!(path(&space, "../outside/secret.txt").await, "error: path_traversal_rejected");
    assert_eq!(path(&space, "a\0b").await, "error: null_byte_in_path");
    assert_eq!(space.secret(), SECRET);
}

#[tokio::test]
async fn a_link_that_stays_inside_is_followed() {
    let space = TestWorkspace::new();
    space.file("a/b/file", "inside").link("link", "a/b/file").link("dir", "a/b");
    space.link("a/up", "../a/b/../b/file");
    for name in ["link", "dir/file", "a/up"] {
        assert_eq!(path(&space, name).await, "1\tinside");
    }
    let absolute = space.path("a/b/file").display().to_string();
    assert_eq!(path(&space, &absolute).await, "1\tinside");
    fs::remove_file(space.path("a/b/file")).unwrap();
    assert_eq!(path(&space, "link").await, "error: enoent");
}

#[tokio::test]
async fn the_storage_marker_is_hidden_from_tools() {
    let space = TestWorkspace::new();
    space.file(".abide-storage", "storage_x");
    assert_eq!(path(&space, ".abide-storage").await, "error: path_outside_roots");
}
