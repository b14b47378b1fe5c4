//! What the holder of a conversation knows of its fields that indexes go by.

use abide_actors::journal::{Claim, StoreError};
use abide_conversation::{ConversationId, Scoped, Seq};

use super::super::Redis;
use super::decode;

/// The fields of a conversation that indexes go by, as they are stored.
///
/// The holder of the claim alone writes them, but for the entry in lists, which a rebuild may write
/// anew: the script that appends checks that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::store::redis) struct IndexedRow {
    /// The end of the journal after which they are so.
    pub(in crate::store::redis) seq: Seq,
    /// The alarm, or nothing.
    pub(in crate::store::redis) alarm: String,
    pub(in crate::store::redis) active: bool,
    /// The entry in lists, or nothing.
    pub(in crate::store::redis) listed: String,
    /// The entries in queues, a line each.
    pub(in crate::store::redis) queued: String,
}

/// The alarm, the active mark, the entry in lists and those in queues, each as it is stored; nothing
/// stands for none.
pub(in crate::store::redis) type IndexedFields = (String, String, String, String);

/// The entry of a row that is not known. No entry is like it.
const UNKNOWN: &str = "?";

impl IndexedRow {
    pub(in crate::store::redis) fn new(
        seq: u64,
        (alarm, active, listed, queued): IndexedFields,
    ) -> Self {
        Self { seq: Seq::new(seq), alarm, active: active == "1", listed, queued }
    }

    /// A row of which nothing is known. The script that appends writes nothing by it, and says why.
    fn unknown() -> Self {
        Self { listed: UNKNOWN.to_owned(), ..Self::default() }
    }

    pub(in crate::store::redis) fn is_unknown(&self) -> bool {
        self.listed == UNKNOWN
    }
}

impl Redis {
    /// The fields under this claim after this `seq`. Reads them only if this process has neither
    /// claimed the conversation nor committed since. They are unknown if what was read is of another
    /// `seq`: another holder has written, or the server is behind.
    pub(in crate::store::redis) async fn indexed_row(
        &self,
        id: &Scoped<ConversationId>,
        held: &Claim,
        before: Seq,
    ) -> Result<IndexedRow, StoreError> {
        let known = self.rows.take(id, held.epoch).filter(|row| row.seq == before);
        if let Some(known) = known {
            return Ok(known);
        }
        let (tag, command) = decode::query_indexed(id);
        let row = decode::indexed(id, self.query(tag, command).await?)?;
        Ok(row.filter(|row| row.seq == before).unwrap_or_else(IndexedRow::unknown))
    }
}
