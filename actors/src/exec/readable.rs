//! Which files a program in the sandbox reads: all but those below some directories.
//!
//! Landlock permits and never forbids, so everything beside the way to such a directory is permitted
//! one by one. What is created beside that way later is not readable.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The files and directories that are, with all below them, everything but the hidden directories, and
/// but what lies in a directory above them that cannot be listed.
pub(super) fn all_but(hidden: &[PathBuf]) -> Vec<PathBuf> {
    // What does not exist needs no hiding.
    let hidden: BTreeSet<PathBuf> =
        hidden.iter().filter_map(|directory| directory.canonicalize().ok()).collect();
    let is_visible = |path: &&Path| !path.ancestors().any(|above| hidden.contains(above));
    let above = hidden.iter().flat_map(|directory| directory.ancestors().skip(1));
    let above: BTreeSet<&Path> = above.filter(is_visible).collect();
    let entries = above.iter().filter_map(|directory| fs::read_dir(directory).ok()).flatten();
    // A link may lead into a hidden directory, and what it leads to elsewhere is readable anyway.
    let files =
        entries.flatten().filter(|entry| entry.file_type().is_ok_and(|it| !it.is_symlink()));
    let paths = files.map(|entry| entry.path());
    paths.filter(|path| !hidden.contains(path) && !above.contains(path.as_path())).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn everything_beside_the_way_to_a_hidden_directory_is_readable() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        for directory in ["a/store/inner", "a/other", "b"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        std::os::unix::fs::symlink(root.join("a"), root.join("link")).unwrap();
        let readable = |hidden: &[&str]| {
            let hidden: Vec<PathBuf> = hidden.iter().map(|name| root.join(name)).collect();
            let mut paths = all_but(&hidden);
            paths.retain(|path| path.starts_with(&root));
            paths.sort();
            paths
        };
        let store = [root.join("a/other"), root.join("b")];
        assert_eq!(readable(&["a/store"]), store);
        assert_eq!(readable(&["link/store", "a/store/inner", "none"]), store);
        assert_eq!(readable(&[]), Vec::<PathBuf>::new());
    }
}
