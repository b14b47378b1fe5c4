//! How long conversations are kept after their last activity.

use std::time::Duration;

use serde_json::Value;

use super::document::ConversationRetentionDocument;
use super::duration;
use super::reader::Mistakes;

/// The shortest retention: whoever reads the last answer should find the conversation there.
const MIN_RETENTION: Duration = Duration::from_secs(60);
/// The longest retention: ten years.
const MAX_RETENTION: Duration = Duration::from_secs(3_652 * 24 * 60 * 60);

/// Reads how long conversations are kept that nothing happens in: one minute to 3652 days.
pub fn idle_retention(text: &str) -> Result<Duration, String> {
    let retention = duration::parse_any(text)?;
    if (MIN_RETENTION..=MAX_RETENTION).contains(&retention) {
        Ok(retention)
    } else {
        Err("must be from \"1m\" to \"3652d\"".to_owned())
    }
}

/// The retention that a stored definition has; `None`: its conversations are kept until somebody
/// deletes them. Cheaper than parsing the definition.
pub fn idle_retention_of(definition: &Value) -> Option<Duration> {
    definition["retention"]["idle"].as_str().and_then(|text| idle_retention(text).ok())
}

/// Reads `retention`.
pub(super) fn retention(
    mistakes: &mut Mistakes,
    section: Option<ConversationRetentionDocument>,
) -> Option<Duration> {
    let text = section?.idle?.0;
    idle_retention(&text).map_err(|message| mistakes.add("retention.idle", message)).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_retention_is_a_minute_to_ten_years() {
        let days = |days: u64| Ok(Duration::from_secs(days * 86_400));
        assert_eq!(idle_retention("90d"), days(90));
        assert_eq!(idle_retention("3652d"), days(3_652));
        assert_eq!(idle_retention("1m"), Ok(MIN_RETENTION));
        for wrong in ["", "0s", "59s", "3653d", "-90d", "90", "1y", "90 parsecs"] {
            assert!(idle_retention(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_retention_of_a_stored_definition_is_found_without_parsing_it() {
        let found = idle_retention_of(&json!({"retention": {"idle": "1h"}}));
        assert_eq!(found, Some(Duration::from_secs(3_600)));
        for none in [json!({}), json!({"retention": null}), json!({"retention": {"idle": 7}})] {
            assert_eq!(idle_retention_of(&none), None, "{none}");
        }
    }
}
