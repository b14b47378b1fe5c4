//! Where conversations live and how to reach them.

pub mod store;
