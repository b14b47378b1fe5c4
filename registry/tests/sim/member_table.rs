//! The table of members, by the rules of the product's Redis scripts, at a given time.

use std::collections::{BTreeMap, BTreeSet};

use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::Holder;
use abide_conversation::Timestamp;
use abide_registry::member::ProcessId;
use abide_registry::membership::{Member, MembershipStatus, ObservedMember};

/// The members and when each last renewed, and the incarnations that are dead.
#[derive(Debug, Default)]
pub struct MemberTable {
    members: BTreeMap<NodeName, (Member, u64)>,
    dead: BTreeSet<(NodeName, Incarnation)>,
    /// The last process of each node name, and the earlier processes.
    processes: BTreeMap<NodeName, ProcessId>,
    former: BTreeSet<(NodeName, ProcessId)>,
    /// Those whose silence was forgiven since they were last heard.
    excused: BTreeSet<NodeName>,
    /// Declared dead since their lease lapsed, not since a node suspected them.
    silenced: BTreeSet<(NodeName, Incarnation)>,
    /// Whether a lapsed lease is ignored: a mutation.
    never_declares_dead: bool,
}

impl MemberTable {
    pub fn new(never_declares_dead: bool) -> Self {
        Self { never_declares_dead, ..Self::default() }
    }

    pub fn enter(&mut self, me: &Member, now: u64) -> MembershipStatus {
        let (name, process) = (me.holder.node.clone(), me.process.clone());
        let is_alive =
            self.silence_of(&name, now).is_some_and(|(member, ms)| ms <= member.lease_ms);
        let former = self.former.contains(&(name.clone(), process.clone()));
        if self.dead.contains(&key(&me.holder)) || is_alive && former {
            return MembershipStatus::Evicted;
        }
        if let Some((old, _)) = self.members.get(&name)
            && old.holder != me.holder
        {
            let old = old.holder.clone();
            self.remove(&old);
        }
        if let Some(last) = self.processes.insert(name.clone(), process.clone())
            && last != process
        {
            self.former.insert((name.clone(), last));
        }
        self.excused.remove(&name);
        self.members.insert(name, (me.clone(), now));
        self.alive(now)
    }

    pub fn renew(&mut self, me: &Member, now: u64) -> MembershipStatus {
        if self.silence(&me.holder, now).is_none() {
            return MembershipStatus::Evicted;
        }
        let unheard_ms = self.members.values().map(|(_, renewed)| now - renewed).min();
        let excess_ms = unheard_ms.unwrap_or_default().saturating_sub(me.lease_ms / 2);
        self.excused.remove(&me.holder.node);
        if let Some((member, renewed)) = self.members.get_mut(&me.holder.node) {
            (member.state, member.live_actors, *renewed) = (me.state, me.live_actors, now);
        }
        if excess_ms > 0 {
            for (name, (_, renewed)) in &mut self.members {
                if *name != me.holder.node {
                    let is_first = self.excused.insert(name.clone());
                    *renewed = if is_first { now } else { *renewed + excess_ms };
                }
            }
        }
        if !self.never_declares_dead {
            let lapsed = |(member, renewed): &&(Member, u64)| now - renewed > member.lease_ms;
            let lapsed: Vec<_> = self
                .members
                .values()
                .filter(lapsed)
                .map(|(lapsed, _)| lapsed.holder.clone())
                .collect();
            for holder in lapsed {
                self.silenced.insert(key(&holder));
                self.remove(&holder);
            }
        }
        self.alive(now)
    }

    pub fn declare_dead(&mut self, who: &Holder, suspect: bool, now: u64) -> bool {
        let Some(silent_ms) = self.silence(who, now) else {
            self.dead.insert(key(who));
            return true;
        };
        let lapsed = silent_ms > self.members[&who.node].0.lease_ms && !self.never_declares_dead;
        if !suspect && !lapsed {
            return false;
        }
        if lapsed {
            self.silenced.insert(key(who));
        }
        self.remove(who);
        true
    }

    /// The milliseconds since this incarnation last renewed; `None` if it is not a member.
    pub fn silence(&self, who: &Holder, now: u64) -> Option<u64> {
        let found = self.silence_of(&who.node, now);
        found.filter(|(member, _)| member.holder == *who).map(|(_, silent_ms)| silent_ms)
    }

    pub fn has_silenced(&self, who: &Holder) -> bool {
        self.silenced.contains(&key(who))
    }

    fn silence_of(&self, name: &NodeName, now: u64) -> Option<(&Member, u64)> {
        self.members.get(name).map(|(member, renewed)| (member, now - renewed))
    }

    fn remove(&mut self, who: &Holder) {
        self.dead.insert(key(who));
        self.excused.remove(&who.node);
        self.members.remove(&who.node);
    }

    /// The reply to a renewal: the members without those whose lease has lapsed.
    fn alive(&self, now: u64) -> MembershipStatus {
        let silences = self.members.values().map(|(member, renewed)| (member, now - renewed));
        let alive = silences.filter(|(member, silent_ms)| {
            *silent_ms <= member.lease_ms || self.never_declares_dead
        });
        let members = alive
            .map(|(member, silent_ms)| ObservedMember { member: member.clone(), silent_ms })
            .collect();
        let now = Timestamp::from_millisecond(now.try_into().unwrap()).unwrap();
        MembershipStatus::Alive { now, members }
    }
}

fn key(who: &Holder) -> (NodeName, Incarnation) {
    (who.node.clone(), who.incarnation.clone())
}
