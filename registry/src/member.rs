//! A member of the cluster as the others see it, and the state of the connection to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_actors::journal::Holder;
use abide_conversation::{Timestamp, name_type};
use serde::{Deserialize, Serialize};

name_type! {
    /// The id of one process that runs a node, under which the other nodes connect to that process
    /// and call it. A node that rejoins after it was declared dead has another [`Incarnation`] and
    /// the same process id.
    ///
    /// [`Incarnation`]: abide_actors::identity::Incarnation
    ProcessId
}

/// A node as it describes itself to the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    #[serde(flatten)]
    pub holder: Holder,
    /// The id of its process, which is that of the first incarnation in it. A node that was
    /// declared dead and was not goes on as another incarnation in the same process.
    pub process: ProcessId,
    /// Where other nodes dial it, `HOST:PORT`.
    pub address: String,
    pub state: MemberState,
    pub live_actors: usize,
    /// The version of its program.
    pub version: String,
    /// The version of the protocol between nodes that it speaks.
    #[serde(rename = "wire")]
    pub protocol_version: u32,
    /// The version of the handshake that it expects; builds before version 1 do not name theirs.
    #[serde(default, rename = "handshake")]
    pub handshake_version: u32,
    /// The version of the directory of listeners that it knows; builds before version 1 do not name
    /// theirs.
    #[serde(default, rename = "live_directory")]
    pub live_directory_version: u32,
    /// The version of the form of stored values that it reads; builds before version 1, which read
    /// nothing that is compressed, do not name theirs.
    #[serde(default, rename = "stored_form", skip_serializing_if = "is_zero")]
    pub stored_form_version: u32,
    /// The cookie of its sessions; builds before there could be two secrets do not name theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie: Option<String>,
    /// Identifies its rules for callers; `None` if it authenticates nobody, or is of an earlier build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<String>,
    /// The TCP ports on which its process listens, which no command of a tool may connect to.
    #[serde(default)]
    pub ports: Vec<u16>,
    pub since: Timestamp,
    /// How long it may be silent before it counts as dead.
    pub lease_ms: u64,
}

impl Member {
    /// Whether it knows only the handshake in which the keys are shown first.
    pub(crate) fn is_legacy(&self) -> bool {
        self.handshake_version == 0
    }
}

// Serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(version: &u32) -> bool {
    *version == 0
}

/// What a member takes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    Up,
    /// It ends what it has and takes nothing new.
    Draining,
    /// Nothing runs there any more.
    Drained,
}

/// A member, and for how long it has been silent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedMember {
    pub member: Member,
    pub silent_ms: u64,
}

/// The states of the connections to the other processes, by [`Member::process`].
pub type LinkStates = Arc<BTreeMap<ProcessId, LinkState>>;

/// The state of the connection to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    Connected,
    /// It was connected or is about to be, and is being dialled.
    Lost,
    /// Its address refuses connections: no process is there. An address at which another process
    /// answers counts as refusing once the member was connected; before that, the address may be
    /// wrong.
    Refused,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cluster_view::tests::seen;

    #[test]
    fn a_member_that_names_no_handshake_is_of_an_earlier_build() {
        let newer = seen("a").member;
        let mut json = serde_json::to_value(&newer).unwrap();
        json.as_object_mut().unwrap().remove("handshake");
        let older: Member = serde_json::from_value(json).unwrap();
        assert!(older.is_legacy() && !newer.is_legacy());
    }
}
