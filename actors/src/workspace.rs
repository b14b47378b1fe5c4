//! The directory that a conversation works in, as a capability.

/// Which directory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Site {
    pub root: Option<std::path::PathBuf>,
    pub shared: bool,
    pub owner: String,
}
