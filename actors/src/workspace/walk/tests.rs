//! Tests of what a walk visits, and that it ends.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc;
use std::time::Duration;

use super::super::fixtures::TestWorkspace;
use super::*;

fn walk_all(space: &TestWorkspace) -> Vec<String> {
    let found = Mutex::new(Vec::new());
    walk(space.workspace.dir(), &CancelFlag::default(), || {
        |one: &WalkEntry<'_>| found.lock().unwrap().push(one.path.display().to_string())
    })
    .unwrap();
    let mut found = found.into_inner().unwrap();
    found.sort();
    found
}

#[test]
fn every_file_is_found_once() {
    let space = TestWorkspace::new();
    let mut expected = Vec::new();
    for n in 0..3000 {
        // Many directories, and one whose listing needs many reads.
        let name = if n % 10 > 0 { format!("wide/{n:04}.txt") } else { format!("d{n:04}/e/f") };
        space.file(&name, "");
        expected.push(name);
    }
    space.file(".git/config", "").file("sub/.git/config", "").file(".abide-write_1", "");
    space.file(".hidden/.file", "").file(".gitignore", "*");
    expected.extend([".hidden/.file".to_owned(), ".gitignore".to_owned()]);
    expected.sort();
    assert_eq!(walk_all(&space), expected);
}

#[test]
fn links_are_shown_and_never_followed_and_nothing_else_is_shown() {
    let space = TestWorkspace::new();
    space.file("a/file", "").link("out", &space.outside).link("loop", ".").link("dead", "gone");
    space.fifo("fifo");
    assert_eq!(walk_all(&space), ["a/file", "dead", "loop", "out"]);
}

#[test]
fn names_that_are_not_utf8_are_found_and_opened() {
    let space = TestWorkspace::new();
    let name = OsStr::from_bytes(b"\xff.txt");
    space.file(name, "");
    let opened = Mutex::new(Vec::new());
    walk(space.workspace.dir(), &CancelFlag::default(), || {
        |one: &WalkEntry<'_>| opened.lock().unwrap().push((one.path.to_owned(), one.open().is_ok()))
    })
    .unwrap();
    assert_eq!(opened.into_inner().unwrap(), [(name.into(), true)]);
}

#[test]
fn a_walk_ends_at_its_deepest_level() {
    let space = TestWorkspace::new();
    let deep = vec!["d"; MAX_DEPTH].join("/");
    space.file(format!("{deep}/in"), "").file(format!("{deep}/d/beyond"), "");
    assert_eq!(walk_all(&space), [format!("{deep}/in")]);
}

#[test]
fn a_cancelled_walk_shows_nothing_more() {
    let space = TestWorkspace::new();
    for n in 0..3000 {
        space.file(format!("{n}"), "");
    }
    let cancelled = CancelFlag::default();
    let shown = Mutex::new(0);
    walk(space.workspace.dir(), &cancelled, || {
        |_: &WalkEntry<'_>| {
            cancelled.set();
            *shown.lock().unwrap() += 1;
        }
    })
    .unwrap();
    let shown = shown.into_inner().unwrap();
    assert!(shown <= MAX_THREADS, "{shown}");
}

#[test]
fn a_visitor_that_panics_does_not_leave_the_others_waiting() {
    let space = TestWorkspace::new();
    let dir = File::open(space.workspace.root()).unwrap();
    let root = Folder { fd: dir.into(), path: Vec::new(), level: 0 };
    let tasks = Arc::new(Tasks::default());
    tasks.add(Task { folder: Arc::new(root), child: None });
    let (ended, ends) = mpsc::channel();
    let others = Arc::clone(&tasks);
    std::panic::catch_unwind(move || {
        let _busy = tasks.next().unwrap();
        panic!("the test panics on purpose");
    })
    .unwrap_err();
    thread::spawn(move || ended.send(others.next().is_none()));
    assert!(ends.recv_timeout(Duration::from_secs(20)).unwrap());
}

#[test]
fn a_directory_without_end_takes_few_open_files() {
    let space = TestWorkspace::new();
    for n in 0..600 {
        space.file(format!("{n}/a/f"), "");
    }
    let max_open = Mutex::new(0);
    walk(space.workspace.dir(), &CancelFlag::default(), || {
        |_: &WalkEntry<'_>| {
            let open = fs::read_dir("/proc/self/fd").unwrap().count();
            let mut max_open = max_open.lock().unwrap();
            *max_open = open.max(*max_open);
        }
    })
    .unwrap();
    // Other tests have open files, too.
    assert!(max_open.into_inner().unwrap() < 300);
}
