//! The membership of a cluster in one process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use abide_actors::identity::NodeName;
use abide_actors::journal::{Holder, StoreError};
use abide_conversation::Timestamp;
use abide_registry::member::ProcessId;
use abide_registry::membership::{Member, Membership, MembershipStatus, ObservedMember};
use async_trait::async_trait;
use tokio::time::Instant;

use crate::test_node::LEASE;

/// Each member and when it last renewed, by node name.
type Registrations = BTreeMap<NodeName, (Member, Instant)>;

/// The membership's table, in memory and on paused time.
#[derive(Default)]
pub struct MemberTable {
    registrations: Mutex<Registrations>,
    /// All processes in the order in which they first entered.
    processes: Mutex<Vec<ProcessId>>,
}

impl MemberTable {
    /// The registrations whose lease has not lapsed.
    fn current(&self) -> MutexGuard<'_, Registrations> {
        let mut all = self.registrations.lock().unwrap();
        all.retain(|_, (_, renewed)| renewed.elapsed() <= LEASE);
        all
    }

    /// The holders that are alive.
    pub fn alive(&self) -> Vec<Holder> {
        self.current().values().map(|(member, _)| member.holder.clone()).collect()
    }
}

/// One node's access to the membership.
pub struct MembershipHandle {
    pub members: Arc<MemberTable>,
    /// While set, the node cannot reach it.
    pub down: Arc<AtomicBool>,
}

impl MembershipHandle {
    fn registrations(&self) -> Result<MutexGuard<'_, Registrations>, StoreError> {
        if self.down.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("the membership is down".to_owned()));
        }
        Ok(self.members.current())
    }
}

fn alive(all: &Registrations) -> MembershipStatus {
    let silent = |renewed: &Instant| u64::try_from(renewed.elapsed().as_millis()).unwrap();
    let observed = |(member, renewed): &(Member, Instant)| ObservedMember {
        member: member.clone(),
        silent_ms: silent(renewed),
    };
    MembershipStatus::Alive {
        now: Timestamp::UNIX_EPOCH,
        members: all.values().map(observed).collect(),
    }
}

#[async_trait]
impl Membership for MembershipHandle {
    async fn members(&self) -> Result<Vec<Member>, StoreError> {
        Ok(self.registrations()?.values().map(|(member, _)| member.clone()).collect())
    }

    async fn enter(&self, me: &Member) -> Result<MembershipStatus, StoreError> {
        let mut all = self.registrations()?;
        let mut processes = self.members.processes.lock().unwrap();
        if !processes.contains(&me.process) {
            processes.push(me.process.clone());
        }
        let place = |process: &ProcessId| processes.iter().position(|known| known == process);
        let present = all.get(&me.holder.node).map(|(present, _)| &present.process);
        if present.is_some_and(|present| place(present) > place(&me.process)) {
            return Ok(MembershipStatus::Evicted);
        }
        all.insert(me.holder.node.clone(), (me.clone(), Instant::now()));
        Ok(alive(&all))
    }

    async fn renew(&self, me: &Member) -> Result<MembershipStatus, StoreError> {
        let mut all = self.registrations()?;
        match all.get_mut(&me.holder.node) {
            Some((member, renewed)) if member.holder == me.holder => {
                (*member, *renewed) = (me.clone(), Instant::now());
                Ok(alive(&all))
            }
            _ => Ok(MembershipStatus::Evicted),
        }
    }

    async fn declare_dead_if(&self, who: &Holder, suspect: bool) -> Result<bool, StoreError> {
        let mut all = self.registrations()?;
        let there = all.get(&who.node).is_some_and(|(member, _)| member.holder == *who);
        if there && suspect {
            all.remove(&who.node);
        }
        Ok(!there || suspect)
    }

    async fn leave(&self, who: &Holder) -> Result<(), StoreError> {
        let mut all = self.registrations()?;
        if all.get(&who.node).is_some_and(|(member, _)| member.holder == *who) {
            all.remove(&who.node);
        }
        Ok(())
    }
}
