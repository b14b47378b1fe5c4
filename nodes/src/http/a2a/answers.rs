//! Answers: data that a message gives to calls of its task. Free text answers nothing.

use std::collections::BTreeSet;

use abide_actors::journal::ResponseScope;
use abide_actors::request::{IdempotencyKey, ResolveRequest};
use abide_conversation::State;
use abide_conversation::command::ResolutionAnswer;
use abide_conversation::event::{Event, EventData, SuspensionKind};
use serde_json::Value;

use super::Request;
use super::tasks::Task;
use crate::access::Allowed;
use crate::access::permission::Answer;
use crate::http::answers::{GivenAnswer, give, is_for};
use crate::http::extract::{canonical, deserialize, fingerprint};
use crate::http::resolutions::AnswerToCall;
use crate::http::turn_stream::find_in_turn;
use crate::problem::Problem;
use crate::protocols::a2a::parts::Part;
use crate::protocols::a2a::rpc::RpcError;

impl Request<'_> {
    /// The key by which a repeat of a message with answers is recognised.
    pub(super) fn answer_key(&self, (id, parts): (&str, &[Part])) -> IdempotencyKey {
        let parts: Vec<Value> = parts.iter().cloned().map(Part::into_block).collect();
        let subject = self.allowed.subject().unwrap_or_default();
        IdempotencyKey {
            key: format!("a2a-answer:{}", fingerprint(&[subject, id])),
            fingerprint: fingerprint(&[&canonical(&Value::Array(parts))]),
            field: "message.messageId".into(),
        }
    }

    /// Whether the answers with this key were given before.
    pub(super) async fn is_repeat(
        &self,
        task: &Task,
        key: &IdempotencyKey,
    ) -> Result<bool, Problem> {
        let (scope, now) = (ResponseScope::Conversation(task.id.clone()), self.api.clock.now());
        let stored = self.api.store.stored_response(&scope, &key.key, now).await?;
        match stored {
            Some(stored) if stored.fingerprint != key.fingerprint => {
                Err(Problem::field(&key.field, "was used for another message"))
            }
            stored => Ok(stored.is_some()),
        }
    }

    /// Gives all answers of a message, or none. One that is late is no error: what became of its call is
    /// told.
    pub(super) async fn give_answers(
        &self,
        task: &Task,
        state: &State,
        (parts, key): (Vec<Part>, IdempotencyKey),
    ) -> Result<(), Problem> {
        let answerer: Allowed<Answer> = self.allowed.with()?;
        let open = state.pending_calls();
        let given = self.given_answers(parts, !open.is_empty())?;
        let mut answers = Vec::with_capacity(given.len());
        for given in given {
            let GivenAnswer { at, request, .. } = &given;
            let Some(pending) = open.iter().find(|pending| is_for(request, pending)) else {
                self.check_late(task, at, request).await?;
                continue;
            };
            check_kind(at, &request.answer, pending.kind)?;
            answers.push(given);
        }
        if !answers.is_empty() {
            give(self.api, &answerer, (&task.id, state), answers, vec![key]).await?;
        }
        Ok(())
    }

    /// The answers that the parts of a message are.
    fn given_answers(&self, parts: Vec<Part>, is_asked: bool) -> Result<Vec<GivenAnswer>, Problem> {
        let mut calls = BTreeSet::new();
        let mut given = Vec::with_capacity(parts.len());
        for (index, part) in parts.into_iter().enumerate() {
            let at = format!("message.parts[{index}]");
            let data = match part {
                Part::Data(data) => data,
                Part::Block(_) if is_asked => {
                    let why = "the task waits for answers, each of which is data with a call_id: \
                               free text answers nothing";
                    return Err(Problem::field(&at, why));
                }
                Part::Block(_) => {
                    let why = "message.taskId: the task works, and takes no messages";
                    return Err(Problem::a2a(RpcError::UnsupportedOperation, why));
                }
            };
            let at = format!("{at}.data");
            if !data.is_object() {
                return Err(Problem::field(&at, "must be an object"));
            }
            let below = |problem: Problem| match problem.field_name() {
                Some(_) => problem.below(&at),
                None => Problem::field(&at, problem.detail()),
            };
            let answer: AnswerToCall = deserialize(data).map_err(below)?;
            let request = answer.resolve(self.allowed.principal()).map_err(below)?;
            if !calls.insert(request.call.clone()) {
                return Err(Problem::field(&at, "answers a call that has an answer before this"));
            }
            let value_at = match &request.answer {
                ResolutionAnswer::Approval { .. } => format!("{at}.args"),
                ResolutionAnswer::Result(_)
                | ResolutionAnswer::Error(_)
                | ResolutionAnswer::Retry => format!("{at}.result"),
            };
            given.push(GivenAnswer { at, value_at, request });
        }
        Ok(given)
    }

    /// Refuses an answer to what was never asked in this task.
    async fn check_late(
        &self,
        task: &Task,
        at: &str,
        request: &ResolveRequest,
    ) -> Result<(), Problem> {
        let asks = |event: &Event| match &event.data {
            EventData::Suspension(asked) => {
                let is_numbered = request.suspension.is_none_or(|it| it == asked.suspension);
                asked.call_id == request.call && is_numbered
            }
            _ => false,
        };
        let found = find_in_turn(self.api, &task.id, &task.head.id.turn, asks).await?;
        if found.is_some_and(|event| asks(&event)) {
            Ok(())
        } else {
            Err(Problem::field(&format!("{at}.call_id"), "is of nothing that the task has asked"))
        }
    }
}

fn check_kind(at: &str, answer: &ResolutionAnswer, kind: SuspensionKind) -> Result<(), Problem> {
    match (answer, kind) {
        (ResolutionAnswer::Approval { .. }, SuspensionKind::Approval)
        | (
            ResolutionAnswer::Result(_) | ResolutionAnswer::Error(_),
            SuspensionKind::Elicitation | SuspensionKind::ClientExec | SuspensionKind::InDoubt,
        ) => Ok(()),
        (_, SuspensionKind::Approval) => Err(Problem::field(
            &format!("{at}.approved"),
            "is missing: the call waits for an approval",
        )),
        (_, SuspensionKind::Elicitation | SuspensionKind::ClientExec | SuspensionKind::InDoubt) => {
            let why = "is missing: the call waits for a result, and not for an approval";
            Err(Problem::field(&format!("{at}.result"), why))
        }
    }
}
