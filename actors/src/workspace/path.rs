//! Normalises paths that a model writes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::FileError;

/// Prefixes of our own files: the storage marker, and files that are being written.
const RESERVED_PREFIXES: [&[u8]; 2] = [b".abide-storage", b".abide-write"];

/// Normalises `given` to a path relative to the root, where `.` is the root. This is only about
/// spelling: what the path leads to is checked when it is opened.
pub(crate) fn relative_path(root: &Path, given: &str) -> Result<PathBuf, FileError> {
    if given.contains('\0') {
        return Err(FileError::new("null_byte_in_path"));
    }
    if given.split('/').any(|name| name == "..") {
        return Err(FileError::new("path_traversal_rejected"));
    }
    let given = Path::new(given);
    let inside = if given.is_absolute() {
        given.strip_prefix(root).map_err(|_| FileError::outside())?
    } else {
        given
    };
    let names = || inside.components().filter(|name| *name != Component::CurDir);
    if names().any(|name| is_reserved(name.as_os_str())) {
        return Err(FileError::outside());
    }
    Ok(if names().next().is_none() { PathBuf::from(".") } else { names().collect() })
}

/// Whether tools must act as if this file did not exist.
pub(super) fn is_reserved(name: &OsStr) -> bool {
    RESERVED_PREFIXES.iter().any(|start| name.as_bytes().starts_with(start))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn normalise(given: &str) -> Result<PathBuf, FileError> {
        relative_path(Path::new("/work/space"), given)
    }

    #[test]
    fn one_file_has_one_relative_path() {
        for given in ["a/b", "./a/./b", "a//b/", "/work/space/a/b", "//work/space//a/b"] {
            assert_eq!(normalise(given).unwrap(), Path::new("a/b"), "{given}");
        }
        for root in [".", "./", "/work/space", "/work/space/"] {
            assert_eq!(normalise(root).unwrap(), Path::new("."), "{root}");
        }
        assert_eq!(normalise("..a/b..").unwrap(), Path::new("..a/b.."));
    }

    #[test]
    fn a_path_that_leads_out_is_refused_with_its_own_code() {
        let refused = |code| Err(FileError::new(code));
        assert_eq!(normalise("a\0b"), refused("null_byte_in_path"));
        for given in ["..", "../a", "a/../b", "a/..", "/work/space/../b", "/etc/../etc"] {
            assert_eq!(normalise(given), refused("path_traversal_rejected"), "{given}");
        }
        for given in ["/", "/etc/passwd", "/proc/self/environ", "/work/spaces/a", "/work"] {
            assert_eq!(normalise(given), refused("path_outside_roots"), "{given}");
        }
        for given in [".abide-storage", "a/.abide-storage", ".abide-write_x", ".abide-storage/a"] {
            assert_eq!(normalise(given), refused("path_outside_roots"), "{given}");
        }
    }
}
