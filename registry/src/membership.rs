//! Who is alive, by the store's clock.

pub mod keeper;
pub mod tenure;

use abide_actors::journal::{Holder, StoreError};
use abide_conversation::Timestamp;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// A node as it describes itself to the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    #[serde(flatten)]
    pub holder: Holder,
    /// Of the process. One that was believed dead and was not goes on as another incarnation, in
    /// the same process.
    pub process: String,
    /// Where other nodes dial it, `HOST:PORT`.
    pub address: String,
    pub state: MemberState,
    pub live_actors: usize,
    /// Of the program.
    pub version: String,
    /// Of what travels between nodes.
    pub wire: u32,
    pub since: Timestamp,
    /// How long it may be silent before it is dead.
    pub lease_ms: u64,
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

/// What a renewal found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The store's clock, and everybody alive by it, by name; the asking member is among them.
    Alive { now: Timestamp, members: Vec<ObservedMember> },
    /// This incarnation is dead, and never will be a member again; or, where it wants to enter, its
    /// name was taken by a younger process that lives.
    Evicted,
}

/// The members of a cluster as a port. An incarnation that is no member any more never is again:
/// whoever was told that it is dead may act on it for ever.
#[async_trait]
pub trait Membership: Send + Sync + 'static {
    /// Makes `me` a member. An earlier incarnation of its name is dead from here on.
    async fn enter(&self, me: &Member) -> Result<Renewed, StoreError>;

    /// Says that `me` lives and what it is like now, and removes whoever was silent for longer than
    /// its lease.
    async fn renew(&self, me: &Member) -> Result<Renewed, StoreError>;

    /// Whether `who` is dead: not a member, or silent for longer than its lease, or `suspect`: then it
    /// is declared dead at once.
    async fn declare_dead_if(&self, who: &Holder, suspect: bool) -> Result<bool, StoreError>;

    /// Ends a membership; nothing happens if `who` is no member.
    async fn leave(&self, who: &Holder) -> Result<(), StoreError>;
}
