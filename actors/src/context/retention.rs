//! How long a tool's results stay in the prompt once room is needed.

/// The `retention` of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub keep: RetentionMode,
    /// Its results are never shown as expired.
    pub never_evict: bool,
}

/// Which results are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetentionMode {
    /// Those that came within the last so many model steps.
    Age(u32),
    /// The tool's newest so many.
    Count(u32),
}

impl Default for Retention {
    /// Of a tool that says nothing: what it returned six steps ago has been read by now.
    fn default() -> Self {
        Self { keep: RetentionMode::Age(6), never_evict: false }
    }
}
