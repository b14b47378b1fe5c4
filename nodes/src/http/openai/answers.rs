//! Answers to calls that wait, in one commit.

use std::collections::BTreeSet;

use abide_actors::request::{IdempotencyKey, ResolveRequest};
use abide_conversation::command::ResolutionAnswer;
use abide_conversation::event::SuspensionKind;
use abide_conversation::state::PendingCall;
use abide_conversation::{CallId, ConversationId, Principal, Rejection, Scoped, Seq};

use super::input::{AnswerToCall, InputAnswer};
use crate::access::Allowed;
use crate::access::permission::{Answer, Read};
use crate::http::Api;
use crate::http::answers::{GivenAnswer, MAX_ANSWERS, give};
use crate::problem::Problem;
use crate::protocols::openai::items::answer_id;

/// Delivers answers, all in one commit, and returns the event of the first. If one of them is for a call
/// that is not open, or would be refused alone, nothing is done. A repeat gets the first answer.
pub(super) async fn deliver(
    api: &Api,
    allowed: &Allowed<Answer>,
    id: &Scoped<ConversationId>,
    (answers, is_repeat): (Vec<InputAnswer>, bool),
    keys: Vec<IdempotencyKey>,
) -> Result<Seq, Problem> {
    if answers.len() > MAX_ANSWERS {
        return Err(Problem::field("input", format!("has more than {MAX_ANSWERS} answers")));
    }
    let by = allowed.principal();
    let state = api.conversations.state(&allowed.with::<Read>()?, id).await?;
    let given = if is_repeat {
        answers.into_iter().map(|answer| answer.unchecked(&by)).collect()
    } else {
        to_open_calls(answers, &state.pending_calls(), &by)?
    };
    let answered = give(api, allowed, (id, &state), given, keys).await?;
    let no_answer = || Problem::field("input", "has no answer");
    answered.first.ok_or_else(|| answered.late.unwrap_or_else(no_answer))
}

/// The answers as those to the calls that are open.
fn to_open_calls(
    answers: Vec<InputAnswer>,
    open: &[PendingCall],
    by: &Principal,
) -> Result<Vec<GivenAnswer>, Problem> {
    let mut calls = BTreeSet::new();
    let mut given = Vec::with_capacity(answers.len());
    for answer in answers {
        let at = &answer.at;
        let Some(pending) = open.iter().find(|pending| answer.answer.fits(pending)) else {
            let why = format!("{at} answers a call that does not wait for it");
            return Err(Rejection::CallNotOpen(why.into()).into());
        };
        if !calls.insert(pending.call_id.clone()) {
            return Err(Problem::field(at, "answers a call that has an answer before this"));
        }
        given.push(answer.given((pending.call_id.clone(), Some(pending.suspension)), by));
    }
    Ok(given)
}

impl InputAnswer {
    /// The answer of a request that was carried out before: only its key matters.
    fn unchecked(self, by: &Principal) -> GivenAnswer {
        let call = match &self.answer {
            AnswerToCall::Approval { call, .. } => call.clone(),
            AnswerToCall::Result { call_id, .. } => CallId::new(call_id.clone()),
        };
        self.given((call, None), by)
    }

    /// The answer to this call, and to this suspension of it.
    fn given(self, (call, suspension): (CallId, Option<u32>), by: &Principal) -> GivenAnswer {
        let Self { at, value_at, answer } = self;
        let (by, answer) = (by.clone(), answer.resolution());
        let request = ResolveRequest { call, suspension, by, answer, remember: None };
        GivenAnswer { at, value_at, request }
    }
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
