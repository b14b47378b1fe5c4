//! An approval that several people may have to give, as far as they have voted.

use serde::{Deserialize, Serialize};

use crate::approval::{ApprovalPolicy, SubjectId, Vote};
use crate::event::Voted;
use crate::permission::Verdict;
use crate::{CallArgs, Timestamp};

/// What a suspension knows of the approval that it waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenApproval {
    pub policy: ApprovalPolicy,
    /// Votes on the arguments as they are now, oldest first: at most one of each subject.
    #[serde(default)]
    pub votes: Vec<Vote>,
    /// The arguments as the last voter who edited them left them.
    #[serde(default)]
    pub edited: Option<EditedArgs>,
}

/// Arguments that an approver edited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EditedArgs {
    pub args: CallArgs,
    /// The gate's verdict on them; `None` if nothing could judge them.
    #[serde(rename = "gate")]
    pub verdict: Option<Verdict>,
}

impl OpenApproval {
    /// An approval for which nobody has voted yet.
    pub fn new(policy: ApprovalPolicy) -> Self {
        Self { policy, votes: Vec::new(), edited: None }
    }

    /// Counts a vote. Edited arguments begin the count anew. Another vote of the same subject replaces
    /// the one whose credential was revoked.
    pub(crate) fn count(&mut self, voted: &Voted) {
        if let Some(args) = voted.args.clone() {
            self.edited = Some(EditedArgs { args, verdict: voted.verdict.clone() });
            self.votes.clear();
        }
        let voter = voted.vote.by.subject();
        self.votes.retain(|vote| !vote.by.subject().is_same(&voter));
        self.votes.push(voted.vote.clone());
    }
}

/// A vote, as people see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PendingVote {
    /// The voter's `sub`.
    pub by: String,
    pub iss: String,
    pub approved: bool,
    pub at: Timestamp,
}

impl PendingVote {
    /// Whether it is this subject's.
    pub fn is_by(&self, subject: &SubjectId) -> bool {
        let own = SubjectId { iss: self.iss.clone(), sub: self.by.clone() };
        own.is_same(subject)
    }
}

impl From<&Vote> for PendingVote {
    fn from(vote: &Vote) -> Self {
        let SubjectId { iss, sub } = vote.by.subject();
        Self { by: sub, iss, approved: vote.approved, at: vote.by.at }
    }
}
