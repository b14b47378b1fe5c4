//! The directory that a conversation works in, as a capability.
