//! `grep`: searches files for a regular expression.
