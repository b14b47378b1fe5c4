//! Answers to calls of many conversations in one request, each by itself.

use std::collections::BTreeMap;

use abide_actors::request::{AnswerOutcome, IdempotencyKey, Reply, Request, ResolveRequest};
use abide_conversation::{CallId, ConversationId, Scoped};
use axum::Json;
use axum::extract::State;
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::Api;
use super::conversations::unexpected;
use super::extract;
use super::extract::{Body, Idempotency};
use super::openapi::{IdempotencyKeyHeader, PrincipalHeader};
use super::problem::Problem;
use super::resolutions::{AnswerToCall, DoubtOutcome, Remember, ResolutionResult};
use crate::access::Allowed;
use crate::access::permission::Answer;

/// The answers of one request.
const MAX_RESOLUTIONS: usize = 100;
/// How many conversations are answered at a time.
const MAX_CONCURRENT_CONVERSATIONS: usize = 16;

/// Answers to calls of many conversations.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchResolutions {
    /// Read one by one: one that cannot be read holds up no other.
    #[schema(value_type = Vec<BatchAnswer>, min_items = 1, max_items = 100)]
    resolutions: Vec<Value>,
}

/// An answer, and the call that it is for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct BatchAnswer {
    conversation_id: String,
    call_id: String,
    approved: Option<bool>,
    reason: Option<String>,
    args: Option<Value>,
    #[serde(default, deserialize_with = "abide_conversation::keep_null")]
    result: Option<Value>,
    #[schema(min_length = 1)]
    error: Option<String>,
    /// For a call in doubt.
    outcome: Option<DoubtOutcome>,
    #[schema(minimum = 1)]
    suspension: Option<u32>,
    remember: Option<Remember>,
}

impl BatchAnswer {
    fn into_parts(self) -> (String, AnswerToCall) {
        let Self { conversation_id, call_id, approved, reason, args, result, error, .. } = self;
        let (outcome, suspension) = (self.outcome, self.suspension);
        let answer = AnswerToCall {
            call_id,
            approved,
            reason,
            args,
            result,
            error,
            outcome,
            suspension,
            remember: self.remember,
        };
        (conversation_id, answer)
    }
}

/// What became of each answer, in their order.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BatchResults {
    results: Vec<BatchResult>,
}

/// What became of an answer, with its conversation.
#[derive(Debug, Serialize, ToSchema)]
struct BatchResult {
    conversation_id: String,
    #[serde(flatten)]
    result: ResolutionResult,
}

/// The answers to one conversation, each with its place in the request.
#[derive(Default)]
struct Group {
    places: Vec<usize>,
    answers: Vec<ResolveRequest>,
}

/// Resolves calls of many conversations that wait for an answer.
///
/// Each answer stands by itself, with the result that it would have alone: one that cannot be read, or
/// whose call is not open, holds up no other. Those to one conversation that are journalled are so at
/// once.
#[utoipa::path(post, path = "/v1/resolutions", operation_id = "resolve_many", tag = "calls",
    params(IdempotencyKeyHeader, PrincipalHeader),
    request_body(content = BatchResolutions, example = json!({"resolutions": [
        {"conversation_id": "conv_1", "call_id": "call_1", "approved": true},
        {"conversation_id": "conv_2", "call_id": "call_1", "approved": false}]})),
    responses((status = 200, description = "What became of each answer, in their order.",
        body = BatchResults)))]
pub(super) async fn resolve(
    allowed: Allowed<Answer>,
    State(api): State<Api>,
    idempotency: Idempotency,
    body: Body<BatchResolutions>,
) -> Result<Json<BatchResults>, Problem> {
    let (batch, fingerprint) = body.into_parts();
    if !(1..=MAX_RESOLUTIONS).contains(&batch.resolutions.len()) {
        return Err(Problem::field("resolutions", format!("must be 1 to {MAX_RESOLUTIONS}")));
    }
    let keys = idempotency.keys(&allowed, fingerprint);
    let mut results: Vec<Option<ResolutionResult>> = Vec::new();
    let mut names = Vec::new();
    let mut groups: BTreeMap<Scoped<ConversationId>, Group> = BTreeMap::new();
    for (place, answer) in batch.resolutions.into_iter().enumerate() {
        let [name, call] = ["conversation_id", "call_id"].map(|member| text(&answer, member));
        let call = CallId::new(call);
        let request = read(&allowed, place, answer);
        names.push(name);
        match request {
            Ok((id, request)) => {
                let group = groups.entry(id).or_default();
                group.places.push(place);
                group.answers.push(request);
                results.push(None);
            }
            Err(problem) => results.push(Some(ResolutionResult::of_problem(call, problem))),
        }
    }
    let answering = groups.into_iter().map(|(id, group)| answer(&api, &allowed, id, group, &keys));
    let mut answering =
        futures::stream::iter(answering).buffer_unordered(MAX_CONCURRENT_CONVERSATIONS);
    while let Some(answered) = answering.next().await {
        for (place, result) in answered {
            results[place] = Some(result);
        }
    }
    let results = names.into_iter().zip(results.into_iter().flatten());
    let results = results.map(|(conversation_id, result)| BatchResult { conversation_id, result });
    Ok(Json(BatchResults { results: results.collect() }))
}

/// The text that is this member of an answer, which may be anything; else an empty one.
fn text(answer: &Value, member: &str) -> String {
    answer.get(member).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Reads the answer at this place: its conversation, and the request.
fn read(
    allowed: &Allowed<Answer>,
    place: usize,
    answer: Value,
) -> Result<(Scoped<ConversationId>, ResolveRequest), Problem> {
    if !answer.is_object() {
        return Err(Problem::field(&format!("resolutions[{place}]"), "must be an object"));
    }
    let (name, answer) = extract::deserialize::<BatchAnswer>(answer)?.into_parts();
    Ok((allowed.conversation(&name)?, answer.resolve(allowed.principal())?))
}

/// Answers the calls of one conversation. What refuses all of them is the result of each.
async fn answer(
    api: &Api,
    allowed: &Allowed<Answer>,
    id: Scoped<ConversationId>,
    group: Group,
    keys: &[IdempotencyKey],
) -> Vec<(usize, ResolutionResult)> {
    let Group { places, answers } = group;
    let calls: Vec<CallId> = answers.iter().map(|answer| answer.call.clone()).collect();
    let request = Request::ResolveAll(answers);
    let delivered = api.conversations.deliver(allowed, &id, request, keys.to_vec()).await;
    let outcomes: Result<Vec<AnswerOutcome>, Problem> = match delivered {
        Ok(Reply::ResolvedAll { outcomes }) => Ok(outcomes),
        Ok(other) => Err(unexpected(&other)),
        Err(problem) => Err(problem),
    };
    let results: Vec<ResolutionResult> = match outcomes {
        Ok(outcomes) => {
            let each = calls.into_iter().zip(outcomes);
            each.map(|(call, outcome)| ResolutionResult::new(call, outcome)).collect()
        }
        Err(problem) => {
            let (_, document) = problem.into_document();
            let refused = |call| ResolutionResult::of_document(call, document.clone());
            calls.into_iter().map(refused).collect()
        }
    };
    places.into_iter().zip(results).collect()
}
