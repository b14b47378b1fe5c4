//! `glob`: finds files by a pattern.
