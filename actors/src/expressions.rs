//! Compiled expressions of a definition: JSON Schema, CEL conditions, templates.

mod big_stack;
pub mod condition;
pub mod schema;
pub mod template;
