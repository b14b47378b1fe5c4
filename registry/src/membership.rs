//! The members of the cluster: who is alive by the store's clock.

pub mod heartbeat;
pub mod lease_tracker;

use abide_actors::journal::{Holder, StoreError};
use abide_conversation::Timestamp;
use async_trait::async_trait;

pub use crate::member::{LinkState, LinkStates, Member, MemberState, ObservedMember};

/// Whether the asking member is alive by the store's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipStatus {
    /// The time of the store's clock, and all members that are alive by it, sorted by name. The
    /// asking member is among them.
    Alive { now: Timestamp, members: Vec<ObservedMember> },
    /// This incarnation is dead and never becomes a member again. A new incarnation that enters is
    /// evicted, too, if a younger live process has taken its name.
    Evicted,
}

/// The members of a cluster, as a port. An incarnation that has ceased to be a member never becomes
/// one again, so the answer that it is dead holds for ever.
///
/// What an answer says of the asking member, and of a death, has the configured durability, as with
/// [`Journal`](abide_actors::journal::Journal). The other members are a view.
#[async_trait]
pub trait Membership: Send + Sync + 'static {
    /// The members, and those that died and are not removed yet.
    async fn members(&self) -> Result<Vec<Member>, StoreError>;

    /// Makes `me` a member. An earlier incarnation of the same name is dead from here on.
    async fn enter(&self, me: &Member) -> Result<MembershipStatus, StoreError>;

    /// Renews the lease of `me`, stores its present description, and removes members that were
    /// silent for longer than their lease.
    async fn renew(&self, me: &Member) -> Result<MembershipStatus, StoreError>;

    /// Declares `holder` dead if it is no member, was silent for longer than its lease, or is a
    /// `suspect`. Returns whether it is dead.
    async fn declare_dead_if(&self, holder: &Holder, suspect: bool) -> Result<bool, StoreError>;

    /// Ends a membership; nothing happens if `holder` is no member.
    async fn leave(&self, holder: &Holder) -> Result<(), StoreError>;
}
