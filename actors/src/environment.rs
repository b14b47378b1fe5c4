//! Environment variables: the values of the secrets that a definition names.

use std::sync::Arc;

/// Reads an environment variable.
pub type Env = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;
