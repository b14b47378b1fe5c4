//! Searches the files of a workspace for matching lines.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, PoisonError};

use globset::GlobSet;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkFinish, SinkMatch};

use crate::tools::builtin::first_matches::FirstMatches;
use crate::workspace::{CancelFlag, FileError, WalkEntry, Workspace, truncate, walk};

/// A line is shown up to this length.
const MAX_LINE_BYTES: usize = 500;
/// The buffer of a thread, and with it the longest line that is searched.
const MAX_BUFFER_BYTES: usize = 256 * 1024;
/// Larger files are skipped: they are data and take long.
const MAX_FILE_BYTES: u64 = 64_000_000;

pub(super) struct Search<'a> {
    pub(super) matcher: RegexMatcher,
    pub(super) paths: Option<GlobSet>,
    pub(super) max_matches: usize,
    pub(super) cancelled: &'a CancelFlag,
}

impl Search<'_> {
    pub(super) fn run(&self, workspace: &Workspace) -> Result<FirstMatches, FileError> {
        let matches = Mutex::new(FirstMatches::new(self.max_matches));
        let lock = || matches.lock().unwrap_or_else(PoisonError::into_inner);
        walk(workspace.dir(), self.cancelled, || {
            let mut searcher = searcher();
            let matcher = self.matcher.clone();
            let lock = &lock;
            move |found: &WalkEntry<'_>| {
                let path = found.path.as_os_str().as_bytes();
                if !self.is_selected(found) || !lock().has_room(path) {
                    return;
                }
                let Some(reader) = self.reader(found) else { return };
                let mut lines = MatchingLines { max_matches: self.max_matches, lines: Vec::new() };
                // On an error (a line is too long, or the file has gone) the matches before it
                // count.
                let _ = searcher.search_reader(&matcher, reader, &mut lines);
                if lines.lines.is_empty() {
                    return;
                }
                let mut matches = lock();
                for (number, line) in lines.lines {
                    let text = format!("{}:{number}:{line}", found.path.display());
                    matches.add(path, number, text);
                }
            }
        })?;
        Ok(matches.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_selected(&self, found: &WalkEntry<'_>) -> bool {
        !found.is_link && self.paths.as_ref().is_none_or(|paths| paths.is_match(found.path))
    }

    /// Opens a regular file that is not too large, checked on the open handle.
    fn reader(&self, found: &WalkEntry<'_>) -> Option<CancellableReader<'_>> {
        let file = found.open().ok()?;
        let metadata = file.metadata().ok()?;
        let is_searched = metadata.is_file() && (1..=MAX_FILE_BYTES).contains(&metadata.len());
        is_searched.then_some(CancellableReader {
            file,
            left: metadata.len(),
            cancelled: self.cancelled,
        })
    }
}

fn searcher() -> Searcher {
    SearcherBuilder::new()
        .line_number(true)
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(MAX_BUFFER_BYTES))
        .build()
}

/// Reads no more than the file's length at the start, and fails once the search is cancelled.
struct CancellableReader<'a> {
    file: File,
    left: u64,
    cancelled: &'a CancelFlag,
}

impl Read for CancellableReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancelled.is_set() {
            return Err(io::Error::other("cancelled"));
        }
        let read = (&mut self.file).take(self.left).read(buffer)?;
        self.left -= read as u64;
        Ok(read)
    }
}

/// Collects the first matching lines of a file: one more than will be shown, to know whether there
/// are more.
struct MatchingLines {
    max_matches: usize,
    lines: Vec<(u64, String)>,
}

impl Sink for MatchingLines {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        let line = found.bytes();
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text = String::from_utf8_lossy(&line[..line.len().min(MAX_LINE_BYTES + 1)]);
        let text = truncate(text.into_owned(), MAX_LINE_BYTES);
        self.lines.push((found.line_number().unwrap_or_default(), text));
        Ok(self.lines.len() <= self.max_matches)
    }

    fn finish(&mut self, _: &Searcher, end: &SinkFinish) -> io::Result<()> {
        if end.binary_byte_offset().is_some() {
            self.lines.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_first_length_and_not_after_a_cancellation() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[b'x'; 100]).unwrap();
        let cancelled = CancelFlag::default();
        std::io::Seek::rewind(&mut file).unwrap();
        let mut reader = CancellableReader { file, left: 90, cancelled: &cancelled };
        let mut buffer = [0; 60];
        assert_eq!(reader.read(&mut buffer).unwrap(), 60);
        assert_eq!(reader.read(&mut buffer).unwrap(), 30);
        assert_eq!(reader.read(&mut buffer).unwrap(), 0);
        cancelled.set();
        reader.read(&mut buffer).unwrap_err();
    }
}
