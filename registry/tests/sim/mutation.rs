//! Mutations: rules that a test breaks on purpose, to prove that the simulation notices.

/// A rule that the simulated world breaks. The product's code stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The store accepts writes from anybody, whatever claim the writer holds.
    NoFence,
    /// A claim takes a conversation from any holder.
    ClaimIgnoresHolder,
    /// Any member that is asked about is declared dead, and lives on.
    DeclaresLivingDead,
    /// A lapsed lease gets nobody declared dead.
    NeverDeclaresDead,
    /// The store acknowledges a write that it has not done.
    AckWithoutWrite,
    /// A node closes due suspensions itself, instead of waking the conversation through the router.
    WakeBypassesRouter,
    /// Alarms are lost.
    NoAlarms,
    /// Conversations with work to do are not marked as active, so that nobody takes them over.
    NoActiveMark,
    /// A node's monotonic clock stands still, so that its lease never lapses.
    StoppedClock,
    /// The network carries a request twice.
    NetworkCarriesTwice,
    /// A host does not restart actors that were fenced, as the product's once did not.
    FencedNotRestarted,
}
