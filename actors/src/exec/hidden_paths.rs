//! What commands never read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf, absolute};
use std::sync::{Arc, PoisonError, RwLock};

/// The files and directories that programs in the sandbox never read: the node's store, and its
/// secrets. A program that read the key of the conversation tokens could approve any call. Clones share
/// the paths.
#[derive(Clone, Debug, Default)]
pub struct HiddenPaths(Arc<RwLock<BTreeSet<PathBuf>>>);

impl HiddenPaths {
    /// Hides these too, from the programs that start from now on. A path that names nothing yet is
    /// hidden once it does.
    pub fn add<P: AsRef<Path>>(&self, paths: impl IntoIterator<Item = P>) {
        // A program has a working directory of its own.
        let paths = paths.into_iter().filter_map(|path| absolute(path).ok());
        self.0.write().unwrap_or_else(PoisonError::into_inner).extend(paths);
    }

    pub(super) fn get(&self) -> Vec<PathBuf> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
