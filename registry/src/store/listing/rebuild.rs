//! How far the index of lists has been rebuilt.

use abide_conversation::{Tenant, Timestamp};
use serde::{Deserialize, Serialize};

/// A rebuild of the index of lists, which goes through all conversations once, tenant by tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rebuild {
    /// Counts the rebuilds.
    pub number: u64,
    /// The tenant whose conversations are gone through; the first one if it has not begun.
    pub tenant: Option<Tenant>,
    /// Where the next page of that tenant begins.
    pub cursor: Option<String>,
    /// The number of conversations so far.
    pub conversations: u64,
    pub started_at: Timestamp,
    /// When it was complete.
    pub ended_at: Option<Timestamp>,
}

impl Rebuild {
    /// A rebuild that begins now, after this one.
    pub fn after(last: Option<&Self>, now: Timestamp) -> Self {
        Self {
            number: last.map_or(0, |last| last.number) + 1,
            tenant: None,
            cursor: None,
            conversations: 0,
            started_at: now,
            ended_at: None,
        }
    }
}
