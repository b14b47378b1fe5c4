//! The key `audit`: for how long calls of the model are kept for operators.

use std::time::Duration;

use super::document::{AuditDocument, PositiveDuration};
use super::reader::Mistakes;
use crate::audit::MAX_TTL;

/// How long audit entries are kept; `None`: nothing is audited.
pub(super) fn ttl(mistakes: &mut Mistakes, document: Option<AuditDocument>) -> Option<Duration> {
    let Some(PositiveDuration(ttl)) = document?.ttl else {
        mistakes.add_missing("audit.ttl");
        return None;
    };
    if ttl > MAX_TTL {
        mistakes.add("audit.ttl", "must be at most 30 days (720h)");
    }
    Some(ttl)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::agent::join_errors;
    use crate::definition::Definition;
    use crate::tools::Extensions;
    use crate::tools::fixtures::source;

    fn parsed(audit: Value) -> Result<Option<Duration>, String> {
        let mut source = source(json!([]));
        source["audit"] = audit;
        match Definition::parse(source, &Extensions::new()) {
            Ok(parsed) => Ok(parsed.definition.audit),
            Err(mistakes) => Err(join_errors(&mistakes)),
        }
    }

    #[test]
    fn nothing_is_audited_unless_it_is_said_for_how_long() {
        assert_eq!(parsed(Value::Null), Ok(None));
        assert_eq!(parsed(json!({"ttl": "720h"})), Ok(Some(MAX_TTL)));
        for (audit, wrong) in [
            (json!(true), "audit: must be an object"),
            (json!({}), "audit.ttl: is missing"),
            (json!({"ttl": "721h"}), "audit.ttl: must be at most 30 days (720h)"),
            (json!({"ttl": "0s"}), "audit.ttl: must be longer than nothing"),
            (json!({"ttl": "1h", "level": 1}), "audit.level: is not a known key"),
        ] {
            let said = parsed(audit).unwrap_err();
            assert!(said.contains(wrong), "{said}");
        }
    }
}
