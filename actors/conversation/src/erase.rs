//! An alias takes the place of an erased subject wherever an event names people.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::approval::{Approver, SubjectId, Vote};
use crate::event::{Created, EffectiveArgs, EventData, Resolution, UserMsg};
use crate::identity::{Identity, Subject, TokenMinter};
use crate::ids::Principal;
use crate::permission::Verdict;
use crate::remembered_decision::RememberedDecision;

/// A subject of the tenant, whoever vouches for them, and the name that takes their place.
///
/// Only the places where a principal stands are changed: what people have written about the subject
/// stays as it is, and the owner of a conversation is never another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubjectAlias {
    pub subject: String,
    pub alias: String,
}

impl SubjectAlias {
    /// Puts the alias into the event. Returns whether the event named the subject.
    ///
    /// An event of a type that only newer programs know is left as it is.
    pub fn apply(&self, data: &mut EventData) -> bool {
        match data {
            EventData::Created(created) => self.created(created),
            EventData::UserMsg(message) => self.user_msg(message),
            EventData::MessageScheduled(scheduled) => self.user_msg(&mut scheduled.user_msg),
            EventData::ToolCall(call) => self.optional(&mut call.gate, Self::verdict),
            EventData::Voted(voted) => {
                self.vote(&mut voted.vote) | self.optional(&mut voted.verdict, Self::verdict)
            }
            EventData::Resolution(resolution) => self.resolution(resolution),
            EventData::InputRequired(input) => self.ran(&mut input.effective_args),
            EventData::ToolResult(result) => self.ran(&mut result.effective_args),
            EventData::ChildStarted(started) => self.ran(&mut started.effective_args),
            EventData::ToolQueued(queued) => self.ran(&mut queued.effective_args),
            EventData::CallbackAwaited(awaited) => self.ran(&mut awaited.effective_args),
            EventData::DispatchStarted(run) => {
                self.by(&mut run.principal, &mut run.identity)
                    | self.optional(&mut run.verdict, Self::verdict)
            }
            EventData::DispatchFinished(done) => {
                self.principal(&mut done.principal)
                    | self.optional(&mut done.verdict, Self::verdict)
                    | self.ran(&mut done.effective_args)
            }
            EventData::DecisionRemembered(remembered) => self.decision(&mut remembered.decision),
            EventData::Updated(updated) => {
                self.by(&mut updated.by, &mut updated.identity)
                    | self.optional(&mut updated.members, |erased, names| erased.names(names))
            }
            EventData::Operated(operated) => self.by(&mut operated.by, &mut operated.identity),
            EventData::ScheduleEnded(it) => self.by_somebody(&mut it.by, &mut it.identity),
            EventData::StateChanged(it) => self.by_somebody(&mut it.by, &mut it.identity),
            EventData::SuspensionExtended(it) => self.by(&mut it.by, &mut it.identity),
            EventData::TurnWithdrawn(it) => self.by(&mut it.by, &mut it.identity),
            // A worker that names itself in no other way has the name of its subject.
            EventData::ToolLeased(it) => self.name(&mut it.worker),
            EventData::Steered(it) => self.by(&mut it.principal, &mut it.identity),
            EventData::Rewound(it) => self.by(&mut it.by, &mut it.identity),
            EventData::TurnStarted(_)
            | EventData::AssistantMsg(_)
            | EventData::Suspension(_)
            | EventData::ToolStarted(_)
            | EventData::RepairRequested(_)
            | EventData::ContextAdded(_)
            | EventData::MessageRefused(_)
            | EventData::Forked(_)
            | EventData::ContextReduced(_)
            | EventData::Summarized(_)
            | EventData::SummaryFailed(_)
            | EventData::TurnEnded(_)
            | EventData::PhaseChanged(_)
            | EventData::TodosChanged(_)
            | EventData::WorkspaceOpened(_)
            | EventData::ChildEnded(_)
            | EventData::ChildReleased(_)
            | EventData::ParentNotified(_)
            | EventData::Abandoned {}
            | EventData::DecisionPublished(_)
            | EventData::DecisionRevoked(_)
            | EventData::SuspensionExpiring(_)
            | EventData::SuspensionEscalated(_)
            | EventData::ToolAttemptFailed(_)
            | EventData::Unknown(_) => false,
        }
    }

