//! The members' register by the rules of its Redis scripts, at a time that is given.

use std::collections::{BTreeMap, BTreeSet};

use abide_actors::journal::Holder;
use abide_conversation::Timestamp;
use abide_registry::membership::{Member, ObservedMember, Renewed};

/// Who is a member, who was seen when, and who never will be one again.
#[derive(Debug, Default)]
pub struct Register {
    members: BTreeMap<String, (Member, u64)>,
    dead: BTreeSet<(String, String)>,
    /// The last process of each name, and those before it.
    processes: BTreeMap<String, String>,
    former: BTreeSet<(String, String)>,
    /// Died of silence, not by anybody's word.
    silenced: BTreeSet<(String, String)>,
    /// Whether silence kills nobody: a broken register.
    patient: bool,
}

impl Register {
    pub fn new(patient: bool) -> Self {
        Self { patient, ..Self::default() }
    }

    pub fn enter(&mut self, me: &Member, now: u64) -> Renewed {
        let (name, process) = (me.holder.node.clone(), me.process.clone());
        let lives = self.silent(&name, now).is_some_and(|(member, ms)| ms <= member.lease_ms);
        let former = self.former.contains(&(name.clone(), process.clone()));
        if self.dead.contains(&key(&me.holder)) || lives && former {
            return Renewed::Evicted;
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
        self.members.insert(name, (me.clone(), now));
        self.alive(now)
    }

    pub fn renew(&mut self, me: &Member, now: u64) -> Renewed {
        let Some(silent) = self.silence(&me.holder, now) else { return Renewed::Evicted };
        let away = silent * 2 > me.lease_ms;
        if let Some((member, seen)) = self.members.get_mut(&me.holder.node) {
            (member.state, member.live_actors, *seen) = (me.state, me.live_actors, now);
        }
        if away {
            self.members.values_mut().for_each(|(_, seen)| *seen = now);
        } else if !self.patient {
            let late = |(member, seen): &&(Member, u64)| now - seen > member.lease_ms;
            let late: Vec<_> =
                self.members.values().filter(late).map(|(late, _)| late.holder.clone()).collect();
            for holder in late {
                self.silenced.insert(key(&holder));
                self.remove(&holder);
            }
        }
        self.alive(now)
    }

    pub fn bury(&mut self, who: &Holder, suspect: bool, now: u64) -> bool {
        let Some(silent) = self.silence(who, now) else {
            self.dead.insert(key(who));
            return true;
        };
        let late = silent > self.members[&who.node].0.lease_ms && !self.patient;
        if !suspect && !late {
            return false;
        }
        if late {
            self.silenced.insert(key(who));
        }
        self.remove(who);
        true
    }

    /// How long ago this incarnation was heard of; `None` if it is no member.
    pub fn silence(&self, who: &Holder, now: u64) -> Option<u64> {
        let silent = self.silent(&who.node, now);
        silent.filter(|(member, _)| member.holder == *who).map(|(_, silent)| silent)
    }

    pub fn has_silenced(&self, who: &Holder) -> bool {
        self.silenced.contains(&key(who))
    }

    fn silent(&self, name: &str, now: u64) -> Option<(&Member, u64)> {
        self.members.get(name).map(|(member, seen)| (member, now - seen))
    }

    fn remove(&mut self, who: &Holder) {
        self.dead.insert(key(who));
        self.members.remove(&who.node);
    }

    /// As it is told: without those that are dead and were not removed yet.
    fn alive(&self, now: u64) -> Renewed {
        let seen = self.members.values().map(|(member, seen)| (member, now - seen));
        let alive = seen.filter(|(member, silent)| *silent <= member.lease_ms || self.patient);
        let members = alive
            .map(|(member, silent_ms)| ObservedMember { member: member.clone(), silent_ms })
            .collect();
        let now = Timestamp::from_millisecond(now.try_into().unwrap()).unwrap();
        Renewed::Alive { now, members }
    }
}

fn key(who: &Holder) -> (String, String) {
    (who.node.clone(), who.incarnation.clone())
}
