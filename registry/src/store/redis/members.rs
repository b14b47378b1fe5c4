//! Redis as the membership of a cluster, by the server's clock.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use abide_actors::journal::{Holder, StoreError};
use abide_conversation::Timestamp;
use async_trait::async_trait;
use redis::cmd;

use super::super::Compression;
use super::Redis;
use super::command::error::refused;
use super::command::keys::Tag;
use super::rows::decode;
use super::scripts::MemberList;
use crate::membership::{Member, Membership, MembershipStatus, ObservedMember};
use crate::protocol::STORED_FORM_VERSION;

/// With `replicas=N`, what a node concludes from an answer survives a fail-over, as the answer to a
/// commit does: its own lease, its own death and the death of another one are on N replicas, or the
/// outcome is unknown. Otherwise a new primary could know an older lease than the one by which a node
/// still runs tools, and members that others have taken conversations from.
///
/// Silence that the server could not hear, since it was away or its clock went back, is not held
/// against a member: its lease starts anew, once until it is heard again. A process whose name
/// another process has taken stays out as long as that one lives.
#[async_trait]
impl Membership for Redis {
    async fn members(&self) -> Result<Vec<Member>, StoreError> {
        let mut command = cmd("HVALS");
        command.arg(Tag::Members.key("members"));
        let rows: Vec<Vec<u8>> = self.query(Tag::Members, command).await?;
        rows.iter().map(|row| decode::parse("a member", row)).collect()
    }

    async fn enter(&self, me: &Member) -> Result<MembershipStatus, StoreError> {
        self.status(&Arc::default(), self.enter_by_script(me).await?)
    }

    async fn renew(&self, me: &Member) -> Result<MembershipStatus, StoreError> {
        let known = self.known_members.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.status(&known, self.renew_by_script(me, &known.digest).await?)
    }

    async fn declare_dead_if(&self, who: &Holder, suspect: bool) -> Result<bool, StoreError> {
        self.declare_dead_by_script(who, suspect).await
    }

    async fn leave(&self, who: &Holder) -> Result<(), StoreError> {
        // Nobody relies on this answer: whoever takes over declares the member dead once more.
        self.leave_by_script(who).await
    }
}

/// The members of the last answer that contained them, in its order.
#[derive(Debug, Default)]
pub(super) struct KnownMembers {
    digest: Vec<u8>,
    members: Vec<Member>,
}

impl Redis {
    /// What an answer says of the members to a node that knew these.
    fn status(
        &self,
        known: &Arc<KnownMembers>,
        alive: Option<MemberList>,
    ) -> Result<MembershipStatus, StoreError> {
        let Some(alive) = alive else { return Ok(MembershipStatus::Evicted) };
        let [now, digest, silences, entries @ ..] = alive.as_slice() else {
            return Err(refused("the list of members is empty".to_owned()));
        };
        let now = Timestamp::from_millisecond(decode::parse("the clock", now)?)
            .map_err(|error| refused(format!("the clock: {error}")))?;
        let listed = if entries.is_empty() && *digest == known.digest {
            known.clone()
        } else {
            let members = entries.iter().map(|entry| decode::parse("a member", entry));
            let members = members.collect::<Result<_, _>>()?;
            let listed = Arc::new(KnownMembers { digest: digest.clone(), members });
            self.look_for_older(&listed.members);
            *self.known_members.lock().unwrap_or_else(PoisonError::into_inner) = listed.clone();
            listed
        };
        let members = observed(&listed.members, silences)?;
        Ok(MembershipStatus::Alive { now, members })
    }
}

impl Redis {
    /// Notes whether a member reads nothing that is compressed. One that is silent counts, too: it may be
    /// heard again.
    fn look_for_older(&self, members: &[Member]) {
        let older = members.iter().find(|member| member.stored_form_version < STORED_FORM_VERSION);
        let had_older = self.has_older_members.swap(older.is_some(), Ordering::Relaxed);
        if let (Some(older), false, Compression::Zstd) = (older, had_older, self.compression) {
            let node = older.holder.node.as_str();
            tracing::warn!(
                node,
                "nothing is compressed while a node of an earlier version is there"
            );
        }
    }
}

/// The members that are alive, by name. Those that are dead and not removed yet are left out.
fn observed(members: &[Member], silences: &[u8]) -> Result<Vec<ObservedMember>, StoreError> {
    let silences = silences.split(|byte| *byte == b' ');
    let silences = silences.map(|silent_ms| decode::parse("a member's silence", silent_ms));
    let silences: Vec<u64> = silences.collect::<Result<_, _>>()?;
    if silences.len() != members.len() {
        return Err(refused("the list of members is incomplete".to_owned()));
    }
    let all = members.iter().zip(silences);
    let alive = all.filter(|(member, silent_ms)| *silent_ms <= member.lease_ms);
    let mut alive: Vec<ObservedMember> = alive
        .map(|(member, silent_ms)| ObservedMember { member: member.clone(), silent_ms })
        .collect();
    alive.sort_by(|one, other| one.member.holder.node.cmp(&other.member.holder.node));
    Ok(alive)
}
