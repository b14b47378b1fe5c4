//! Tests of all five file tools while their files are swapped for links that lead out.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};

use crate::tools::builtin::{edit, glob, grep, read, write};
use crate::workspace::fixtures::{SECRET, TestWorkspace, text};

/// Enough rounds that every step of a tool meets both sides of a swap.
const ROUNDS: usize = 500;

/// Keeps swapping a name in the workspace atomically with one outside until it is dropped.
struct Swapper {
    ended: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Swapper {
    fn start(space: &TestWorkspace, name: &str, target: &Path) -> Self {
        let inside = space.path(name);
        let beside = space.outside.with_file_name(name);
        std::os::unix::fs::symlink(target, &beside).unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&ended);
        let thread = thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                renameat_with(CWD, &inside, CWD, &beside, RenameFlags::EXCHANGE).unwrap();
                thread::yield_now();
            }
        });
        Self { ended, thread: Some(thread) }
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// A workspace whose directory `dir` and file `leaf` are being swapped with links to the outside.
fn swapped_workspace() -> (TestWorkspace, [Swapper; 2]) {
    let space = TestWorkspace::new();
    space.file("dir/secret.txt", "inside").file("dir/deep/file", "inside").file("leaf", "inside");
    fs::write(space.outside.join("only-outside"), SECRET).unwrap();
    fs::create_dir(space.outside.join("deep")).unwrap();
    let dir = Swapper::start(&space, "dir", &space.outside);
    let leaf = Swapper::start(&space, "leaf", &space.outside.join("secret.txt"));
    (space, [dir, leaf])
}

fn is_untouched(space: &TestWorkspace) -> bool {
    let mut names: Vec<_> =
        fs::read_dir(&space.outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let deep = fs::read_dir(space.outside.join("deep")).unwrap().count();
    space.secret() == SECRET
        && fs::read_to_string(space.outside.join("only-outside")).unwrap() == SECRET
        && names == ["deep", "only-outside", "secret.txt"]
        && deep == 0
}

#[tokio::test]
async fn nothing_outside_is_read() {
    let (space, _swapping) = swapped_workspace();
    let mut seen = [0, 0];
    for n in 0..ROUNDS {
        let path = ["dir/secret.txt", "leaf"][n % 2];
        let output = text(&read::run(&space.workspace, &json!({"path": path})).await);
        match output.as_str() {
            "1\tinside" => seen[0] += 1,
            "error: path_outside_roots" => seen[1] += 1,
            other => panic!("{other}"),
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "nothing was swapped: {seen:?}");
}

#[tokio::test]
async fn nothing_outside_is_listed_or_searched() {
    let (space, _swapping) = swapped_workspace();
    let mut seen = [0, 0];
    for _ in 0..ROUNDS {
        let files = text(&glob::run(&space.workspace, &json!({"pattern": "**"})).await);
        assert!(!files.contains("only-outside"), "{files}");
        seen[usize::from(files.contains("dir/deep/file"))] += 1;
        let lines = text(&grep::run(&space.workspace, &json!({"pattern": "."})).await);
        assert!(!lines.contains(SECRET), "{lines}");
    }
    assert!(seen[0] > 0 && seen[1] > 0, "nothing was swapped: {seen:?}");
}

#[tokio::test]
async fn nothing_outside_is_written() {
    let (space, _swapping) = swapped_workspace();
    let mut seen = [0, 0];
    let mut count = |output: &str| seen[usize::from(output.starts_with("error"))] += 1;
    for n in 0..ROUNDS {
        let path = ["dir/secret.txt", "dir/deep/file", "dir/deep/new/file"][n % 3];
        let args = json!({"path": path, "content": "inside"});
        count(&text(&write::run(&space.workspace, &args).await));
        let path = ["dir/secret.txt", "leaf"][n % 2];
        let args: Value = json!({"path": path, "old_string": "s", "new_string": "s"});
        count(&text(&edit::run(&space.workspace, &args).await));
    }
    assert!(is_untouched(&space));
    assert!(seen[0] > 0 && seen[1] > 0, "nothing was swapped: {seen:?}");
}
