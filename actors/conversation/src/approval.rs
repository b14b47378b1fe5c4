//! Who may approve a call, and whether those who did are enough.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::extent::Extent;
use crate::identity::{ABIDE_ISSUER, AuthMethod, Identity, Role, Subject};

/// Who may approve a call. It is journalled with the suspension: a later revision of the agent does
/// not loosen it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApprovalPolicy {
    /// An approver has one of these roles.
    pub roles: BTreeSet<Role>,
    /// An approver is in one of these groups; anybody is, if there are none.
    pub groups: BTreeSet<String>,
    /// How many must approve.
    pub quorum: u32,
    /// Who may not approve, whatever their roles.
    pub not: BTreeSet<Party>,
    /// Whether a program may approve by its API key.
    pub services: bool,
    /// How long ago an approver may have proved a second factor; absent: none is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mfa_within_ms: Option<u64>,
    pub deny: DenyRule,
    /// Others who may approve, since the call has waited for long.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub escalated: BTreeSet<ApproverGroup>,
}

/// People by their roles and groups.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApproverGroup {
    /// Each has one of these roles.
    pub roles: BTreeSet<Role>,
    /// Each is in one of these groups; anybody is, if there are none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub groups: BTreeSet<String>,
}

impl ApproverGroup {
    fn includes(&self, subject: &Subject) -> bool {
        is_of(&self.roles, &self.groups, subject)
    }
}

fn is_of(roles: &BTreeSet<Role>, groups: &BTreeSet<String>, subject: &Subject) -> bool {
    let in_group = groups.is_empty() || subject.groups.iter().any(|group| groups.contains(group));
    in_group && !roles.is_disjoint(&subject.roles)
}

/// Somebody who has a part in the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Party {
    /// The sender of the message, or the dispatcher, that led to the call, and the gateway that acted
    /// for them.
    Requester,
    /// The owner of the conversation.
    Owner,
}

/// How many denials deny a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DenyRule {
    #[default]
    One,
    /// As many as the policy asks approvals.
    Quorum,
}

/// One approver, and not the requester.
impl Default for ApprovalPolicy {
    fn default() -> Self {
        Self {
            roles: BTreeSet::from([Role::Approver]),
            groups: BTreeSet::new(),
            quorum: 1,
            not: BTreeSet::from([Party::Requester]),
            services: false,
            mfa_within_ms: None,
            deny: DenyRule::One,
            escalated: BTreeSet::new(),
        }
    }
}

/// Why a vote does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum VoteRefusal {
    /// It is the caller's own request.
    Requester,
    /// The caller owns the conversation.
    Owner,
    /// The caller has none of the roles or groups that may approve it.
    Role,
    /// The caller has voted.
    Voted,
    /// The caller's second factor is missing or too old.
    Mfa,
    /// A program may not approve it.
    Service,
}

impl VoteRefusal {
    /// The reason's name, as clients read it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requester => "requester",
            Self::Owner => "owner",
            Self::Role => "role",
            Self::Voted => "voted",
            Self::Mfa => "mfa",
            Self::Service => "service",
        }
    }
}

/// One person or program, whoever else has the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SubjectId {
    pub iss: String,
    pub sub: String,
}

impl From<&Subject> for SubjectId {
    fn from(subject: &Subject) -> Self {
        Self { iss: subject.iss.clone(), sub: subject.sub.clone() }
    }
}

impl SubjectId {
    /// Whether both are the same person. A token of this cluster names a subject of the tenant,
    /// whoever else vouches for them, so that nobody becomes another by minting a token.
    pub fn is_same(&self, other: &Self) -> bool {
        let is_vouched = self.iss == ABIDE_ISSUER || other.iss == ABIDE_ISSUER;
        self.sub == other.sub && (self.iss == other.iss || is_vouched)
    }
}

/// Those who count as the requester of what this identity asks for: the person, and the gateway that
/// acts for them.
pub fn requesters(identity: &Identity) -> impl Iterator<Item = SubjectId> {
    let person = identity.on_behalf_of.as_deref();
    std::iter::once(&identity.subject).chain(person).map(SubjectId::from)
}

