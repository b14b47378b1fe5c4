//! Keeps what the model reads of a long conversation within its budget.

pub(crate) mod limits;
mod policy;
pub(crate) mod reduce;
mod retention;

pub use policy::SummaryPolicy;
pub use retention::{Retention, RetentionMode};
