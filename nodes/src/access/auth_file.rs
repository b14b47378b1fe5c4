//! Reads the file of `--auth`, and notices when it or a file that it names has changed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use super::document::{AuthDocument, Mistake, Mistakes};
use crate::start_error::StartError;

/// The path of the file.
pub(super) struct AuthFile(PathBuf);

/// What the files had when they were read; `None` for one that could not be read.
#[derive(Clone, Default)]
pub(super) struct Contents(Vec<(PathBuf, Option<Vec<u8>>)>);

impl Contents {
    /// Whether every file still has what it had.
    pub(super) fn are_current(&self) -> bool {
        self.0.iter().all(|(path, content)| fs::read(path).ok() == *content)
    }

    /// The first 16 hex digits of the SHA-256 of all that was read.
    pub(super) fn fingerprint(&self) -> String {
        let mut hash = Sha256::new();
        for (_, content) in &self.0 {
            // Each file ends in its own digest, so that no two lists of files are the same text.
            hash.update(Sha256::digest(content.as_deref().unwrap_or_default()));
        }
        HEXLOWER.encode(&hash.finalize()[..8])
    }

    /// The files that were read, or could not be.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|(path, _)| path.as_path())
    }

    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        let read = fs::read(path);
        self.0.push((path.to_owned(), read.as_ref().ok().cloned()));
        read
    }
}

/// A file without a mistake.
pub(crate) struct CheckedAuthFile {
    pub(super) file: AuthFile,
    pub(super) document: AuthDocument,
    pub(super) contents: Contents,
}

impl CheckedAuthFile {
    /// Reads and checks the file before anything is written.
    pub(crate) fn read(path: PathBuf) -> Result<Self, StartError> {
        let file = AuthFile::new(path);
        match file.load() {
            Ok((document, contents)) => Ok(Self { file, document, contents }),
            Err((mistakes, _)) => {
                let reason = format!("--auth {}: {mistakes}", file.0.display());
                Err(StartError::Config(reason))
            }
        }
    }
}

impl AuthFile {
    fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Reads and parses the file and those that it names; their paths are relative to its directory.
    pub(super) fn load(&self) -> Result<(AuthDocument, Contents), (Mistakes, Contents)> {
        let mut contents = Contents::default();
        let text = contents.read(&self.0).and_then(|bytes| {
            String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
        });
        let text = match text {
            Ok(text) => text,
            Err(error) => {
                let message = format!("cannot be read: {error}");
                let mistake = Mistake { path: String::new(), message };
                return Err((Mistakes(vec![mistake]), contents));
            }
        };
        let directory = self.0.parent().unwrap_or(Path::new("."));
        let parsed = AuthDocument::parse(&text, &mut |path| contents.read(&directory.join(path)));
        match parsed {
            Ok(document) => Ok((document, contents)),
            Err(mistakes) => Err((mistakes, contents)),
        }
    }
}
