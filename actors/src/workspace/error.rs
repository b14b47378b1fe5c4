//! Why a tool did not do what it was asked with a file.

use std::io::{Error, ErrorKind};

use rustix::io::Errno;

/// A code of the tools' table of errors, and what there is to say about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FileError {
    pub(crate) code: &'static str,
    pub(crate) detail: String,
}

impl FileError {
    pub(crate) fn new(code: &'static str) -> Self {
        Self::with(code, "")
    }

    pub(crate) fn with(code: &'static str, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }

    pub(super) fn outside() -> Self {
        Self::new("path_outside_roots")
    }

    pub(super) fn not_a_file() -> Self {
        Self::new("not_a_regular_file")
    }
}

impl From<Error> for FileError {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::new("enoent"),
            // The system's own refusals have a number; that of a path that leads out has none.
            ErrorKind::PermissionDenied if error.raw_os_error().is_none() => Self::outside(),
            kind => Self::with("io_error", kind.to_string()),
        }
    }
}

impl From<Errno> for FileError {
    fn from(error: Errno) -> Self {
        Error::from(error).into()
    }
}
