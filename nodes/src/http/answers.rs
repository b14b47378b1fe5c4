//! Answers that clients of several protocols give to the calls of a conversation: all of a request,
//! or none.

use abide_actors::access::AccessError;
use abide_actors::expressions::schema::Schema;
use abide_actors::request::{
    AnswerOutcome, IdempotencyKey, Reply, Request, RequestError, ResolveRequest,
};
use abide_conversation::approval::VoteRefusal;
use abide_conversation::command::ResolutionAnswer;
use abide_conversation::state::PendingCall;
use abide_conversation::{ConversationId, Rejection, Scoped, Seq, State};
use serde_json::json;

use super::Api;
use super::conversations::unexpected;
use super::extract::compiled;
use super::problem::Problem;
use super::protocol_requests::is_repeat;
use crate::access::Allowed;
use crate::access::permission::Answer;
use crate::protocols::feed::suspension_id;

/// The most answers of one request.
pub(super) const MAX_ANSWERS: usize = 100;

/// An answer, and where it stands in the request.
#[derive(Debug)]
pub(super) struct GivenAnswer {
    pub(super) at: String,
    /// The place of its value, which has to fit the schema of the call.
    pub(super) value_at: String,
    pub(super) request: ResolveRequest,
}

impl GivenAnswer {
    /// An answer that is named like its question: `CALL/N`.
    pub(super) fn to_question(request: ResolveRequest) -> Self {
        let at = match request.suspension {
            Some(suspension) => suspension_id(&request.call, suspension),
            None => request.call.to_string(),
        };
        Self { value_at: at.clone(), at, request }
    }
}

/// What became of the answers of a request.
#[derive(Debug)]
pub(super) struct Answered {
    /// The seq of the first event of one; `None` if all were late.
    pub(super) first: Option<Seq>,
    /// The problem of the first that was late.
    pub(super) late: Option<Problem>,
}

/// Gives all answers of a request, in one commit. If the conversation in this state would refuse one
/// of them, none is given. An answer that is late, or that this caller gave before, refuses nothing:
/// what became of the call is told. A repeat gets the first outcome.
///
/// An answer that only the conversation itself can refuse is refused while the others are given: where
/// its state has changed, where the schema is too large to be told, where a call in doubt has one, and
/// where one of several forms of a tool has none. The problem names it either way.
pub(super) async fn give(
    api: &Api,
    allowed: &Allowed<Answer>,
    (id, state): (&Scoped<ConversationId>, &State),
    answers: Vec<GivenAnswer>,
    keys: Vec<IdempotencyKey>,
) -> Result<Answered, Problem> {
    if answers.len() > MAX_ANSWERS {
        return Err(Problem::field("messages", format!("has more than {MAX_ANSWERS} answers")));
    }
    if let Err(problem) = check(api, allowed, state, &answers).await
        && !is_repeat(api, id, &keys).await?
    {
        return Err(problem);
    }
    let (places, requests): (Vec<String>, Vec<ResolveRequest>) =
        answers.into_iter().map(|given| (given.at, given.request)).unzip();
    let request = Request::ResolveAll(requests);
    let outcomes = match api.conversations.deliver(allowed, id, request, keys).await? {
        Reply::ResolvedAll { outcomes } => outcomes,
        other => return Err(unexpected(&other)),
    };
    let mut answered = Answered { first: None, late: None };
    for (at, outcome) in places.iter().zip(outcomes) {
        match outcome {
            AnswerOutcome::Resolved { seq } | AnswerOutcome::Recorded { seq, .. } => {
                answered.first = Some(answered.first.map_or(seq, |first| first.min(seq)));
            }
            AnswerOutcome::Refused(error) if is_late(&error) => {
                answered.late.get_or_insert_with(|| error.into());
            }
            AnswerOutcome::Refused(error) => return Err(about(at, error)),
        }
    }
    Ok(answered)
}

fn is_late(error: &RequestError) -> bool {
    matches!(
        error,
        RequestError::Rejected(
            Rejection::CallNotOpen(_) | Rejection::VoteRefused(VoteRefusal::Voted)
        )
    )
}

/// The problem that the answer at this place has.
fn about(at: &str, error: RequestError) -> Problem {
    let problem = Problem::from(error);
    // What does not exist, as far as the caller may know, has one answer whatever was asked.
    if problem.is_not_found() { problem } else { problem.at(at) }
}

/// Checks each answer to a call that is open in this state.
async fn check(
    api: &Api,
    allowed: &Allowed<Answer>,
    state: &State,
    answers: &[GivenAnswer],
) -> Result<(), Problem> {
    // The conversation itself judges whether a token is for this one or for one that was deleted.
    let now = api.clock.now();
    let answerer = allowed.answerer(now).within_token();
    let mut open = state.pending_calls();
    // An answer to a suspension that is about to expire is late.
    open.retain(|pending| now < pending.expires_at);
    for GivenAnswer { at, value_at, request } in answers {
        let Some(pending) = open.iter().find(|pending| is_for(request, pending)) else { continue };
        match answerer.check(&state.participants, pending) {
            Ok(()) | Err(AccessError::Approval(VoteRefusal::Voted)) => {}
            Err(error) => return Err(about(at, error.into())),
        }
        check_schema(value_at, &request.answer, pending).await?;
    }
    Ok(())
}

/// Whether the answer is for this suspension of a call.
pub(super) fn is_for(request: &ResolveRequest, pending: &PendingCall) -> bool {
    let is_numbered = request.suspension.is_none_or(|number| number == pending.suspension);
    request.call == pending.call_id && is_numbered
}

async fn check_schema(
    value_at: &str,
    answer: &ResolutionAnswer,
    pending: &PendingCall,
) -> Result<(), Problem> {
    let Some(schema) = pending.answer_schema.as_ref() else { return Ok(()) };
    let value = match answer {
        ResolutionAnswer::Result(result) => result.clone(),
        ResolutionAnswer::Approval { args: Some(args), .. } => {
            json!({"approved": true, "args": args})
        }
        ResolutionAnswer::Approval { args: None, .. }
        | ResolutionAnswer::Error(_)
        | ResolutionAnswer::Retry => return Ok(()),
    };
    let schema = schema.to_value();
    let check = move || Schema::compile(&schema).and_then(|schema| schema.check(&value));
    let checked = compiled(check).await?;
    checked.map_err(|why| Problem::field(value_at, why))
}
