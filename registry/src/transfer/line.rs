//! The lines of an export. A line without `abide` is an event of the journal, as it is stored.

use abide_conversation::{AgentName, BlobId, ConversationId, Revision, Seq, Tenant};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The format that this version writes, and the newest that it reads.
pub(super) const EXPORT_FORMAT: u32 = 1;
/// The largest blob, as everywhere.
pub(super) const MAX_BLOB_BYTES: usize = 20 << 20;
/// The longest line: the largest blob in base64, with its name and type.
pub const MAX_LINE_BYTES: usize = MAX_BLOB_BYTES.div_ceil(3) * 4 + 4_096;
/// The longest line of anything but a blob.
pub(super) const MAX_EVENT_BYTES: usize = 8 << 20;
/// How deep the values of a line may be. Input may have 128 levels, and is a few levels deep in its
/// event.
pub(super) const MAX_DEPTH: usize = 144;

/// A line that is no event.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "abide", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Line {
    /// A conversation begins.
    Conversation {
        format: u32,
        /// The tenant; absent where the file is one tenant's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tenant: Option<Tenant>,
        id: ConversationId,
        agent: AgentName,
        last_seq: Seq,
    },
    /// A definition that the conversation needs; the first one is the newest of its agent. Outside of
    /// conversations, the newest definition of an agent.
    Definition {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tenant: Option<Tenant>,
        agent: AgentName,
        revision: Revision,
        definition: Value,
    },
    Blob {
        id: BlobId,
        media_type: String,
        data: String,
    },
    /// The conversation is whole.
    End {
        last_seq: Seq,
    },
    /// The whole store was written: this many conversations, each with its end.
    StoreEnd {
        conversations: u64,
        /// How many more could not be read where they were written.
        #[serde(default, skip_serializing_if = "is_zero")]
        missing: u64,
        /// The first of those.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        missing_ids: Vec<String>,
    },
}

// By serde's convention a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What tells a line from others, whatever else it has.
#[derive(Debug, Deserialize)]
pub(super) struct Marker {
    pub(super) abide: Option<String>,
    pub(super) format: Option<u64>,
}

/// How deep the lists and objects of a JSON text are.
pub(super) fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_string, mut is_escaped) = (false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_strings_are_no_depth() {
        assert_eq!(depth(br#"{"a":[1,{"b":"[[[\"[["}],"c":{}}"#), 3);
        assert_eq!(depth(b"1"), 0);
    }
}
