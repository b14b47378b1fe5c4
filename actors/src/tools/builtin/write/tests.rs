//! Tests of what `write` leaves behind, and what concurrent readers see.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use tokio::time::timeout;

use super::*;
use crate::workspace::fixtures::{SECRET, TestWorkspace, text};

async fn write(space: &TestWorkspace, path: &str, content: &str) -> String {
    let args = json!({"path": path, "content": content});
    let writing = run(&space.workspace, &args);
    let returned = timeout(Duration::from_secs(20), writing).await.expect("it hangs");
    assert_eq!(returned.ui, None);
    text(&returned)
}

/// The names of everything below the directory, to find left-over files.
fn names(space: &TestWorkspace, dir: &str) -> Vec<String> {
    let entries = fs::read_dir(space.path(dir)).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_file_is_created_with_the_directories_above_it() {
    let space = TestWorkspace::new();
    assert_eq!(write(&space, "a/b/c.txt", "äb").await, "wrote 3 bytes to a/b/c.txt");
    assert_eq!(fs::read_to_string(space.path("a/b/c.txt")).unwrap(), "äb");
    assert_eq!(names(&space, "a/b"), ["c.txt"]);
    let absolute = space.path("./a/d").display().to_string();
    assert_eq!(write(&space, &absolute, "").await, format!("wrote 0 bytes to {absolute}"));
    assert_eq!(fs::read(space.path("a/d")).unwrap(), b"");
}

#[tokio::test]
async fn an_existing_file_is_replaced_and_keeps_its_mode() {
    let space = TestWorkspace::new();
    for mode in [0o755, 0o600, 0o666, 0o4711] {
        space.file("run.sh", "old");
        fs::set_permissions(space.path("run.sh"), fs::Permissions::from_mode(mode)).unwrap();
        let before = fs::metadata(space.path("run.sh")).unwrap().ino();
        assert_eq!(write(&space, "run.sh", "new").await, "wrote 3 bytes to run.sh");
        let after = fs::metadata(space.path("run.sh")).unwrap();
        assert_eq!(after.mode() & 0o7777, mode & 0o777, "set-user-id and set-group-id are removed");
        assert_ne!(after.ino(), before);
        assert_eq!(fs::read(space.path("run.sh")).unwrap(), b"new");
    }
    assert_eq!(names(&space, "."), ["run.sh"]);
}

#[tokio::test]
async fn missing_arguments_have_their_own_codes() {
    let space = TestWorkspace::new();
    let run = async |args| text(&run(&space.workspace, &args).await);
    assert_eq!(run(json!({"content": "x"})).await, "error: missing_path");
    assert_eq!(run(json!({"path": "x"})).await, "error: missing_content");
    assert_eq!(run(json!({"path": "x", "content": null})).await, "error: missing_content");
    assert_eq!(names(&space, "."), [""; 0]);
}

#[tokio::test]
async fn only_a_file_is_replaced() {
    let space = TestWorkspace::new();
    space.fifo("fifo").file("dir/file", "").link("link", "dir").link("self", ".");
    for name in ["fifo", "dir", ".", "", "link", "self"] {
        assert_eq!(write(&space, name, "x").await, "error: not_a_regular_file", "{name}");
    }
    assert_eq!(write(&space, "dir/file/below", "x").await, "error: io_error: not a directory");
    assert_eq!(names(&space, "."), ["dir", "fifo", "link", "self"]);
}

#[tokio::test]
async fn a_link_stays_and_what_it_leads_to_is_replaced() {
    let space = TestWorkspace::new();
    space.file("a/file", "old").file("b/x", "").link("b/link", "../a/file").link("chain", "b/link");
    space.link("new", "made/file").link("dir", "a");
    for (name, file) in [("chain", "a/file"), ("new", "made/file"), ("dir/other", "a/other")] {
        assert!(write(&space, name, name).await.starts_with("wrote"), "{name}");
        assert_eq!(fs::read_to_string(space.path(file)).unwrap(), name);
    }
    for link in ["chain", "b/link", "new", "dir"] {
        assert!(fs::symlink_metadata(space.path(link)).unwrap().is_symlink());
    }
}

#[tokio::test]
async fn nothing_outside_is_written() {
    let space = TestWorkspace::new();
    for link in space.links_out() {
        assert_eq!(write(&space, link, "x").await, "error: path_outside_roots", "{link}");
    }
    for new in ["folder/new", "folder/a/b/new", "/etc/new", "../new"] {
        assert!(write(&space, new, "x").await.starts_with("error: path_"), "{new}");
    }
    space.link("dangling", space.outside.join("new")).link("up", "../../outside/new");
    for link in ["dangling", "up"] {
        assert_eq!(write(&space, link, "x").await, "error: path_outside_roots", "{link}");
    }
    assert_eq!(space.secret(), SECRET);
    assert_eq!(fs::read_dir(&space.outside).unwrap().count(), 1);
}

#[tokio::test]
async fn the_storage_marker_is_hidden_from_tools() {
    let space = TestWorkspace::new();
    space.file(".abide-storage", "storage_x").link("mark", ".abide-storage");
    for name in [".abide-storage", "mark", "a/.abide-storage/b"] {
        assert_eq!(write(&space, name, "x").await, "error: path_outside_roots", "{name}");
    }
    assert_eq!(fs::read(space.path(".abide-storage")).unwrap(), b"storage_x");
}

#[tokio::test]
async fn links_in_a_circle_are_an_error() {
    let space = TestWorkspace::new();
    space.link("a", "b").link("b", "a");
    assert_eq!(write(&space, "a", "x").await, "error: io_error: too many symbolic links");
}

#[tokio::test]
async fn a_reader_never_sees_a_part() {
    let space = TestWorkspace::new();
    let versions = ["a".repeat(300_000), "b".repeat(300_000)];
    space.file("file", &versions[0]);
    let ended = Arc::new(AtomicBool::new(false));
    let path = space.path("file");
    let known = versions.clone();
    let ends = Arc::clone(&ended);
    let reading = thread::spawn(move || {
        let mut reads = 0;
        while !ends.load(Ordering::Relaxed) {
            let seen = fs::read_to_string(&path).unwrap();
            assert!(known.contains(&seen), "{} bytes", seen.len());
            reads += 1;
        }
        reads
    });
    for n in 0..50 {
        assert!(write(&space, "file", &versions[n % 2]).await.starts_with("wrote"));
    }
    ended.store(true, Ordering::Relaxed);
    assert!(reading.join().unwrap() > 0);
}

#[tokio::test]
async fn a_cancelled_write_does_not_happen() {
    let space = TestWorkspace::new();
    space.file("file", "old");
    let path = space.workspace.resolve_path("file").unwrap();
    let turn = space.workspace.write_turn(&path).await;
    let args = json!({"path": "file", "content": "new"});
    assert!(run(&space.workspace, &args).now_or_never().is_none());
    drop(turn);
    // Any remaining work of the cancelled write would be done before this write's turn.
    assert_eq!(write(&space, "other", "").await, "wrote 0 bytes to other");
    let _turn = space.workspace.write_turn(&path).await;
    assert_eq!(fs::read(space.path("file")).unwrap(), b"old");
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_at_once_end_with_one_of_them_and_no_litter() {
    let space = TestWorkspace::new();
    let content = |n: usize| format!("{n} ").repeat(1000);
    let writes = (0..50).map(|n| {
        let (space, content) = (&space, content(n));
        async move { write(space, "a/file", &content).await }
    });
    let results = join_all(writes).await;
    assert!(results.iter().all(|text| text.starts_with("wrote")), "{results:?}");
    let last = fs::read_to_string(space.path("a/file")).unwrap();
    assert!((0..50).any(|n| content(n) == last));
    assert_eq!(names(&space, "a"), ["file"]);
}

#[tokio::test]
async fn a_file_that_may_not_be_written_to_is_not_replaced() {
    let space = TestWorkspace::new();
    space.file("file", "old");
    fs::set_permissions(space.path("file"), fs::Permissions::from_mode(0o444)).unwrap();
    // Root may write to anything.
    let (expected, left) = if rustix::process::geteuid().is_root() {
        ("wrote 3 bytes to file", "new")
    } else {
        ("error: io_error: permission denied", "old")
    };
    assert_eq!(write(&space, "file", "new").await, expected);
    assert_eq!(fs::read_to_string(space.path("file")).unwrap(), left);
    assert_eq!(fs::metadata(space.path("file")).unwrap().mode() & 0o777, 0o444);
}
