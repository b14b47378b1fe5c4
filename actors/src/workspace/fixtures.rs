//! A test workspace with a secret beside it that tools must not reach.

#![allow(clippy::unwrap_used)]

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use abide_conversation::Timestamp;
use abide_conversation::message::Outcome;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;
use tempfile::TempDir;

use super::{Workspace, WorkspaceRef, Workspaces};
use crate::clock::Clock;
use crate::tools::ToolReturn;

/// The text that no tool may ever show.
pub(crate) const SECRET: &str = "the secret outside";

/// A clock with unique ids; its time stands still.
#[derive(Default)]
pub(crate) struct CountingClock(AtomicU64);

impl Clock for CountingClock {
    fn now(&self) -> Timestamp {
        "2026-11-22T05:00:00.000Z".parse().unwrap()
    }

    fn id(&self, prefix: &str) -> String {
        format!("{prefix}_{}", self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn chance(&self) -> f64 {
        0.5
    }
}

pub(crate) fn workspaces(base: impl Into<PathBuf>) -> Workspaces {
    let all = Workspaces::new(base.into(), Arc::new(CountingClock::default()));
    all.with_permitted_roots(vec!["/".into()])
}

pub(crate) struct TestWorkspace {
    pub(crate) workspace: Workspace,
    /// A directory beside the workspace that contains `secret.txt`.
    pub(crate) outside: PathBuf,
    _dir: TempDir,
}

impl TestWorkspace {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().canonicalize().unwrap().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret.txt"), SECRET).unwrap();
        let site = WorkspaceRef { root: None, shared: false, owner: "c1".to_owned() };
        let workspace = workspaces(dir.path().join("base")).open(&site, None).unwrap();
        Self { workspace, outside, _dir: dir }
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.workspace.root().join(name)
    }

    /// Creates a file with this content and the directories above it.
    pub(crate) fn file(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) -> &Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    pub(crate) fn link(&self, name: &str, target: impl AsRef<Path>) -> &Self {
        symlink(target, self.path(name)).unwrap();
        self
    }

    pub(crate) fn fifo(&self, name: &str) -> &Self {
        let path = CString::new(self.path(name).as_os_str().as_bytes()).unwrap();
        mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        self
    }

    /// A sparse file of ten gigabytes.
    pub(crate) fn sparse(&self, name: &str) -> &Self {
        fs::File::create(self.path(name)).unwrap().set_len(10_000_000_000).unwrap();
        self
    }

    /// Creates every kind of symbolic link that leads out, and returns their names. Each ends at
    /// the secret file or its directory.
    pub(crate) fn links_out(&self) -> [&'static str; 7] {
        fs::create_dir(self.path("deep")).unwrap();
        self.link("absolute", self.outside.join("secret.txt"))
            .link("relative", "../../outside/secret.txt")
            .link("chain", "relative")
            .link("folder", &self.outside)
            .link("deep/up", "../../../outside")
            .link("root", "/proc/self/root");
        let secret = format!("root{}/secret.txt", self.outside.display());
        [
            "absolute",
            "relative",
            "chain",
            "folder/secret.txt",
            "deep/up/secret.txt",
            "root/etc/passwd",
        ]
        .into_iter()
        .chain([&*secret.leak()])
        .collect::<Vec<_>>()
        .try_into()
        .unwrap()
    }

    pub(crate) fn secret(&self) -> String {
        fs::read_to_string(self.outside.join("secret.txt")).unwrap()
    }
}

/// The text that the model reads; an error's text has a prefix.
pub(crate) fn text(returned: &ToolReturn) -> String {
    match &returned.outcome {
        Outcome::Ok(Value::String(text)) => text.clone(),
        Outcome::Err(message, _) => format!("error: {message}"),
        other => panic!("not a text: {other:?}"),
    }
}

/// The payload for user interfaces: its kind and its content.
pub(crate) fn ui(returned: ToolReturn) -> (String, Value) {
    let ui = returned.ui.unwrap();
    (ui.kind, ui.payload)
}
