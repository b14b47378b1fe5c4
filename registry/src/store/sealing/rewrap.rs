//! A pass over all data keys, after which the first key of the key file wraps them, and over what is
//! not sealed yet although it belongs to no conversation.

use std::collections::BTreeSet;

use abide_actors::journal::StoreError;
use serde::Serialize;

use super::{NotedKeys, STORE_KEY, Sealer, key_ring};

/// What a pass has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rewrapped {
    /// How many conversations it went through.
    pub conversations: u64,
    /// How many data keys it wrapped anew.
    pub rewrapped: u64,
    /// How many definitions of agents, webhooks and entries of the operators' audit it sealed, which
    /// were plain.
    pub sealed: u64,
    /// How many conversations have a data key that no key of the file unwraps.
    pub unreadable: u64,
    /// The keys that nothing needs any more.
    pub retired: Vec<String>,
}

/// A pass that goes on.
#[derive(Debug, Default)]
pub(in super::super) struct RewrapPass {
    pub(in super::super) done: Rewrapped,
    /// The keys that data keys need which could not be unwrapped.
    needed: BTreeSet<String>,
}

impl RewrapPass {
    /// Looks at the wrapped key of a conversation, empty for none. Returns the one to put in its place.
    pub(in super::super) fn look_at(
        &mut self,
        sealer: &Sealer,
        owner: &str,
        wrapped: &[u8],
    ) -> Result<Option<Vec<u8>>, StoreError> {
        self.done.conversations += 1;
        if wrapped.is_empty() {
            return Ok(None);
        }
        let next = sealer.rewrapped(owner, wrapped);
        if let Err(StoreError::Unreadable(reason)) = &next {
            tracing::warn!(reason, "data key not wrapped anew");
            self.done.unreadable += 1;
            self.needed.extend(key_ring::key_of(wrapped));
            return Ok(None);
        }
        next
    }

    /// The keys that the store has noted and that nothing needs any more.
    pub(in super::super) fn unneeded(&self, sealer: &Sealer, noted: &NotedKeys) -> Vec<String> {
        let first = sealer.ring.first().map(ToString::to_string);
        let is_unneeded = |id: &&String| {
            *id != STORE_KEY && first.as_ref() != Some(*id) && !self.needed.contains(*id)
        };
        noted.keys().filter(is_unneeded).cloned().collect()
    }
}

impl Sealer {
    /// The wrapped key under the first key of the file; `None` if it is wrapped by that already.
    pub(in super::super) fn rewrapped(
        &self,
        owner: &str,
        wrapped: &[u8],
    ) -> Result<Option<Vec<u8>>, StoreError> {
        if self.ring.is_wrapped_by_first(wrapped) {
            return Ok(None);
        }
        let key = self.ring.unwrap(owner, wrapped);
        let key = key.map_err(|why| super::unreadable(owner, &why))?;
        self.ring.wrap(owner, &key).map(Some)
    }
}
