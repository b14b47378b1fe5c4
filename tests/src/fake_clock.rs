//! A clock of a node that is wrong, and that jumps.

use std::path::{Path, PathBuf};

/// Where Debian's package `faketime` puts its library.
const LIBRARIES: [&str; 2] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
];

/// The library, if the package is installed.
pub fn library() -> Option<&'static str> {
    LIBRARIES.into_iter().find(|path| Path::new(path).exists())
}

/// The clock of one node, which reads how wrong it is from a file.
pub struct FakeClock {
    file: PathBuf,
}

impl FakeClock {
    /// The clock that is set in this directory, which must exist.
    pub fn of(dir: &Path) -> Self {
        Self { file: dir.join("clock") }
    }

    /// The environment of the node; `None` without the library. The clock is right at first.
    pub fn environment(&self) -> Option<Vec<(&'static str, String)>> {
        self.set("+0");
        Some(vec![
            ("LD_PRELOAD", library()?.to_owned()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
            // The file is read again after a second.
            ("FAKETIME_CACHE_DURATION", "1".to_owned()),
            // Durations are measured with the monotonic clock, which is not faked.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ])
    }

    /// Sets the difference from the right time, such as `+1h`.
    pub fn set(&self, offset: &str) {
        std::fs::write(&self.file, format!("{offset}\n")).unwrap();
    }
}
