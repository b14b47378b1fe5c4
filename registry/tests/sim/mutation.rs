//! Mutations: rules that a test breaks on purpose, to prove that the simulation notices.

use crate::redis::Patches;

/// What makes a claim fail on a conversation that another one holds.
const HELD_BY_ANOTHER: &str = "if held[1] and not (held[1] == dead_node and held[2] == \
                               dead_incarnation) then return {held[1], held[2], held[3]} end";
/// How long a member has been silent.
const SILENCE: &str = "return math.max(0, now - (seen[name] or now))";

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
    /// The network loses the tenant of the conversation that a request is for.
    NetworkForgetsTenant,
    /// A host does not restart actors that were fenced, as the product's once did not.
    FencedNotRestarted,
    /// An append does not recognise its own repeat.
    AppendIgnoresNonce,
    /// Appends are acknowledged before replicas have them.
    WaitAnswersAtOnce,
    /// What was kept as an answer is given again although no replica has it: the servers do not let
    /// reads wait.
    AnswersWithoutWait,
    /// A lease counts before replicas have it, as it once did in the product.
    RenewsWithoutWait,
    /// The children of a deleted conversation stay.
    ChildrenOutliveParents,
    /// A full server refuses to delete.
    FullRefusesDelete,
    /// Claims do not count the deaths of the holders before.
    ForgetsDeaths,
    /// A commit counts what it used twice.
    CountsTwice,
    /// A commit does not tell the index that a call has left its queue.
    ForgetsQueues,
    /// A node notes that a notice was told before it tells it.
    SettlesBeforeTelling,
    /// The message of a tick has no idempotency key.
    TicksHaveNoKey,
    /// A first commit claims a conversation that is there.
    FirstCommitClaimsAny,
    /// Anybody may rewrite a journal.
    RewriteNeedsNoClaim,
    /// An import that is published lacks the events that were aside.
    PublishesTheEndAlone,
    /// A rollout that was ended goes on.
    RolloutNeverEnds,
    /// What a model replies is shown before the commit that led to its call is in the journal.
    ShowsBeforeCommit,
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
            Mutation::NetworkCarriesTwice | Mutation::TicksHaveNoKey => "is there twice",
            Mutation::NetworkForgetsTenant => "is of another tenant",
            Mutation::AppendIgnoresNonce => "met events that it has not written",
            Mutation::WaitAnswersAtOnce => "is acknowledged before a replica has it",
            Mutation::AnswersWithoutWait => "is answered before a replica has it",
            Mutation::RenewsWithoutWait => "its lease was renewed by a primary that lost it",
            Mutation::ChildrenOutliveParents => "outlives its parent",
            Mutation::FullRefusesDelete => "a full server refuses delete",
            Mutation::ForgetsDeaths => "ends more than 5 processes",
            Mutation::CountsTwice => "the usage differs from the journals",
            Mutation::ForgetsQueues => "and none waits",
            Mutation::SettlesBeforeTelling => "was never told",
            Mutation::FirstCommitClaimsAny => "writes after",
            Mutation::RewriteNeedsNoClaim => "rewrites under the claim",
            Mutation::PublishesTheEndAlone => "stands at index",
            Mutation::RolloutNeverEnds => "is chosen, which",
            Mutation::ShowsBeforeCommit => "is shown before the commit",
        }
    }

    /// Whether only a store that waits for replicas can show it.
    pub fn concerns_replicas(self) -> bool {
        matches!(self, Self::WaitAnswersAtOnce | Self::AnswersWithoutWait | Self::RenewsWithoutWait)
    }

    /// What it changes in the scripts. A piece must be there: see the test below.
    pub fn patches(self) -> Patches {
        match self {
            Mutation::NoFence => &[
                ("append", "if not holds(row) then return 'FENCED' end", ""),
                ("append", "if (row[4] or '0') ~= ARGV[5] then return 'CONFLICT' end", ""),
            ],
            Mutation::ClaimIgnoresHolder => {
                &[("claim", HELD_BY_ANOTHER, ""), ("claim_and_load", HELD_BY_ANOTHER, "")]
            }
            Mutation::DeclaresLivingDead => &[
                ("declare_dead", "remove(name, incarnation)\nreturn 1", "return 1"),
                (
                    "declare_dead",
                    "if not is_suspect and silence(name) <= member.lease_ms then return 0 end",
                    "",
                ),
            ],
            Mutation::NeverDeclaresDead => &[
                ("enter", SILENCE, "return 0"),
                ("renew", SILENCE, "return 0"),
                ("declare_dead", SILENCE, "return 0"),
            ],
            Mutation::AppendIgnoresNonce => {
                &[("append", "if row[5] == nonce then", "if false then")]
            }
            Mutation::CountsTwice => {
                &[("append", "{'', add(found[1], added)", "{'', add(add(found[1], added), added)")]
            }
            Mutation::FullRefusesDelete => &[("delete", "#!lua flags=allow-oom", "#!lua")],
            Mutation::ForgetsDeaths => {
                &[("claim_and_load", "redis.call('HINCRBY', KEYS[1], 'deaths', 1)", "0")]
            }
            Mutation::FirstCommitClaimsAny => {
                &[("append", "if row[1] or row[3] then return 'CONFLICT' end", "")]
            }
            Mutation::RewriteNeedsNoClaim => &[
                ("rewrite", "if not holds(row) then return 'FENCED' end", ""),
                ("rewrite", "if row[4] ~= ARGV[5] then return 'CONFLICT' end", ""),
            ],
            Mutation::PublishesTheEndAlone => {
                &[("append", "redis.call('RENAME', KEYS[#KEYS], KEYS[2])", "")]
            }
            Mutation::RolloutNeverEnds => {
                &[("rollout", "redis.call('HDEL', KEYS[1], name .. ' rollout')", "")]
            }
            Mutation::AckWithoutWrite
            | Mutation::WakeBypassesRouter
            | Mutation::NoAlarms
            | Mutation::NoActiveMark
            | Mutation::StoppedClock
            | Mutation::NetworkCarriesTwice
            | Mutation::NetworkForgetsTenant
            | Mutation::FencedNotRestarted
            | Mutation::WaitAnswersAtOnce
            | Mutation::AnswersWithoutWait
            | Mutation::RenewsWithoutWait
            | Mutation::ChildrenOutliveParents
            | Mutation::ForgetsQueues
            | Mutation::SettlesBeforeTelling
            | Mutation::ShowsBeforeCommit
            | Mutation::TicksHaveNoKey => &[],
        }
    }
}

/// A patch whose piece is not in the script any more would change nothing, and its mutation would
/// be the product.
#[test]
fn every_piece_is_in_its_script() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/redis/lua/");
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    let libraries = std::fs::read_dir(format!("{directory}lib")).unwrap();
    let libraries: String = libraries.map(|file| read(file.unwrap().path())).collect();
    let patched = [
        Mutation::NoFence,
        Mutation::ClaimIgnoresHolder,
        Mutation::DeclaresLivingDead,
        Mutation::NeverDeclaresDead,
        Mutation::AppendIgnoresNonce,
        Mutation::FullRefusesDelete,
        Mutation::ForgetsDeaths,
        Mutation::CountsTwice,
        Mutation::FirstCommitClaimsAny,
        Mutation::RewriteNeedsNoClaim,
        Mutation::PublishesTheEndAlone,
        Mutation::RolloutNeverEnds,
    ];
    for mutation in patched {
        assert!(!mutation.patches().is_empty(), "{mutation:?} patches nothing");
        for (script, piece, _) in mutation.patches() {
            let source = read(format!("{directory}{script}.lua").into());
            let is_there = source.contains(piece) || libraries.contains(piece);
            assert!(is_there, "{mutation:?}: {script} has no {piece}");
        }
    }
}
