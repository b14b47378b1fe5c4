//! How far the indexes have been rebuilt: that of lists, and the names of blobs.

use abide_conversation::{Tenant, Timestamp};
use serde::{Deserialize, Serialize};

/// A rebuild of the indexes, which goes through all conversations once, tenant by tenant.
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
    /// Whether it also reads the journals for the blobs that they name, and could read all so far.
    /// Absent in what a version stored that did not: the text of what is stored is compared, and stays
    /// as it was.
    #[serde(default, skip_serializing_if = "is_false")]
    pub names_blobs: bool,
    /// Whether this rebuild, or one before it, has found all names of blobs. Only then is a blob
    /// removed that nothing names.
    #[serde(default, skip_serializing_if = "is_false")]
    pub has_blob_names: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
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
            names_blobs: true,
            has_blob_names: last.is_some_and(|last| last.has_blob_names),
        }
    }

    /// The rebuild as it ends now.
    #[must_use]
    pub fn ended(self, now: Timestamp) -> Self {
        let has_blob_names = self.has_blob_names || self.names_blobs;
        Self { ended_at: Some(now), has_blob_names, ..self }
    }
}
