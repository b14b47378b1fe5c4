//! Where a conversation is to live: decided from facts already read.

use std::cmp::Reverse;
use std::str::FromStr;

use abide_actors::journal::Holder;
use abide_conversation::ConversationId;

use crate::membership::{Member, MemberState};
use crate::partition::weight;
use crate::peers::LinkState;
use crate::view::ClusterView;

/// How a node is chosen for a conversation that nobody holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Where it is asked for.
    #[default]
    Local,
    /// The same node for the same conversation, as long as that node lives.
    Rendezvous,
    /// Where the fewest live now.
    LeastLoaded,
}

/// What is to be done with a conversation that somebody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision<'v> {
    /// This node holds it.
    Here,
    /// This member holds it, and can be asked.
    Ask(&'v Member),
    /// Its holder lives and cannot be reached now; it may be found dead, or reached, in a moment.
    Wait(&'v Member),
    /// Nobody knows its holder, or it no longer answers: the store must say whether it is dead.
    Confirm,
    /// Nobody holds it.
    Place,
}

/// Judges a holding by what this node sees. It never takes anything from a holder that may live.
pub fn decide<'v>(holder: Option<&Holder>, view: &'v ClusterView) -> Decision<'v> {
    let Some(holder) = holder else { return Decision::Place };
    match view.member(holder).map(|member| (member, view.link(member))) {
        // Not where this node itself is no member any more.
        Some(_) if *holder == view.me => Decision::Here,
        None | Some((_, LinkState::Refused)) => Decision::Confirm,
        Some((member, LinkState::Connected)) => Decision::Ask(member),
        Some((member, LinkState::Lost)) => Decision::Wait(member),
    }
}

/// Whether nobody runs a conversation that wants something running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orphan<'h> {
    Yes,
    No,
    /// If the store says that this holder, which is no member in this view, is dead.
    IfDead(&'h Holder),
}

/// Judges a conversation by its claim, on the node `me` where it lives, or not.
pub fn is_orphan<'h>(
    holder: Option<&'h Holder>,
    me: &Holder,
    lives_here: bool,
    view: &ClusterView,
) -> Orphan<'h> {
    match holder {
        None => Orphan::Yes,
        Some(holder) if holder == me && lives_here => Orphan::No,
        Some(holder) if holder == me => Orphan::Yes,
        Some(holder) if view.member(holder).is_some() => Orphan::No,
        Some(holder) => Orphan::IfDead(holder),
    }
}

/// Chooses the node for a conversation that nobody holds.
///
/// Never a member that drains, even when it is the only one left: then there is none, and the
/// caller answers `Unavailable`. Nor one that cannot be reached.
pub fn place<'v>(policy: Policy, id: &ConversationId, view: &'v ClusterView) -> Option<&'v Member> {
    elsewhere(policy, id, view, None)
}

/// The same for a conversation that is to be on another node than this holder's.
pub fn elsewhere<'v>(
    policy: Policy,
    id: &ConversationId,
    view: &'v ClusterView,
    than: Option<&Holder>,
) -> Option<&'v Member> {
    let up = |member: &&Member| {
        let takes = member.state == MemberState::Up && view.reaches(member);
        takes && than != Some(&member.holder)
    };
    let wanting = |member: &&Member| (weight(&member.holder.node, id), member.holder.node.clone());
    let here = view.member(&view.me).filter(up);
    match policy {
        Policy::Local if here.is_some() => here,
        Policy::Local | Policy::Rendezvous => view.all().filter(up).max_by_key(wanting),
        Policy::LeastLoaded => {
            let load = |member: &&Member| (Reverse(member.live_actors), wanting(member));
            view.all().filter(up).max_by_key(load)
        }
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "local" => Ok(Self::Local),
            "rendezvous" => Ok(Self::Rendezvous),
            "least-loaded" => Ok(Self::LeastLoaded),
            _ => Err("must be local, rendezvous or least-loaded".to_owned()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
