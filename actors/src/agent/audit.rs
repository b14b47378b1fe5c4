//! The key `audit`: for how long calls of the model are kept for operators.

use std::time::Duration;

use super::field_reader::Fields;
use crate::audit::MAX_TTL;

/// Reads `audit`; `None`: nothing is kept.
pub(super) fn ttl(fields: &mut Fields) -> Option<Duration> {
    let mut nested = fields.nested("audit")?;
    if !nested.says("ttl") {
        nested.wrong("ttl", "is missing");
    }
    let ttl = nested.duration("ttl");
    if ttl.is_some_and(|ttl| ttl > MAX_TTL) {
        nested.wrong("ttl", "must be at most 30 days (720h)");
    }
    fields.absorb(nested);
    ttl
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::agent::{Definition, joined};
    use crate::tools::Extensions;
    use crate::tools::fixtures::source;

    fn parsed(audit: Value) -> Result<Option<Duration>, String> {
        let mut source = source(json!([]));
        source["audit"] = audit;
        match Definition::parse(source, &Extensions::new()) {
            Ok(parsed) => Ok(parsed.definition.audit),
            Err(mistakes) => Err(joined(&mistakes)),
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
