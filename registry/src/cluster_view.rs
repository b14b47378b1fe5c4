//! The cluster as this node sees it at one moment.

use abide_actors::identity::NodeName;
use abide_actors::journal::Holder;

use crate::member::{LinkState, LinkStates, Member, MemberState, ObservedMember};
use crate::partition::PartitionSet;

/// The live members, and the connections to them. The view may be out of date; the store decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterView {
    pub me: Holder,
    /// Sorted by name; this node is among them.
    pub members: Vec<ObservedMember>,
    pub links: LinkStates,
    /// The partitions that this node looks after.
    pub partitions: PartitionSet,
}

impl ClusterView {
    /// Divides the partitions among the members that are up and can be reached, because a member
    /// that cannot be reached may not reach the conversations of this node either. If there is no
    /// such member, divides them among all.
    pub fn new(me: Holder, members: Vec<ObservedMember>, links: LinkStates) -> Self {
        Self::with_partitions(me, members, links, PartitionSet::of)
    }

    /// A view whose partitions `partitions_of` computes, for callers that cache what
    /// [`PartitionSet::of`] returns.
    pub fn with_partitions(
        me: Holder,
        members: Vec<ObservedMember>,
        links: LinkStates,
        partitions_of: impl FnOnce(&NodeName, &[&NodeName]) -> PartitionSet,
    ) -> Self {
        let mut view = Self { me, members, links, partitions: PartitionSet::all() };
        let is_eligible =
            |member: &&Member| member.state == MemberState::Up && view.reaches(member);
        let mut names: Vec<&NodeName> = view.all().filter(is_eligible).map(name).collect();
        if names.is_empty() {
            names = view.all().map(name).collect();
        }
        view.partitions = partitions_of(&view.me.node, &names);
        view
    }

    /// The member that is this holder, in exactly this incarnation.
    pub fn member(&self, holder: &Holder) -> Option<&Member> {
        self.all().find(|member| member.holder == *holder)
    }

    /// The member with this name, in any incarnation.
    pub fn named(&self, name: &NodeName) -> Option<&Member> {
        self.all().find(|member| member.holder.node == *name)
    }

    /// All members, by name.
    pub fn all(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().map(|seen| &seen.member)
    }

    /// All members except this node.
    pub fn others(&self) -> impl Iterator<Item = &Member> {
        self.all().filter(|member| member.holder != self.me)
    }

    /// The state of the connection to a member.
    pub fn link(&self, member: &Member) -> LinkState {
        self.links.get(&member.process).copied().unwrap_or(LinkState::Lost)
    }

    /// Whether a call to this member can succeed.
    pub fn reaches(&self, member: &Member) -> bool {
        member.holder == self.me || self.link(member) == LinkState::Connected
    }
}

fn name(member: &Member) -> &NodeName {
    &member.holder.node
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use abide_actors::identity::Incarnation;

    use super::*;
    use crate::member::ProcessId;
    use crate::partition::PARTITIONS;

    /// A member that is up, and whose process and incarnation have its name.
    pub(crate) fn seen(name: &str) -> ObservedMember {
        let holder = Holder { node: NodeName::new(name), incarnation: Incarnation::new(name) };
        let member = Member {
            holder,
            process: ProcessId::new(name),
            address: String::new(),
            state: MemberState::Up,
            live_actors: 0,
            version: String::new(),
            protocol_version: 1,
            handshake_version: 1,
            live_directory_version: 1,
            stored_form_version: 1,
            cookie: None,
            auth: None,
            ports: Vec::new(),
            since: abide_conversation::Timestamp::UNIX_EPOCH,
            lease_ms: 5_000,
        };
        ObservedMember { member, silent_ms: 0 }
    }

    #[test]
    fn a_member_is_found_by_its_name_and_a_node_is_none_of_its_others() {
        let members = ["a", "b"].map(seen);
        let me = seen("a").member.holder;
        let view = ClusterView::new(me, members.to_vec(), LinkStates::default());
        let [a, b] = members.map(|seen| seen.member);
        assert_eq!(view.named(&NodeName::new("b")), Some(&b));
        assert_eq!(view.named(&NodeName::new("c")), None);
        assert!(view.all().eq([&a, &b]) && view.others().eq([&b]));
    }

    #[test]
    fn the_share_of_a_member_that_cannot_be_reached_goes_to_those_that_can() {
        let members = vec![seen("a"), seen("b")];
        let count = |link: LinkState| {
            let links = Arc::new([(ProcessId::new("b"), link)].into());
            let me = members[0].member.holder.clone();
            ClusterView::new(me, members.clone(), links).partitions.iter().count()
        };
        assert!(count(LinkState::Connected) < PARTITIONS);
        assert_eq!(count(LinkState::Lost), PARTITIONS);
        assert_eq!(count(LinkState::Refused), PARTITIONS);
    }
}
