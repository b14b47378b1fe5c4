//! `todo_write`: keeps the list of what is to be done.
