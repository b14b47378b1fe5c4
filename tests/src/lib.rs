//! What the tests and the load program share.

pub mod load;