    /// Puts the alias into a remembered decision. Returns whether it named the subject.
    pub fn decision(&self, decision: &mut RememberedDecision) -> bool {
        self.principal(&mut decision.by) | self.approvers(&mut decision.voters)
    }

    /// Puts the alias into a name. Returns whether it was that of the subject.
    pub fn name(&self, name: &mut String) -> bool {
        let is_subject = *name == self.subject;
        if is_subject {
            name.clone_from(&self.alias);
        }
        is_subject
    }

    fn created(&self, created: &mut Created) -> bool {
        let requesters = created.parent.as_mut().map(|parent| &mut parent.requesters);
        let is_requester = requesters.is_some_and(|requesters| self.subject_ids(requesters));
        self.names(&mut created.members) | is_requester
    }

    fn user_msg(&self, message: &mut UserMsg) -> bool {
        self.by(&mut message.principal, &mut message.identity)
    }

    fn resolution(&self, resolution: &mut Resolution) -> bool {
        self.by(&mut resolution.by, &mut resolution.identity)
            | self.optional(&mut resolution.verdict, Self::verdict)
            | self.approvers(&mut resolution.approvals)
    }

    fn vote(&self, vote: &mut Vote) -> bool {
        self.person(&mut vote.by.identity)
    }

    fn verdict(&self, verdict: &mut Verdict) -> bool {
        self.optional(&mut verdict.by, Self::principal) | self.approvers(&mut verdict.approvals)
    }

    fn ran(&self, args: &mut Option<EffectiveArgs>) -> bool {
        self.optional(args, |alias, args| alias.verdict(&mut args.verdict))
    }

    fn by(&self, principal: &mut Principal, identity: &mut Option<Arc<Identity>>) -> bool {
        self.principal(principal) | self.identity(identity)
    }

    fn by_somebody(
        &self,
        principal: &mut Option<Principal>,
        identity: &mut Option<Arc<Identity>>,
    ) -> bool {
        self.optional(principal, Self::principal) | self.identity(identity)
    }

    fn principal(&self, principal: &mut Principal) -> bool {
        let is_subject = principal.as_str() == self.subject;
        if is_subject {
            *principal = Principal::new(self.alias.as_str());
        }
        is_subject
    }

    fn identity(&self, identity: &mut Option<Arc<Identity>>) -> bool {
        self.optional(identity, |alias, identity| {
            let mut changed = Identity::clone(identity);
            let is_named = alias.person(&mut changed);
            if is_named {
                *identity = Arc::new(changed);
            }
            is_named
        })
    }

    /// Puts the alias into what is known of somebody who was authenticated.
    pub fn person(&self, identity: &mut Identity) -> bool {
        let behalf = identity.on_behalf_of.as_deref_mut();
        let is_behalf = behalf.is_some_and(|person| self.subject(person));
        let minter = identity.minted_by.as_deref_mut();
        let is_minter = minter.is_some_and(|TokenMinter { sub, .. }| self.name(sub));
        self.subject(&mut identity.subject) | is_behalf | is_minter
    }

    /// A person's display name and groups say who they are, too.
    fn subject(&self, subject: &mut Subject) -> bool {
        let is_subject = self.name(&mut subject.sub);
        if is_subject {
            subject.name = None;
            subject.groups.clear();
        }
        is_subject
    }

    fn names(&self, names: &mut [String]) -> bool {
        names.iter_mut().fold(false, |named, name| named | self.name(name))
    }

    fn approvers(&self, approvers: &mut [Approver]) -> bool {
        let name = |named, approver: &mut Approver| named | self.name(&mut approver.subject.sub);
        approvers.iter_mut().fold(false, name)
    }

    fn subject_ids(&self, ids: &mut BTreeSet<SubjectId>) -> bool {
        let is_named = ids.iter().any(|id| id.sub == self.subject);
        if is_named {
            let named = std::mem::take(ids).into_iter().map(|mut id| {
                self.name(&mut id.sub);
                id
            });
            *ids = named.collect();
        }
        is_named
    }

    fn optional<T>(
        &self,
        value: &mut Option<T>,
        apply: impl FnOnce(&Self, &mut T) -> bool,
    ) -> bool {
        value.as_mut().is_some_and(|value| apply(self, value))
    }
}
