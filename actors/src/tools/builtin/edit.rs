//! `edit`: replaces an exact text in a file.
