//! The suite against one server.

use super::super::super::conformance::conformance;
use super::servers::single;

conformance!(single().await);