/// A vote on a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Vote {
    pub by: Voter,
    pub approved: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Identifies the arguments that the vote is about: the SHA-256 of the tool's name, a null byte,
    /// and the arguments' canonical JSON.
    pub args_fingerprint: String,
    /// The later calls for which the voter wants the decision to hold, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remember: Option<Extent>,
}

/// Somebody whose vote approved a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Approver {
    #[serde(flatten)]
    pub subject: SubjectId,
    pub at: Timestamp,
}

impl From<&Voter> for Approver {
    fn from(voter: &Voter) -> Self {
        Self { subject: voter.subject(), at: voter.at }
    }
}

/// Who voted, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Voter {
    #[serde(flatten)]
    pub identity: Identity,
    pub at: Timestamp,
    /// When the voter last proved a second factor, if ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mfa_at: Option<Timestamp>,
}

impl Voter {
    /// The subject who votes: a gateway votes as the person for whom it acts.
    pub fn subject(&self) -> SubjectId {
        self.identity.acting().into()
    }

    fn is_service(&self) -> bool {
        self.identity.auth == AuthMethod::Key && self.identity.on_behalf_of.is_none()
    }

    fn proved_second_factor_within(&self, within_ms: u64) -> bool {
        let age = self.mfa_at.map(|proved_at| self.at.duration_since(proved_at).as_millis());
        age.is_some_and(|age| age <= i128::from(within_ms))
    }
}

/// The parties of a call.
#[derive(Clone, Copy, Debug)]
pub struct Parties<'a> {
    pub requesters: &'a BTreeSet<SubjectId>,
    pub owner: Option<&'a str>,
}

/// What the votes have decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tally {
    /// Further approvals are needed; their number.
    Open {
        missing: u32,
    },
    Approved,
    Denied,
}

impl ApprovalPolicy {
    /// Whether an approver is one of those whom the policy asks, whatever their part in the call.
    pub fn asks(&self, approver: &Subject) -> bool {
        is_of(&self.roles, &self.groups, approver)
            || self.escalated.iter().any(|group| group.includes(approver))
    }

    /// Checks a vote by this voter, who may have voted on the same arguments before.
    pub fn check(
        &self,
        voter: &Voter,
        parties: Parties<'_>,
        has_voted: bool,
    ) -> Result<(), VoteRefusal> {
        let subject = voter.subject();
        if voter.is_service() && !self.services {
            Err(VoteRefusal::Service)
        } else if !self.asks(voter.identity.acting()) {
            Err(VoteRefusal::Role)
        } else if self.not.contains(&Party::Requester)
            && parties.requesters.iter().any(|requester| requester.is_same(&subject))
        {
            Err(VoteRefusal::Requester)
        } else if self.not.contains(&Party::Owner) && parties.owner == Some(&*subject.sub) {
            Err(VoteRefusal::Owner)
        } else if self.mfa_within_ms.is_some_and(|ms| !voter.proved_second_factor_within(ms)) {
            Err(VoteRefusal::Mfa)
        } else if has_voted {
            Err(VoteRefusal::Voted)
        } else {
            Ok(())
        }
    }

    /// Counts votes, each by somebody else.
    pub fn tally<'a>(&self, votes: impl IntoIterator<Item = &'a Vote>) -> Tally {
        let (mut approvals, mut denials) = (0_u32, 0_u32);
        for vote in votes {
            let count = if vote.approved { &mut approvals } else { &mut denials };
            *count = count.saturating_add(1);
        }
        let denied_by = match self.deny {
            DenyRule::One => 1,
            DenyRule::Quorum => self.quorum,
        };
        if denials >= denied_by {
            Tally::Denied
        } else if approvals >= self.quorum {
            Tally::Approved
        } else {
            Tally::Open { missing: self.quorum - approvals }
        }
    }
}

#[cfg(test)]
mod tests;
