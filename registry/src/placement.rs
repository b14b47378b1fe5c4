//! Where a conversation lives, or is to live: decided from facts already read.

use std::cmp::Reverse;
use std::str::FromStr;

use abide_actors::journal::Holder;
use abide_conversation::{ConversationId, Scoped};

use crate::cluster_view::ClusterView;
use crate::member::{LinkState, Member, MemberState};
use crate::partition::rendezvous_weight;

/// How a node is chosen for a conversation that nobody holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The node that received the request.
    #[default]
    Local,
    /// Always the same node for the same conversation, as long as that node lives.
    Rendezvous,
    /// The node with the fewest live conversations.
    LeastLoaded,
}

/// What a search for the node of a conversation does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Start it on this node; its claim replaces that of a dead holder, if one is named.
    StartHere { replacing: Option<Holder> },
    /// This member holds it and can be reached.
    HeldBy(Member),
    /// Nobody holds it, and this member is to start it.
    PlaceOn(Member),
    /// Ask the store whether this holder is dead, then read the claim again.
    ConfirmDead(Holder),
    /// Read the claim again when the view of the cluster has changed.
    AwaitView,
    /// This member holds it and cannot be reached now; read the claim again when the view has
    /// changed.
    AwaitLink(Member),
    /// No node can take it now.
    NoNode,
}

/// The rules by which a node places conversations that nobody holds.
#[derive(Clone, Copy, Debug)]
pub struct PlacementRules {
    pub policy: Policy,
    /// Another node has sent the request here, so it is not passed on: what is placed is placed on
    /// this node or not at all.
    pub only_here: bool,
    /// This node drains, which its view may not show yet.
    pub draining: bool,
}

/// Says what to do about a conversation that is asked for, from its claim and this node's view.
///
/// A claim is never taken from a holder that may live: `confirmed_dead` is the holder that the
/// store has declared dead in the course of this search, if any.
pub fn locate(
    id: &Scoped<ConversationId>,
    holder: Option<&Holder>,
    confirmed_dead: Option<&Holder>,
    view: &ClusterView,
    rules: PlacementRules,
) -> Decision {
    let Some(holder) = holder.filter(|holder| confirmed_dead != Some(holder)) else {
        return place_unheld(id, confirmed_dead, view, rules);
    };
    // An incarnation that this node does not see as a member may be its own former one.
    let Some(member) = view.member(holder) else { return Decision::ConfirmDead(holder.clone()) };
    if *holder == view.me {
        return Decision::StartHere { replacing: None };
    }
    match view.link(member) {
        LinkState::Connected => Decision::HeldBy(member.clone()),
        LinkState::Refused => Decision::ConfirmDead(holder.clone()),
        // It may be found dead, or be reached, in a moment.
        LinkState::Lost if rules.only_here => Decision::NoNode,
        LinkState::Lost => Decision::AwaitLink(member.clone()),
    }
}

fn place_unheld(
    id: &Scoped<ConversationId>,
    replacing: Option<&Holder>,
    view: &ClusterView,
    rules: PlacementRules,
) -> Decision {
    let chosen = if rules.only_here {
        view.member(&view.me).filter(|_| !rules.draining)
    } else {
        place(rules.policy, id, view)
    };
    match chosen {
        // The next view shows the drain, too.
        Some(member) if member.holder == view.me && rules.draining => Decision::AwaitView,
        Some(member) if member.holder == view.me => {
            Decision::StartHere { replacing: replacing.cloned() }
        }
        Some(member) => Decision::PlaceOn(member.clone()),
        None => Decision::NoNode,
    }
}

/// Whether a conversation that has work to do is run by nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orphan<'h> {
    Yes,
    No,
    /// It is an orphan if the store confirms that this holder, which is no member in this view, is
    /// dead.
    IfDead(&'h Holder),
}

/// Judges a conversation by its claim; `lives_here` says whether it has a live actor on node `me`.
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
/// Never chooses a draining member, even when it is the only one left, nor one that cannot be
/// reached. Without a choice the caller answers `Unavailable`.
pub fn place<'v>(
    policy: Policy,
    id: &Scoped<ConversationId>,
    view: &'v ClusterView,
) -> Option<&'v Member> {
    elsewhere(policy, id, view, None)
}

/// Chooses the node for a conversation as [`place`] does, but never the node of `excluded`.
pub fn elsewhere<'v>(
    policy: Policy,
    id: &Scoped<ConversationId>,
    view: &'v ClusterView,
    excluded: Option<&Holder>,
) -> Option<&'v Member> {
    let is_eligible = |member: &&Member| {
        let accepts = member.state == MemberState::Up && view.reaches(member);
        accepts && excluded != Some(&member.holder)
    };
    let node = |member: &&Member| member.holder.node.clone();
    let preference = |member: &&Member| (rendezvous_weight(node(member), id), node(member));
    let here = view.member(&view.me).filter(is_eligible);
    match policy {
        Policy::Local if here.is_some() => here,
        Policy::Local | Policy::Rendezvous => view.all().filter(is_eligible).max_by_key(preference),
        Policy::LeastLoaded => {
            let idleness = |member: &&Member| (Reverse(member.live_actors), preference(member));
            view.all().filter(is_eligible).max_by_key(idleness)
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
