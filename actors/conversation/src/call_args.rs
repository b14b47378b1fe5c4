//! The arguments of a call, which its events, its state and its lists have in common.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The arguments of a call. The events of a call, the states after them, the inbox and the run all have
/// them; those that are made one from the other share one value. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallArgs(Arc<Value>);

impl CallArgs {
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_written_as_their_value_and_shared_ones_are_copied_when_taken() {
        let args = json!({"b": 1.0, "a": [null, "x"]});
        let one: CallArgs = serde_json::from_value(args.clone()).unwrap();
        let other = one.clone();
        assert!(std::ptr::eq(&*one, &*other));
        assert_eq!(serde_json::to_string(&one).unwrap(), args.to_string());
        assert_eq!((one.into_value(), other), (args.clone(), args.into()));
    }
}
