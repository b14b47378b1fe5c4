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
    /// Parts what there is to look after among the members that are up and can be reached: one that
    /// cannot be reached may not reach what lives here either. When there is none, among all.
    pub fn new(me: Holder, members: Vec<Seen>, links: Links) -> Self {
        Self::parted(me, members, links, Share::of)
    }

    /// The same for whoever has worked the shares out before: `part` says what [`Share::of`] does.
    pub fn parted(
        me: Holder,
        members: Vec<Seen>,
        links: Links,
        part: impl FnOnce(&str, &[&str]) -> Share,
    ) -> Self {
        let mut view = Self { me, members, links, share: Share::all() };
        let up = |member: &&Member| member.state == MemberState::Up && view.reaches(member);
        let mut names: Vec<&str> = view.all().filter(up).map(name).collect();
        if names.is_empty() {
            names = view.all().map(name).collect();
        }
        view.share = part(&view.me.node, &names);
        view
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

fn name(member: &Member) -> &str {
    &member.holder.node
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::partition::PARTITIONS;

    fn seen(name: &str) -> Seen {
        let holder = Holder { node: name.to_owned(), incarnation: name.to_owned() };
        let member = Member {
            holder,
            process: name.to_owned(),
            address: String::new(),
            state: MemberState::Up,
            live_actors: 0,
            version: String::new(),
            wire: 1,
            since: jiff::Timestamp::UNIX_EPOCH,
            lease_ms: 5_000,
        };
        Seen { member, silent_ms: 0 }
    }

    #[test]
    fn the_share_of_a_member_that_cannot_be_reached_is_looked_after_by_those_that_are() {
        let members = vec![seen("a"), seen("b")];
        let share = |link: Link| {
            let links = Arc::new([("b".to_owned(), link)].into());
            let me = members[0].member.holder.clone();
            View::new(me, members.clone(), links).share.partitions().count()
        };
        assert!(share(Link::Connected) < PARTITIONS);
        assert_eq!(share(Link::Lost), PARTITIONS);
        assert_eq!(share(Link::Refused), PARTITIONS);
    }
}
