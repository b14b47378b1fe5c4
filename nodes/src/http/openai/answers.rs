//! Answers to calls that wait, in one commit.

use std::collections::BTreeSet;

use abide_actors::request::{AnswerOutcome, IdempotencyKey, Reply, Request, ResolveRequest};
use abide_conversation::command::ResolutionAnswer;
use abide_conversation::event::SuspensionKind;
use abide_conversation::state::PendingCall;
use abide_conversation::{CallId, ConversationId, Principal, Rejection, Scoped, Seq};

use super::input::{AnswerToCall, GivenAnswer};
use crate::access::Allowed;
use crate::access::permission::{Answer, Read};
use crate::http::Api;
use crate::http::conversations::unexpected;
use crate::problem::Problem;
use crate::protocols::openai::items::answer_id;

/// The most answers of one request.
const MAX_ANSWERS: usize = 100;

/// Delivers answers, all in one commit, and returns the event of the first. If one of them is for a call
/// that is not open, nothing is done. A repeat gets the first answer.
pub(super) async fn deliver(
    api: &Api,
    allowed: &Allowed<Answer>,
    id: &Scoped<ConversationId>,
    (answers, is_repeat): (Vec<GivenAnswer>, bool),
    keys: Vec<IdempotencyKey>,
) -> Result<Seq, Problem> {
    if answers.len() > MAX_ANSWERS {
        return Err(Problem::field("input", format!("has more than {MAX_ANSWERS} answers")));
    }
    let by = allowed.principal();
    let requests = if is_repeat {
        answers.into_iter().map(|given| unchecked(given.answer, &by)).collect()
    } else {
        let state = api.conversations.state(&allowed.with::<Read>()?, id).await?;
        checked(answers, &state.pending_calls(), &by)?
    };
    let request = Request::ResolveAll(requests);
    let outcomes = match api.conversations.deliver(allowed, id, request, keys).await? {
        Reply::ResolvedAll { outcomes } => outcomes,
        other => return Err(unexpected(&other)),
    };
    let seq = |outcome: &AnswerOutcome| match outcome {
        AnswerOutcome::Resolved { seq } | AnswerOutcome::Recorded { seq, .. } => Some(*seq),
        AnswerOutcome::Refused(_) => None,
    };
    if let Some(first) = outcomes.iter().filter_map(seq).min() {
        return Ok(first);
    }
    let refusal = outcomes.into_iter().find_map(|outcome| match outcome {
        AnswerOutcome::Refused(error) => Some(error.into()),
        AnswerOutcome::Resolved { .. } | AnswerOutcome::Recorded { .. } => None,
    });
    Err(refusal.unwrap_or_else(|| Problem::field("input", "has no answer")))
}

/// The requests to resolve the calls that are open.
fn checked(
    answers: Vec<GivenAnswer>,
    open: &[PendingCall],
    by: &Principal,
) -> Result<Vec<ResolveRequest>, Problem> {
    let mut calls = BTreeSet::new();
    let mut requests = Vec::with_capacity(answers.len());
    for GivenAnswer { at, answer } in answers {
        let pending = open.iter().find(|pending| answer.fits(pending));
        let Some(pending) = pending else {
            let why = format!("{at} answers a call that does not wait for it");
            return Err(Rejection::CallNotOpen(why.into()).into());
        };
        if !calls.insert(pending.call_id.clone()) {
            return Err(Problem::field(&at, "answers a call that has an answer before this"));
        }
        let (call, suspension) = (pending.call_id.clone(), Some(pending.suspension));
        let answer = answer.resolution();
        requests.push(ResolveRequest { call, suspension, by: by.clone(), answer, remember: None });
    }
    Ok(requests)
}

/// A request that was carried out before: only its key matters.
fn unchecked(answer: AnswerToCall, by: &Principal) -> ResolveRequest {
    let call = match &answer {
        AnswerToCall::Approval { call, .. } => call.clone(),
        AnswerToCall::Result { call_id, .. } => CallId::new(call_id.clone()),
    };
    let (by, answer) = (by.clone(), answer.resolution());
    ResolveRequest { call, suspension: None, by, answer, remember: None }
}

impl AnswerToCall {
    /// Whether an open call waits for this answer.
    fn fits(&self, pending: &PendingCall) -> bool {
        let is_approval = pending.kind == SuspensionKind::Approval;
        match self {
            Self::Approval { call, suspension, .. } => {
                is_approval && *call == pending.call_id && *suspension == pending.suspension
            }
            Self::Result { call_id, .. } => {
                let id = answer_id(&pending.call_id, pending.suspension, pending.executor);
                !is_approval && *call_id == id
            }
        }
    }

    fn resolution(self) -> ResolutionAnswer {
        match self {
            Self::Approval { approve, reason, .. } => {
                ResolutionAnswer::Approval { approved: approve, reason, args: None }
            }
            Self::Result { result, .. } => ResolutionAnswer::Result(result),
        }
    }
}
