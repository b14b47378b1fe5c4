//! Errors of the file tools.

use std::io::{Error, ErrorKind};

use rustix::io::Errno;

/// An error code of the file tools with a detail. See `reference/builtin-tools.md`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FileError {
    pub(crate) code: &'static str,
    pub(crate) detail: String,
}

impl FileError {
    pub(crate) fn new(code: &'static str) -> Self {
        Self::with_detail(code, "")
    }

    pub(crate) fn with_detail(code: &'static str, detail: impl Into<String>) -> Self {
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
            // An error of the operating system has a number; the refusal of a path that leads out
            // has none.
            ErrorKind::PermissionDenied if error.raw_os_error().is_none() => Self::outside(),
            kind => Self::with_detail("io_error", kind.to_string()),
        }
    }
}

impl From<Errno> for FileError {
    fn from(error: Errno) -> Self {
        Error::from(error).into()
    }
}
