//! The way from a conversation to its node, a step at a time, from facts already read.

use abide_actors::journal::Holder;
use abide_conversation::ConversationId;

use crate::membership::Member;
use crate::placement::{self, Decision, Policy};
use crate::view::ClusterView;

/// A search for the node where a conversation lives, or shall.
#[derive(Clone, Debug)]
pub struct Search {
    policy: Policy,
    /// Another node was told that it lives here, or shall: it is not passed on.
    here: bool,
    /// Its holder, if the store said that it is dead.
    over: Option<Holder>,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Start it on this node, over this holder, which is dead.
    Start(Option<Holder>),
    /// This member holds it.
    Held(Member),
    /// It is to live with this member.
    Place(Member),
    /// Ask the store whether this holder is dead, and read on.
    Confirm(Holder),
    /// Read on when the cluster looks different.
    Wait,
    /// No node takes it now.
    Nowhere,
}

impl Search {
    /// With `here`, what is to be placed is placed on this node, or nowhere.
    pub fn new(policy: Policy, here: bool) -> Self {
        Self { policy, here, over: None }
    }

    /// The store said that this holder is dead.
    pub fn is_dead(&mut self, holder: Holder) {
        self.over = Some(holder);
    }

    /// What to do, given who holds the conversation, and whether this node drains.
    pub fn step(
        &self,
        id: &ConversationId,
        holder: Option<&Holder>,
        view: &ClusterView,
        drains: bool,
    ) -> Step {
        let decision = match holder {
            Some(dead) if self.over.as_ref() == Some(dead) => Decision::Place,
            holder => placement::decide(holder, view),
        };
        match (decision, holder) {
            (Decision::Here, _) => Step::Start(None),
            (Decision::Ask(member), _) => Step::Held(member.clone()),
            (Decision::Confirm, Some(holder)) => Step::Confirm(holder.clone()),
            (Decision::Wait(_), _) if self.here => Step::Nowhere,
            (Decision::Confirm, None) | (Decision::Wait(_), _) => Step::Wait,
            (Decision::Place, _) => self.place(id, view, drains),
        }
    }

    fn place(&self, id: &ConversationId, view: &ClusterView, drains: bool) -> Step {
        let chosen = match self.here {
            true => view.member(&view.me).filter(|_| !drains),
            false => placement::place(self.policy, id, view),
        };
        match chosen {
            // The next view says so, too.
            Some(member) if member.holder == view.me && drains => Step::Wait,
            Some(member) if member.holder == view.me => Step::Start(self.over.clone()),
            Some(member) => Step::Place(member.clone()),
            None => Step::Nowhere,
        }
    }
}
