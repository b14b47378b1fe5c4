//! Who is alive, by the store's clock.

pub mod heartbeat;
pub mod lease_tracker;

use abide_actors::journal::{Holder, StoreError};
use abide_conversation::Timestamp;
use async_trait::async_trait;

pub use crate::member::{LinkState, LinkStates, Member, MemberState, ObservedMember};

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
