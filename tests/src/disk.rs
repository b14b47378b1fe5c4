//! A disk that fills up, and that forgets in a loss of power what was not synced.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

/// The library that is preloaded into the store's process.
const SOURCE: &str = include_str!("disk/unsynced_writes.c");
/// The bytes of a record before those of the file: three numbers.
const HEAD_BYTES: usize = 24;

/// One directory of a store, as it would be on a disk of its own.
///
/// The page cache outlives a process that is killed, so that a kill loses nothing that was written. A
/// loss of power loses what was not synced. The library logs how to undo each write until its file has
/// been synced; `lose_unsynced` then undoes the latest of them, as many as the caller says. What was
/// synced is never undone, so a store that promises `fsync` must not notice.
#[derive(Clone, Debug)]
pub struct Disk {
    dir: PathBuf,
}

impl Disk {
    /// The disk of this directory, which need not exist yet.
    pub fn of(dir: &Path) -> Self {
        // The library compares real paths.
        let parent = dir.parent().and_then(|parent| parent.canonicalize().ok());
        let name = dir.file_name().unwrap_or_default();
        Self { dir: parent.map_or_else(|| dir.to_owned(), |parent| parent.join(name)) }
    }

    /// The environment of a process whose writes below the directory are watched.
    pub fn environment(&self) -> [(String, String); 3] {
        let text = |path: &Path| path.display().to_string();
        [
            ("LD_PRELOAD".to_owned(), text(library())),
            ("UNSYNCED_DIR".to_owned(), text(&self.dir)),
            ("DISK_FULL".to_owned(), text(&self.full_flag())),
        ]
    }

    /// Sets whether every write fails with `ENOSPC`.
    pub fn fill(&self, full: bool) {
        let flag = self.full_flag();
        if full {
            fs::write(flag, "").unwrap();
        } else if let Err(error) = fs::remove_file(flag) {
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
        }
    }

    /// Undoes the writes that were not synced; the process must be dead. `keep` is told how many
    /// writes of a file there are, and returns how many of them, the earliest, reached the disk.
    pub fn lose_unsynced(&self, mut keep: impl FnMut(usize) -> usize) {
        for log in logs_below(&self.dir) {
            let file = log.with_extension("");
            let bytes = fs::read(&log).unwrap();
            let records = records(&bytes);
            let lost = &records[keep(records.len()).min(records.len())..];
            if !lost.is_empty() && file.exists() {
                let target = OpenOptions::new().write(true).open(&file).unwrap();
                lost.iter().rev().for_each(|record| record.undo(&target).unwrap());
            }
            fs::remove_file(&log).unwrap();
        }
    }

    fn full_flag(&self) -> PathBuf {
        self.dir.with_extension("full")
    }
}

/// How to undo one write.
struct Record<'a> {
    offset: u64,
    old_size: u64,
    old_bytes: &'a [u8],
}

impl Record<'_> {
    fn undo(&self, file: &File) -> io::Result<()> {
        file.write_all_at(self.old_bytes, self.offset)?;
        file.set_len(self.old_size)
    }
}

/// The records of a log. The last one is incomplete if the process was killed as it wrote it; the
/// write itself was not made then.
fn records(mut log: &[u8]) -> Vec<Record<'_>> {
    let mut records = Vec::new();
    while let Some((head, rest)) = log.split_at_checked(HEAD_BYTES) {
        let number = |index: usize| {
            let bytes = head[index * 8..(index + 1) * 8].try_into().unwrap();
            u64::from_ne_bytes(bytes)
        };
        let length = usize::try_from(number(2)).unwrap();
        let Some((old_bytes, rest)) = rest.split_at_checked(length) else { break };
        records.push(Record { offset: number(0), old_size: number(1), old_bytes });
        log = rest;
    }
    records
}

/// The logs in a directory and those below it.
fn logs_below(dir: &Path) -> Vec<PathBuf> {
    let mut logs = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            logs.extend(logs_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "unsynced") {
            logs.push(path);
        }
    }
    logs
}

/// The library, compiled once for a process of tests.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, library) = LIBRARY.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let (source, library) = (dir.path().join("unsynced_writes.c"), dir.path().join("lib.so"));
        fs::write(&source, SOURCE).unwrap();
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-pthread", "-o"])
            .args([&library, &source])
            .arg("-ldl")
            .status();
        assert!(compiled.is_ok_and(|status| status.success()), "cc cannot compile the library");
        (dir, library)
    });
    library
}
