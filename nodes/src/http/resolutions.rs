//! Resolutions: answers to calls that wait, one by one or several of a conversation at once.

use std::collections::BTreeSet;

use abide_actors::request::{
    AnswerOutcome, RememberRequest, Reply, Request, RequestError, ResolveRequest,
};
use abide_conversation::command::ResolutionAnswer;
use abide_conversation::remembered_decision::{Match, Scope};
use abide_conversation::{CallId, Principal, Seq};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;
use utoipa::ToSchema;
use utoipa::openapi::Ref;

use super::Api;
use super::conversations::unexpected;
use super::extract::{Body, Idempotency, Path, Query};
use super::openapi::{CallPath, ConversationPath, IdempotencyKeyHeader, PrincipalHeader, any_of};
use super::problem::Problem;
use super::wait::{self, TurnReport, WaitQuery};
use crate::access::Allowed;
use crate::access::permission::Answer;

/// The answers of one request: more than a message of a model has calls that wait.
const MAX_ANSWERS: usize = 100;

/// The largest number of a suspension: clients count in 32 bits with a sign.
const MAX_SUSPENSION: u32 = i32::MAX.unsigned_abs();

/// An answer to an open suspension: exactly one of `approved`, `result`, `error` and `outcome`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ResolutionRequest)]
pub(super) struct ResolutionRequest {
    /// For an approval: whether the call may run.
    approved: Option<bool>,
    /// With `approved`: the reason.
    reason: Option<String>,
    /// With `approved: true`: the arguments as the approver edited them.
    args: Option<Value>,
    /// For an elicitation, a client call or a call in doubt: any JSON, as data. A null that is present is an answer.
    #[serde(default, deserialize_with = "abide_conversation::keep_null")]
    result: Option<Value>,
    /// For an elicitation, a client call or a call in doubt: makes the call's result an error.
    #[schema(min_length = 1)]
    error: Option<String>,
    /// For a call in doubt: what becomes of it.
    outcome: Option<DoubtOutcome>,
    /// The number of the suspension, from 1; the open one if absent.
    #[schema(minimum = 1)]
    suspension: Option<u32>,
    /// With `approved`: also applies the decision to later calls of the tool, unless it is `strict`.
    remember: Option<Remember>,
}

/// What becomes of a call in doubt.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DoubtOutcome)]
pub(super) enum DoubtOutcome {
    /// It runs again, as its next attempt.
    Retry,
}

/// The later calls that a decision applies to, and for how long.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RememberRequest)]
pub(super) struct Remember {
    /// This conversation, or all of its agent's.
    #[schema(default = "conversation")]
    scope: Option<Scope>,
    /// Calls with the same arguments, or all of the tool's.
    #[schema(default = "exact")]
    r#match: Option<Match>,
    /// A duration of at most 365 days.
    #[schema(example = "24h")]
    r#for: String,
}

impl Remember {
    fn request(&self) -> Result<RememberRequest, Problem> {
        let duration = abide_actors::agent::duration(&self.r#for);
        let duration = duration.map_err(|reason| Problem::field("remember.for", reason))?;
        Ok(RememberRequest {
            scope: self.scope.unwrap_or(Scope::Conversation),
            matching: self.r#match.unwrap_or(Match::Exact),
            for_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        })
    }
}

impl ResolutionRequest {
    /// The request to resolve this call.
    fn resolve(self, call: CallId, by: Principal) -> Result<ResolveRequest, Problem> {
        let suspension = self.suspension;
        if suspension.is_some_and(|number| number > MAX_SUSPENSION) {
            return Err(Problem::field("suspension", format!("must be at most {MAX_SUSPENSION}")));
        }
        let remember = self.remember.as_ref().map(Remember::request).transpose()?;
        Ok(ResolveRequest { call, suspension, by, answer: self.answer()?, remember })
    }

