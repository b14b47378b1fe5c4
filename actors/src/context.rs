//! Keeps what the model reads of a long conversation within its budget.

pub(crate) mod limits;
pub(crate) mod reduce;
