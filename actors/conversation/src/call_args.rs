//! The arguments of a call, which its events, its state and its lists have in common.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The arguments of a call. A call of one turn is named by five events, each state after them, the
/// inbox and the run, and they all share these. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallArgs(Arc<Value>);

impl CallArgs {
    /// The arguments to change, which are copied if others have them, too.
    pub fn to_mut(&mut self) -> &mut Value {
        Arc::make_mut(&mut self.0)
    }

    /// The arguments alone, which are copied if others have them, too.
    pub fn into_value(self) -> Value {
        Arc::unwrap_or_clone(self.0)
    }
}

impl From<Value> for CallArgs {
    fn from(args: Value) -> Self {
        Self(Arc::new(args))
    }
}

impl Deref for CallArgs {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

impl fmt::Display for CallArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq<Value> for CallArgs {
    fn eq(&self, other: &Value) -> bool {
        *self.0 == *other
    }
}
