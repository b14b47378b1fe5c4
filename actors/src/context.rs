//! What the model reads of a long conversation, and how it is kept within its budget.

pub(crate) mod limits;
pub(crate) mod reduce;
pub(crate) mod retention;
