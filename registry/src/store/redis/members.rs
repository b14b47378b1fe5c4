//! Redis as the membership of a cluster, by the server's clock.

use abide_actors::journal::{Holder, StoreError};
use abide_conversation::Timestamp;
use async_trait::async_trait;
use redis::cmd;

use super::Redis;
use super::decode;
use super::error::refused;
use super::keys::Tag;
use super::scripts::MemberList;
use crate::membership::{Member, Membership, MembershipStatus, ObservedMember};

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
        to_status(self.enter_by_script(me).await?)
    }

    async fn renew(&self, me: &Member) -> Result<MembershipStatus, StoreError> {
        to_status(self.renew_by_script(me).await?)
    }

    async fn declare_dead_if(&self, who: &Holder, suspect: bool) -> Result<bool, StoreError> {
        self.declare_dead_by_script(who, suspect).await
    }

    async fn leave(&self, who: &Holder) -> Result<(), StoreError> {
        // Nobody relies on this answer: whoever takes over declares the member dead once more.
        self.leave_by_script(who).await
    }
}

fn to_status(alive: Option<MemberList>) -> Result<MembershipStatus, StoreError> {
    let Some(alive) = alive else { return Ok(MembershipStatus::Evicted) };
    let [now, rows @ ..] = alive.as_slice() else {
        return Err(refused("the list of members is empty".to_owned()));
    };
    let now = Timestamp::from_millisecond(decode::parse("the clock", now)?)
        .map_err(|error| refused(format!("the clock: {error}")))?;
    let mut members = Vec::with_capacity(rows.len() / 2);
    for row in rows.chunks_exact(2) {
        let silent_ms = decode::parse("a member's silence", &row[1])?;
        let member: Member = decode::parse("a member", &row[0])?;
        // Members that are dead and not removed yet are left out.
        if silent_ms <= member.lease_ms {
            members.push(ObservedMember { member, silent_ms });
        }
    }
    members.sort_by(|one, other| one.member.holder.node.cmp(&other.member.holder.node));
    Ok(MembershipStatus::Alive { now, members })
}
