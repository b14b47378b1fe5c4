//! Searches one file after another for lines that match.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, PoisonError};

use globset::GlobSet;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkFinish, SinkMatch};

use crate::tools::builtin::first_matches::Matches;
use crate::workspace::{Cancelled, FileError, Found, Workspace, truncated, walk};

/// What is shown of a line.
const LONGEST_LINE: usize = 500;
/// What a thread holds of a file: as much as the longest line that is searched.
const LARGEST_BUFFER: usize = 256 * 1024;
/// Larger files are data, and take long.
const LARGEST_FILE: u64 = 64_000_000;

pub(super) struct Search<'a> {
    pub(super) matcher: RegexMatcher,
    pub(super) paths: Option<GlobSet>,
    pub(super) most: usize,
    pub(super) cancelled: &'a Cancelled,
}

impl Search<'_> {
    pub(super) fn run(&self, workspace: &Workspace) -> Result<Matches, FileError> {
        let matches = Mutex::new(Matches::new(self.most));
        let lock = || matches.lock().unwrap_or_else(PoisonError::into_inner);
        walk(workspace.dir(), self.cancelled, || {
            let mut searcher = searcher();
            let matcher = self.matcher.clone();
            let lock = &lock;
            move |found: &Found<'_>| {
                let path = found.path.as_os_str().as_bytes();
                if !self.is_meant(found) || !lock().has_room(path) {
                    return;
                }
                let Some(reader) = self.reader(found) else { return };
                let mut lines = Lines { most: self.most, found: Vec::new() };
                // What was found before a line was too long, or the file went away, counts.
                let _ = searcher.search_reader(&matcher, reader, &mut lines);
                if lines.found.is_empty() {
                    return;
                }
                let mut matches = lock();
                for (number, line) in lines.found {
                    let text = format!("{}:{number}:{line}", found.path.display());
                    matches.add(path, number, text);
                }
            }
        })?;
        Ok(matches.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_meant(&self, found: &Found<'_>) -> bool {
        !found.is_link && self.paths.as_ref().is_none_or(|paths| paths.is_match(found.path))
    }

    /// Of a regular file that is not too large; judged by the handle.
    fn reader(&self, found: &Found<'_>) -> Option<Cancellable<'_>> {
        let file = found.open().ok()?;
        let metadata = file.metadata().ok()?;
        let is_searched = metadata.is_file() && (1..=LARGEST_FILE).contains(&metadata.len());
        is_searched.then_some(Cancellable { file, left: metadata.len(), cancelled: self.cancelled })
    }
}

fn searcher() -> Searcher {
    SearcherBuilder::new()
        .line_number(true)
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(LARGEST_BUFFER))
        .build()
}

/// Reads no more than was there at first, and fails once nobody waits.
struct Cancellable<'a> {
    file: File,
    left: u64,
    cancelled: &'a Cancelled,
}

impl Read for Cancellable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancelled.is_set() {
            return Err(io::Error::other("cancelled"));
        }
        let read = (&mut self.file).take(self.left).read(buffer)?;
        self.left -= read as u64;
        Ok(read)
    }
}

/// The first lines of a file that match: one more than are wanted, to know that there is one.
struct Lines {
    most: usize,
    found: Vec<(u64, String)>,
}

impl Sink for Lines {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        let line = found.bytes();
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text = String::from_utf8_lossy(&line[..line.len().min(LONGEST_LINE + 1)]);
        let text = truncated(text.into_owned(), LONGEST_LINE);
        self.found.push((found.line_number().unwrap_or_default(), text));
        Ok(self.found.len() <= self.most)
    }

    fn finish(&mut self, _: &Searcher, end: &SinkFinish) -> io::Result<()> {
        if end.binary_byte_offset().is_some() {
            self.found.clear();
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
    fn a_file_is_read_as_it_was_and_no_more_once_nobody_waits() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[b'x'; 100]).unwrap();
        let cancelled = Cancelled::default();
        std::io::Seek::rewind(&mut file).unwrap();
        let mut reader = Cancellable { file, left: 90, cancelled: &cancelled };
        let mut buffer = [0; 60];
        assert_eq!(reader.read(&mut buffer).unwrap(), 60);
        assert_eq!(reader.read(&mut buffer).unwrap(), 30);
        assert_eq!(reader.read(&mut buffer).unwrap(), 0);
        cancelled.set();
        reader.read(&mut buffer).unwrap_err();
    }
}
