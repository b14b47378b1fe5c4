//! What a command to Redis is made of: its keys, the call of a script, and the error that a failure of
//! it results in.

pub(super) mod error;
pub(super) mod keys;
pub(super) mod script;