    fn answer(self) -> Result<ResolutionAnswer, Problem> {
        let Self { approved, reason, args, result, error, outcome, remember, suspension: _ } = self;
        if approved.is_none() && (reason.is_some() || args.is_some()) {
            return Err(Problem::field("approved", "is missing"));
        }
        if approved.is_none() && remember.is_some() {
            return Err(Problem::field("remember", "is only for an approval"));
        }
        match (approved, result, error, outcome) {
            (Some(false), None, None, None) if args.is_some() => {
                Err(Problem::field("args", "must be absent when the call is denied"))
            }
            (Some(approved), None, None, None) => {
                Ok(ResolutionAnswer::Approval { approved, reason, args })
            }
            (None, Some(result), None, None) => Ok(ResolutionAnswer::Result(result)),
            (None, None, Some(error), None) if error.trim().is_empty() => {
                Err(Problem::field("error", "is empty"))
            }
            (None, None, Some(error), None) => Ok(ResolutionAnswer::Error(error)),
            (None, None, None, Some(DoubtOutcome::Retry)) => Ok(ResolutionAnswer::Retry),
            _ => Err(Problem::field(
                "approved",
                "exactly one of approved, result, error and outcome is required",
            )),
        }
    }
}

/// An answer that is journalled.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Resolved {
    status: ResolutionStatus,
    /// `recorded` only: how many have voted so.
    #[serde(skip_serializing_if = "Option::is_none")]
    votes: Option<u32>,
    /// `recorded` only: how many must.
    #[serde(skip_serializing_if = "Option::is_none")]
    needed: Option<u32>,
    /// The seq of the event `resolution` or `voted`.
    #[schema(value_type = u64)]
    seq: Seq,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ResolutionStatus {
    /// The call is resolved.
    Accepted,
    /// A vote: others must approve, too.
    Recorded,
}

impl Resolved {
    fn accepted(seq: Seq) -> Self {
        Self { status: ResolutionStatus::Accepted, votes: None, needed: None, seq }
    }

    fn recorded(votes: u32, needed: u32, seq: Seq) -> Self {
        let status = ResolutionStatus::Recorded;
        Self { status, votes: Some(votes), needed: Some(needed), seq }
    }
}

/// An answer that is journalled; after a `wait`, with what the turn has come to.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum ResolutionReply {
    Waited(Box<ResolvedTurn>),
    Now(Resolved),
}

any_of!(ResolutionReply, ResolvedTurn, Resolved);

/// An answer, and what its turn has come to.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ResolvedTurn {
    #[serde(flatten)]
    resolved: Resolved,
    #[serde(flatten)]
    turn: TurnReport,
}

/// Resolves a call that waits for an answer.
///
/// The problem `call-not-open` answers for an unknown call, for one that is not open or that waits for
/// another form of answer, and for a second or late answer. An answer that violates the tool's
/// `result_schema`, or edited `args` that violate its `parameters`, leave the call open. An approval that
/// several must give is `recorded` until the last of them gives it.
#[utoipa::path(post, path = "/v1/conversations/{id}/calls/{call_id}/resolution",
    operation_id = "resolve_call", tag = "calls",
    params(CallPath, WaitQuery, IdempotencyKeyHeader, PrincipalHeader),
    request_body(content = ResolutionRequest, examples(
        ("approve" = (value = json!({"approved": true}))),
        ("approve_edited" = (value = json!({"approved": true, "args": {"to": "a@b.c"}}))),
        ("approve_for_a_day" = (value = json!({"approved": true,
            "remember": {"scope": "agent", "match": "exact", "for": "24h"}}))),
        ("deny" = (value = json!({"approved": false, "reason": "not today"}))),
        ("answer" = (value = json!({"result": {"seat": "window"}, "suspension": 1}))),
        ("fail" = (value = json!({"error": "the page was closed"}))))),
    responses((status = 200, description = "The answer is journalled.", body = ResolutionReply)))]
