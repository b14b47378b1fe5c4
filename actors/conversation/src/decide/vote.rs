//! An answer to an approval that has a policy is a vote.

use super::Rejection;
use crate::approval::{ApprovalPolicy, Approver, Parties, Tally, Vote, Voter};
use crate::command::{ResolutionAnswer, Resolve};
use crate::event::Voted;
use crate::identity::Identity;
use crate::permission::{Decision, Verdict};
use crate::remembered_decision::Extent;
use crate::state::{Call, OpenApproval, OpenSuspension, State};
use crate::{CallArgs, Timestamp};

/// What an answer amounts to.
pub(super) enum Count {
    /// Further votes are needed.
    Open(Box<Voted>),
    /// The answer decides.
    Decided {
        /// The voters who agree with it, the last of them by the answer itself; empty if nobody was
        /// authenticated.
        voters: Vec<Approver>,
        /// How far all of them want the decision to hold.
        extent: Option<Extent>,
    },
}

/// Counts an answer. Any answer decides that is no approval, that waits for no policy, or that comes
/// where nobody is authenticated.
pub(super) fn count(
    state: &State,
    at: Timestamp,
    (call, open): (&Call, &OpenSuspension),
    resolve: &Resolve,
) -> Result<Count, Rejection> {
    let wish = resolve.remember.as_ref().map(|remember| remember.extent);
    let undisputed = Count::Decided { voters: Vec::new(), extent: wish };
    let ResolutionAnswer::Approval { approved, reason, args } = &resolve.answer else {
        if let (Some(asked), Some(identity)) = (&open.approval, &resolve.identity) {
            // A call in doubt: whoever may approve it says what becomes of it, and one is enough.
            check(state, at, (&asked.policy, identity), resolve)?;
        }
        return Ok(undisputed);
    };
    let (Some(approval), Some(identity)) = (&open.approval, &resolve.identity) else {
        return Ok(undisputed);
    };
    let edited = args.as_ref().filter(|args| *approved && *call.args_to_approve() != **args);
    let mut votes = match edited {
        // Nobody has voted on these arguments.
        Some(_) => Vec::new(),
        None => valid_votes(approval, resolve),
    };
    let voter = Voter { identity: (**identity).clone(), at, mfa_at: resolve.mfa_at };
    let requesters = state.requesters();
    let parties = Parties { requesters: &requesters, owner: state.participants.owner.as_deref() };
    let has_voted = votes.iter().any(|vote| vote.by.subject().is_same(&voter.subject()));
    approval.policy.check(&voter, parties, has_voted).map_err(Rejection::VoteRefused)?;
    let vote = Vote {
        by: voter,
        approved: *approved,
        reason: reason.clone(),
        args_fingerprint: resolve.args_fingerprint.clone(),
        remember: wish,
    };
    votes.push(vote.clone());
    let is_refused = |verdict: &Verdict| edited.is_some() && verdict.decision == Decision::Deny;
    let is_open = matches!(approval.policy.tally(&votes), Tally::Open { .. });
    if is_open && !resolve.verdict.as_ref().is_some_and(is_refused) {
        return Ok(Count::Open(Box::new(Voted {
            call_id: call.id.clone(),
            suspension: open.suspension,
            vote,
            args: edited.cloned().map(CallArgs::from),
            verdict: resolve.verdict.clone().filter(|_| edited.is_some()),
        })));
    }
    votes.retain(|vote| vote.approved == *approved);
    let wishes: Option<Vec<Extent>> = votes.iter().map(|vote| vote.remember).collect();
    Ok(Count::Decided {
        voters: votes.iter().map(|vote| Approver::from(&vote.by)).collect(),
        extent: wishes.into_iter().flatten().reduce(Extent::and),
    })
}

/// Whether the policy lets the caller answer.
fn check(
    state: &State,
    at: Timestamp,
    (policy, identity): (&ApprovalPolicy, &Identity),
    resolve: &Resolve,
) -> Result<(), Rejection> {
    let voter = Voter { identity: identity.clone(), at, mfa_at: resolve.mfa_at };
    let requesters = state.requesters();
    let parties = Parties { requesters: &requesters, owner: state.participants.owner.as_deref() };
    policy.check(&voter, parties, false).map_err(Rejection::VoteRefused)
}

/// The votes whose credentials were not revoked.
fn valid_votes(approval: &OpenApproval, resolve: &Resolve) -> Vec<Vote> {
    let is_valid = |vote: &&Vote| !resolve.revoked.contains(&vote.by.subject());
    approval.votes.iter().filter(is_valid).cloned().collect()
}
