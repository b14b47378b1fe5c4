//! The cluster as this node sees it at one moment.

use abide_actors::journal::Holder;

use crate::membership::{Member, MemberState, Seen};
use crate::partition::Share;
use crate::peers::{Link, Links};

/// Who lives, and how to reach them. It may be out of date; the store decides what matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub me: Holder,
    /// By name; this node is among them.
    pub members: Vec<Seen>,
    pub links: Links,
    /// What this node looks after.
    pub share: Share,
}

impl View {
    /// Parts what there is to look after among the members that are up; when none is, among all.
    pub fn new(me: Holder, members: Vec<Seen>, links: Links) -> Self {
        let up = |seen: &&Seen| seen.member.state == MemberState::Up;
        let name = |seen: &'_ Seen| seen.member.holder.node.clone();
        let mut names: Vec<String> = members.iter().filter(up).map(name).collect();
        if names.is_empty() {
            names = members.iter().map(name).collect();
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let share = Share::of(&me.node, &names);
        Self { me, members, links, share }
    }

    /// The member that is this holder, in this incarnation.
    pub fn member(&self, holder: &Holder) -> Option<&Member> {
        self.all().find(|member| member.holder == *holder)
    }

    /// The member of this name.
    pub fn named(&self, name: &str) -> Option<&Member> {
        self.all().find(|member| member.holder.node == name)
    }

    /// All members, by name.
    pub fn all(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().map(|seen| &seen.member)
    }

    /// All but this node.
    pub fn others(&self) -> impl Iterator<Item = &Member> {
        self.all().filter(|member| member.holder != self.me)
    }

    /// The way to a member.
    pub fn link(&self, member: &Member) -> Link {
        self.links.get(&member.process).copied().unwrap_or(Link::Lost)
    }

    /// Whether a call to it has a chance.
    pub fn reaches(&self, member: &Member) -> bool {
        member.holder == self.me || self.link(member) == Link::Connected
    }
}