pub(super) async fn resolve(
    allowed: Allowed<Answer>,
    State(api): State<Api>,
    Path((id, call)): Path<(String, String)>,
    Query(query): Query<WaitQuery>,
    idempotency: Idempotency,
    body: Body<ResolutionRequest>,
) -> Result<Json<ResolutionReply>, Problem> {
    let received = Instant::now();
    let id = allowed.conversation(&id)?;
    let wait = query.duration()?;
    let (answer, fingerprint) = body.into_parts();
    let request = Request::Resolve(answer.resolve(CallId::new(call), allowed.principal())?);
    let keys = idempotency.keys(&allowed, fingerprint);
    let resolved = match api.conversations.deliver(&allowed, &id, request, keys).await? {
        Reply::Resolved { seq } => {
            metrics::histogram!("abide_resolution_seconds")
                .record(received.elapsed().as_secs_f64());
            Resolved::accepted(seq)
        }
        Reply::Recorded { votes, needed, seq } => Resolved::recorded(votes, needed, seq),
        other => return Err(unexpected(&other)),
    };
    let turn = wait::after(&api, &allowed, &id, resolved.seq, wait).await?;
    Ok(Json(match turn {
        Some(turn) => ResolutionReply::Waited(Box::new(ResolvedTurn { resolved, turn })),
        None => ResolutionReply::Now(resolved),
    }))
}

/// Several answers to calls of one conversation.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Resolutions {
    /// Each for another call.
    #[schema(min_items = 1, max_items = 100)]
    answers: Vec<AnswerToCall>,
}

/// The body of a resolution, with the call that it is for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerToCall {
    pub(super) call_id: String,
    pub(super) approved: Option<bool>,
    pub(super) reason: Option<String>,
    pub(super) args: Option<Value>,
    #[serde(default, deserialize_with = "abide_conversation::keep_null")]
    pub(super) result: Option<Value>,
    #[schema(min_length = 1)]
    pub(super) error: Option<String>,
    pub(super) outcome: Option<DoubtOutcome>,
    #[schema(minimum = 1)]
    pub(super) suspension: Option<u32>,
    pub(super) remember: Option<Remember>,
}

impl AnswerToCall {
    pub(super) fn resolve(self, by: Principal) -> Result<ResolveRequest, Problem> {
        let Self { call_id, approved, reason, args, result, error, outcome, .. } = self;
        let Self { suspension, remember, .. } = self;
        let answer = ResolutionRequest {
            approved,
            reason,
            args,
            result,
            error,
            outcome,
            suspension,
            remember,
        };
        answer.resolve(CallId::new(call_id), by)
    }
}

impl Resolutions {
    fn requests(self, by: &Principal) -> Result<Vec<ResolveRequest>, Problem> {
        if !(1..=MAX_ANSWERS).contains(&self.answers.len()) {
            return Err(Problem::field("answers", format!("must be 1 to {MAX_ANSWERS}")));
        }
        let mut calls = BTreeSet::new();
        let mut requests = Vec::with_capacity(self.answers.len());
        for (index, answer) in self.answers.into_iter().enumerate() {
            let at = format!("answers[{index}]");
            if !calls.insert(answer.call_id.clone()) {
                return Err(Problem::field(&format!("{at}.call_id"), "has an answer before this"));
            }
            requests.push(answer.resolve(by.clone()).map_err(|problem| problem.below(&at))?);
        }
        Ok(requests)
    }
}

/// What became of one of several answers.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum ResolutionResult {
    Journalled(JournalledAnswer),
    Refused(RefusedAnswer),
}

/// An answer that is journalled, and its call.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct JournalledAnswer {
    call_id: CallId,
    #[serde(flatten)]
    resolved: Resolved,
}

/// An answer with which nothing was done: the problem that it alone would have met.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RefusedAnswer {
    call_id: CallId,
    #[schema(schema_with = problem_schema)]
    problem: Value,
}

fn problem_schema() -> Ref {
    Ref::from_schema_name("Problem")
}

impl ResolutionResult {
    pub(super) fn new(call_id: CallId, outcome: AnswerOutcome) -> Self {
        let resolved = match outcome {
            AnswerOutcome::Resolved { seq } => Resolved::accepted(seq),
            AnswerOutcome::Recorded { votes, needed, seq } => {
                Resolved::recorded(votes, needed, seq)
            }
            AnswerOutcome::Refused(error) => return Self::refused(call_id, error),
        };
        Self::Journalled(JournalledAnswer { call_id, resolved })
    }

