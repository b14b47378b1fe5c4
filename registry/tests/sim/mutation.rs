//! Mutations: rules that a test breaks on purpose, to prove that the simulation notices.

use crate::redis::Patches;

/// A rule that the simulated world breaks. The product's code stays the same, but for pieces of its
/// scripts.
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
    /// An append does not recognise its own repeat.
    AppendIgnoresNonce,
    /// Appends are acknowledged before replicas have them.
    WaitAnswersAtOnce,
    /// What was kept as an answer is given again although no replica has it. The product does so
    /// itself as long as `known.rs` says so; once it waits, this must make it not wait.
    AnswersWithoutWait,
    /// The children of a deleted conversation stay.
    ChildrenOutliveParents,
    /// A full server refuses to delete.
    FullRefusesDelete,
}

impl Mutation {
    /// What the simulation must say about it.
    pub fn complaint(self) -> &'static str {
        match self {
            Mutation::NoFence => "writes after",
            Mutation::ClaimIgnoresHolder | Mutation::DeclaresLivingDead => "which is a member",
            Mutation::NeverDeclaresDead
            | Mutation::NoAlarms
            | Mutation::NoActiveMark
            | Mutation::FencedNotRestarted => "never settles",
            Mutation::AckWithoutWrite => "is acknowledged and not written",
            Mutation::WakeBypassesRouter => "closed twice",
            Mutation::StoppedClock => "could not renew its lease",
            Mutation::NetworkCarriesTwice => "is there twice",
            Mutation::AppendIgnoresNonce => "met events that it has not written",
            Mutation::WaitAnswersAtOnce => "is acknowledged before a replica has it",
            Mutation::AnswersWithoutWait => "is answered before a replica has it",
            Mutation::ChildrenOutliveParents => "outlives its parent",
            Mutation::FullRefusesDelete => "a full server refuses delete",
        }
    }

    /// What it changes in the scripts. A piece must be there: see the test below.
    pub fn patches(self) -> Patches {
        match self {
            Mutation::NoFence => &[
                ("if not holds(row) then return 'FENCED' end", ""),
                ("if (row[4] or '0') ~= seq_before then return 'CONFLICT' end", ""),
            ],
            Mutation::ClaimIgnoresHolder => &[(
                "if held[1] and not (held[1] == dead_node and held[2] == dead_incarnation) then \
                 return held end",
                "",
            )],
            Mutation::DeclaresLivingDead => &[
                ("remove(name, incarnation)\nreturn 1", "return 1"),
                ("if not is_suspect and silence(name) <= member.lease_ms then return 0 end", ""),
            ],
            Mutation::NeverDeclaresDead => &[(
                "return math.max(0, now - tonumber(redis.call('ZSCORE', KEYS[2], name) or now))",
                "return 0",
            )],
            Mutation::AppendIgnoresNonce => &[("if row[5] == nonce then", "if false then")],
            Mutation::FullRefusesDelete => &[("#!lua flags=allow-oom", "#!lua")],
            Mutation::AckWithoutWrite
            | Mutation::WakeBypassesRouter
            | Mutation::NoAlarms
            | Mutation::NoActiveMark
            | Mutation::StoppedClock
            | Mutation::NetworkCarriesTwice
            | Mutation::FencedNotRestarted
            | Mutation::WaitAnswersAtOnce
            | Mutation::AnswersWithoutWait
            | Mutation::ChildrenOutliveParents => &[],
        }
    }
}
