//! Redis as the register of a cluster's members, by its own clock.

use abide_actors::journal::{Holder, StoreError};
use abide_conversation::Timestamp;
use async_trait::async_trait;

use super::Redis;
use super::decode;
use super::error::refused;
use super::scripts::MemberList;
use crate::membership::{Member, Membership, ObservedMember, Renewed};

/// Who was silent itself for half of its lease, as after the server was away, believes the others
/// for a lease more: their silence says nothing then. A process whose name another has taken
/// stays out while that one lives.
#[async_trait]
impl Membership for Redis {
    async fn enter(&self, me: &Member) -> Result<Renewed, StoreError> {
        renewed(self.enter_by_script(me).await?)
    }

    async fn renew(&self, me: &Member) -> Result<Renewed, StoreError> {
        renewed(self.renew_by_script(me).await?)
    }

    async fn declare_dead_if(&self, who: &Holder, suspect: bool) -> Result<bool, StoreError> {
        self.declare_dead_by_script(who, suspect).await
    }

    async fn leave(&self, who: &Holder) -> Result<(), StoreError> {
        self.declare_dead_by_script(who, true).await.map(|_| ())
    }
}

fn renewed(alive: Option<MemberList>) -> Result<Renewed, StoreError> {
    let Some(alive) = alive else { return Ok(Renewed::Evicted) };
    let [now, rows @ ..] = alive.as_slice() else {
        return Err(refused("the members: nothing was read".to_owned()));
    };
    let now = Timestamp::from_millisecond(decode::parse("the clock", now)?)
        .map_err(|error| refused(format!("the clock: {error}")))?;
    let mut members = Vec::with_capacity(rows.len() / 2);
    for row in rows.chunks_exact(2) {
        let silent_ms = decode::parse("a member's silence", &row[1])?;
        let member: Member = decode::parse("a member", &row[0])?;
        // One that is dead and was not removed yet.
        if silent_ms <= member.lease_ms {
            members.push(ObservedMember { member, silent_ms });
        }
    }
    members.sort_by(|one, other| one.member.holder.node.cmp(&other.member.holder.node));
    Ok(Renewed::Alive { now, members })
}
