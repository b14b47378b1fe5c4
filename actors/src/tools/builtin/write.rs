//! `write`: writes a file.