    fn refused(call_id: CallId, error: RequestError) -> Self {
        Self::of_problem(call_id, error.into())
    }

    pub(super) fn of_problem(call_id: CallId, problem: Problem) -> Self {
        let (_, document) = problem.into_document();
        Self::of_document(call_id, document)
    }

    /// An answer with which nothing was done, given the document of its problem.
    pub(super) fn of_document(call_id: CallId, problem: Value) -> Self {
        Self::Refused(RefusedAnswer { call_id, problem })
    }

    /// The event of the answer.
    fn seq(&self) -> Option<Seq> {
        match self {
            Self::Journalled(JournalledAnswer { resolved, .. }) => Some(resolved.seq),
            Self::Refused(_) => None,
        }
    }
}

/// What became of each answer, in their order; after a `wait`, with what the turn has come to.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum ResolutionsReply {
    Waited(Box<ResolutionsTurn>),
    Now(ResolutionResults),
}

any_of!(ResolutionsReply, ResolutionsTurn, ResolutionResults);

/// What became of each answer, in their order.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ResolutionResults {
    results: Vec<ResolutionResult>,
}

/// What became of each answer, and of their turn.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ResolutionsTurn {
    results: Vec<ResolutionResult>,
    /// The seq of the first event of an answer.
    #[schema(value_type = u64)]
    seq: Seq,
    #[serde(flatten)]
    turn: TurnReport,
}

/// Resolves several calls of a conversation that wait for an answer.
///
/// Each answer stands by itself, with the result that it would have alone; those that are journalled are
/// so at once, and before any of the calls goes on. An answer that cannot be read refuses the request.
#[utoipa::path(post, path = "/v1/conversations/{id}/resolutions",
    operation_id = "resolve_calls", tag = "calls",
    params(ConversationPath, WaitQuery, IdempotencyKeyHeader, PrincipalHeader),
    request_body(content = Resolutions, example = json!({"answers": [
        {"call_id": "call_1", "approved": true},
        {"call_id": "call_2", "result": {"seat": "window"}, "suspension": 1}]})),
    responses((status = 200, description = "What became of each answer, in their order.",
        body = ResolutionsReply)))]
pub(super) async fn resolve_all(
    allowed: Allowed<Answer>,
    State(api): State<Api>,
    Path(id): Path<String>,
    Query(query): Query<WaitQuery>,
    idempotency: Idempotency,
    body: Body<Resolutions>,
) -> Result<Json<ResolutionsReply>, Problem> {
    let id = allowed.conversation(&id)?;
    let wait = query.duration()?;
    let (resolutions, fingerprint) = body.into_parts();
    let answers = resolutions.requests(&allowed.principal())?;
    let calls: Vec<CallId> = answers.iter().map(|answer| answer.call.clone()).collect();
    let keys = idempotency.keys(&allowed, fingerprint);
    let request = Request::ResolveAll(answers);
    let outcomes = match api.conversations.deliver(&allowed, &id, request, keys).await? {
        Reply::ResolvedAll { outcomes } => outcomes,
        other => return Err(unexpected(&other)),
    };
    let result = |(call, outcome)| ResolutionResult::new(call, outcome);
    let results: Vec<ResolutionResult> = calls.into_iter().zip(outcomes).map(result).collect();
    let turn = match results.iter().find_map(ResolutionResult::seq) {
        Some(seq) => {
            let turn = wait::after(&api, &allowed, &id, seq, wait).await?;
            turn.map(|turn| (seq, turn))
        }
        None => None,
    };
    Ok(Json(match turn {
        Some((seq, turn)) => {
            ResolutionsReply::Waited(Box::new(ResolutionsTurn { results, seq, turn }))
        }
        None => ResolutionsReply::Now(ResolutionResults { results }),
    }))
}
