//! `read`: reads a file with its line numbers.
