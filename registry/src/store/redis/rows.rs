//! The rows of Redis as the store reads them: decoded, remembered by the node that holds them, and in
//! pages.

pub(super) mod decode;
pub(super) mod indexed_row;
pub(super) mod pager;
