//! What a request may do to a conversation. The border decides whom it reaches; whose the conversation
//! is, is known where its state is, and there the request is judged, without asking anybody.

use abide_conversation::approval::{Parties, VoteRefusal, Voter};
use abide_conversation::event::SuspensionKind;
use abide_conversation::identity::{AuthMethod, Identity, Participants, Role};
use abide_conversation::state::PendingCall;
use abide_conversation::{AgentName, CallId, Scoped, Timestamp};
use serde::{Deserialize, Serialize};

/// Who makes a request, and what that permits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Everything: the program itself, an operator's repair, or a node that authenticates nobody.
    #[default]
    Unrestricted,
    /// Somebody who was authenticated.
    Caller(Box<CallerAccess>),
}

/// What somebody may do, as far as the border knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerAccess {
    pub identity: Identity,
    /// When the caller last used a second factor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mfa_at: Option<Timestamp>,
    /// The conversations that the caller may read. Others do not exist for the caller.
    pub read: Reach,
    /// The conversations that the request may be made to.
    pub act: Reach,
    /// What a caller lacks who may read a conversation and not do this, such as "send".
    pub needs: String,
    /// The agent, if it is limited, of conversations that the request may create; `None`: it may
    /// create none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create: Option<CreateAccess>,
    /// Answers to calls only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<AnswerAccess>,
    /// The moment at which the conversation must have been created: one that was deleted and made
    /// anew is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub born: Option<Timestamp>,
}

/// Which conversations somebody may create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CreateAccess {
    OfAnyAgent,
    Of(AgentName),
}

/// Which calls somebody may answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerAccess {
    pub client: Reach,
    pub human: Reach,
    pub approval: Reach,
    /// The only calls and suspensions, for a reply link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Vec<(CallId, u32)>>,
}

/// The conversations that somebody reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// Nobody's.
    None,
    /// Those of which the caller is the owner.
    Own,
    /// Those of which the caller is the owner or a member.
    Shared,
    /// All of the tenant.
    Tenant,
}

/// Why somebody may not do something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessError {
    /// The conversation does not exist, as far as the caller may know.
    Hidden,
    /// The caller may read it, and lacks this.
    Needs(String),
    /// The caller's answer to an approval does not count.
    Approval(VoteRefusal),
}

impl Reach {
    fn includes(self, participants: &Participants, sub: &str) -> bool {
        match self {
            Self::None => false,
            Self::Own => participants.is_owner(sub),
            Self::Shared => participants.include(sub),
            Self::Tenant => true,
        }
    }
}

impl Access {
    /// Whether the request may do everything.
    pub fn is_unrestricted(&self) -> bool {
        *self == Self::Unrestricted
    }

