//! Why a node did not start, or had to stop.

/// Why a node did not start, or had to stop; one line for the person who started it.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration, an agent definition or the store's setup is wrong: another start changes
    /// nothing.
    #[error("{0}")]
    Config(String),
    /// An address cannot be listened on.
    #[error("cannot listen on {0}: {1}")]
    Listen(String, std::io::Error),
    /// Something that the node needs is missing or broke; another start may work.
    #[error("{0}")]
    Broken(String),
}

impl StartError {
    pub(crate) fn broken(error: impl std::fmt::Display) -> Self {
        Self::Broken(error.to_string())
    }
}
