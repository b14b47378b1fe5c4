//! The messages that steer a turn, as far as the turn remembers them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::approval::{SubjectId, requesters};
use crate::identity::Identity;
use crate::numbers::Seq;

/// What a turn remembers of the messages that steer it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steering {
    /// The event of the newest one; 0 if there is none.
    pub last: Seq,
    /// How many there are.
    #[serde(default)]
    pub count: u32,
    /// Those who sent them: they asked for what the turn does from then on.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub by: BTreeSet<SubjectId>,
}

impl Steering {
    /// Whether nobody has steered the turn.
    pub fn is_none(&self) -> bool {
        self.last == Seq::ZERO
    }

    pub(crate) fn add(&mut self, seq: Seq, identity: Option<&Identity>) {
        self.last = seq;
        self.count = self.count.saturating_add(1);
        self.by.extend(identity.into_iter().flat_map(requesters));
    }
}