    /// The caller's identity, for the journal; `None` if nobody was authenticated.
    pub fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Unrestricted => None,
            Self::Caller(caller) => Some(&caller.identity),
        }
    }

    /// Whether what the request is about is of the caller's tenant. The border makes no other request;
    /// a node that gets one from another node asks.
    pub fn check_tenant<N>(&self, id: &Scoped<N>) -> Result<(), AccessError> {
        let Self::Caller(caller) = self else { return Ok(()) };
        let is_own = caller.identity.tenant.as_ref().is_some_and(|tenant| id.is_of(tenant));
        if is_own { Ok(()) } else { Err(AccessError::Hidden) }
    }

    /// Who votes on an approval by this request; `None` if nobody was authenticated.
    pub fn voter(&self, at: Timestamp) -> Option<Voter> {
        match self {
            Self::Unrestricted => None,
            Self::Caller(caller) => Some(caller.voter(at)),
        }
    }

    /// When the caller last proved a second factor, if ever.
    pub fn mfa_at(&self) -> Option<Timestamp> {
        match self {
            Self::Unrestricted => None,
            Self::Caller(caller) => caller.mfa_at,
        }
    }

    /// Whether the caller may make decisions that hold for all conversations of an agent.
    pub fn check_agent_decision(&self) -> Result<(), AccessError> {
        let Self::Caller(caller) = self else { return Ok(()) };
        // A token permits its scopes alone, whatever roles its subject has.
        let has_roles = caller.identity.auth != AuthMethod::Token;
        if has_roles && caller.identity.acting().roles.contains(&Role::TenantAdmin) {
            Ok(())
        } else {
            Err(AccessError::Needs("manage_decisions".to_owned()))
        }
    }

    /// Whether the request may be made to a conversation with these participants, which was created
    /// then.
    pub fn check(
        &self,
        participants: &Participants,
        created_at: Option<Timestamp>,
    ) -> Result<(), AccessError> {
        let Self::Caller(caller) = self else { return Ok(()) };
        let CallerAccess { read, act, answer, needs, .. } = &**caller;
        let includes = |reach: &Reach| caller.includes(*reach, participants, created_at);
        let answers = answer.iter().flat_map(AnswerAccess::reaches);
        if includes(act) || answers.into_iter().any(|reach| includes(&reach)) {
            Ok(())
        } else if includes(read) {
            Err(AccessError::Needs(needs.clone()))
        } else {
            Err(AccessError::Hidden)
        }
    }

    /// Whether the caller may read a conversation with these participants, whatever the request is.
    pub fn check_read(
        &self,
        participants: &Participants,
        created_at: Option<Timestamp>,
    ) -> Result<(), AccessError> {
        let Self::Caller(caller) = self else { return Ok(()) };
        if caller.includes(caller.read, participants, created_at) {
            Ok(())
        } else {
            Err(AccessError::Hidden)
        }
    }

    /// Whether the request may create the conversation that it is for.
    pub fn check_create(&self, agent: &AgentName) -> Result<(), AccessError> {
        let Self::Caller(caller) = self else { return Ok(()) };
        match &caller.create {
            Some(CreateAccess::OfAnyAgent) => Ok(()),
            Some(CreateAccess::Of(only)) if only == agent => Ok(()),
            Some(CreateAccess::Of(_)) => Err(AccessError::Needs("create".to_owned())),
            None => Err(AccessError::Hidden),
        }
    }

    /// Whether the caller may answer this suspension of a call, which waits for this.
    pub fn check_answer(
        &self,
        participants: &Participants,
        created_at: Option<Timestamp>,
        (call, suspension, kind): (&CallId, u32, SuspensionKind),
    ) -> Result<(), AccessError> {
        let Self::Caller(caller) = self else { return Ok(()) };
        let Some(answer) = &caller.answer else { return Err(AccessError::Hidden) };
        let reach = answer.reach(kind);
        let is_meant = answer
            .only
            .as_ref()
            .is_none_or(|only| only.iter().any(|(id, number)| (id, *number) == (call, suspension)));
        if is_meant && caller.includes(reach, participants, created_at) {
            return Ok(());
        }
        let needs = match kind {
            // Whoever may not read the conversation learns of no call in it.
            _ if !caller.includes(caller.read, participants, created_at) => AccessError::Hidden,
            SuspensionKind::Approval | SuspensionKind::InDoubt => {
                AccessError::Approval(VoteRefusal::Role)
            }
            SuspensionKind::Elicitation => AccessError::Needs("answer:human".to_owned()),
            SuspensionKind::ClientExec => AccessError::Needs("answer:client".to_owned()),
        };
        Err(needs)
    }
}

impl CallerAccess {
    fn voter(&self, at: Timestamp) -> Voter {
        Voter { identity: self.identity.clone(), at, mfa_at: self.mfa_at }
    }

    fn includes(
        &self,
        reach: Reach,
        participants: &Participants,
        created_at: Option<Timestamp>,
    ) -> bool {
        let is_same = self.born.is_none_or(|born| Some(born) == created_at);
        is_same && reach.includes(participants, &self.identity.acting().sub)
    }
}

/// Somebody who may answer calls, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answerer {
    pub access: Access,
    pub at: Timestamp,
}

impl Answerer {
    /// The answerer in conversations of which it was judged that the caller's token is for them, and
    /// not for one that was deleted.
    pub fn within_token(mut self) -> Self {
        if let Access::Caller(caller) = &mut self.access {
            caller.born = None;
        }
        self
    }

    /// Whether this open suspension of a conversation with these participants could be answered now.
    pub fn may_answer(&self, participants: &Participants, pending: &PendingCall) -> bool {
        self.check(participants, pending).is_ok()
    }

    /// Like [`may_answer`](Self::may_answer), with the reason if it could not be answered.
    pub fn check(
        &self,
        participants: &Participants,
        pending: &PendingCall,
    ) -> Result<(), AccessError> {
        let place = (&pending.call_id, pending.suspension, pending.kind);
        self.access.check_answer(participants, None, place)?;
        let (Some(voter), Some(policy)) = (self.access.voter(self.at), &pending.policy) else {
            return Ok(());
        };
        let parties =
            Parties { requesters: &pending.requesters, owner: participants.owner.as_deref() };
        let subject = voter.subject();
        let has_voted = pending.votes.iter().flatten().any(|vote| vote.is_by(&subject));
        policy.check(&voter, parties, has_voted).map_err(AccessError::Approval)
    }
}

impl AnswerAccess {
    /// The reach of an answer to a suspension of this kind.
    pub fn reach(&self, kind: SuspensionKind) -> Reach {
        match kind {
            SuspensionKind::Approval | SuspensionKind::InDoubt => self.approval,
            SuspensionKind::Elicitation => self.human,
            SuspensionKind::ClientExec => self.client,
        }
    }

    fn reaches(&self) -> [Reach; 3] {
        [self.client, self.human, self.approval]
    }
}

#[cfg(test)]
mod tests;
