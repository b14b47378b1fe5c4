//! The instructions that nodes execute, counted by valgrind. A busy machine makes everything slower
//! and processor time longer, but no program's instructions more.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::ground::Ground;
use super::{Wrong, wrong};

/// What a file with a count ends with.
const EXTENSION: &str = "callgrind";

/// A node's program under valgrind, which does not count yet.
pub(super) fn under(program: &Path, dir: &Path, name: &str) -> Command {
    let mut command = Command::new("valgrind");
    let file = dir.join(name).with_extension(EXTENSION);
    command
        .args(["--tool=callgrind", "--instr-atstart=no"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program)
        // It runs one thread at a time; several would spend them on looking for work.
        .env("TOKIO_WORKER_THREADS", "1")
        .stderr(Stdio::null());
    command
}

/// Counts from here on, until the nodes end.
pub(super) async fn begin(ground: &Ground) -> Result<(), Wrong> {
    for node in &ground.nodes {
        let pid = node.pid()?.to_string();
        let told = Command::new("callgrind_control").args(["-i", "on", &pid]).output().await;
        let told = told.map_err(|error| wrong("callgrind_control", error))?;
        if !told.status.success() {
            let said = String::from_utf8_lossy(&told.stdout).into_owned();
            return Err(wrong("callgrind_control", said));
        }
    }
    Ok(())
}

/// What the nodes that ran here have executed.
pub(super) fn counted(dir: &Path) -> Result<u64, Wrong> {
    let failed = |error: std::io::Error| wrong(&dir.display().to_string(), error);
    let mut all = 0;
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path: PathBuf = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|it| it == EXTENSION) {
            let text = std::fs::read_to_string(&path).map_err(failed)?;
            let none = || Wrong(format!("{}: has no summary", path.display()));
            all += summary(&text).ok_or_else(none)?;
        }
    }
    Ok(all)
}

fn summary(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("summary:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::summary;

    #[test]
    fn the_sum_of_all_is_read() {
        assert_eq!(summary("events: Ir\nsummary: 42\n\nfn=(1)\n1 7\ntotals: 43\n"), Some(42));
        assert_eq!(summary("events: Ir\n"), None);
    }
}
