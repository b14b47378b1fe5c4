//! How long a tool's results stay in the prompt once space is needed.

/// The `retention` of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub keep: RetentionMode,
    /// Its results never expire.
    pub never_evict: bool,
}

/// Which results are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetentionMode {
    /// Results from the last N model steps.
    Age(u32),
    /// The tool's N newest results.
    Count(u32),
}

impl Default for Retention {
    /// The retention of a tool that declares none: a result that is six steps old has been read by
    /// now.
    fn default() -> Self {
        Self { keep: RetentionMode::Age(6), never_evict: false }
    }
}
