//! What a person answered, as the client brings it back.

use abide_actors::request::ResolveRequest;
use abide_conversation::AgentName;
use rmcp::model::InputResponses;

use super::call_state::CallState;
use super::call_turn::CallTurn;
use super::caller::{CallError, Caller};
use crate::access::permission::{Answer, Read};
use crate::http::answers::{GivenAnswer, give};
use crate::http::protocol_requests::conversation;
use crate::problem::Problem;
use crate::protocols::feed::parse_suspension_id;

/// Delivers the answers, all in one commit, and returns the turn that they belong to. What the
/// client was asked and does not answer stays open.
pub(super) async fn deliver(
    caller: &Caller,
    agent: &AgentName,
    state: CallState,
    responses: InputResponses,
) -> Result<CallTurn, CallError> {
    let api = &caller.api;
    let by = caller.allowed.principal();
    let mut answers = Vec::with_capacity(responses.len());
    for (id, response) in &responses {
        let name = format!("inputResponses.{id}");
        let question = state.questions.get(id).zip(parse_suspension_id(id));
        let Some((question, (call, suspension))) = question else {
            return Err(CallError::parameter(&name, "was not asked"));
        };
        let answer = question.answer(response);
        let answer =
            answer.map_err(|(field, why)| Problem::field(&format!("{name}.{field}"), why))?;
        let (suspension, by) = (Some(suspension), by.clone());
        let request = ResolveRequest { call, suspension, by, answer, remember: None };
        answers.push(GivenAnswer { value_at: format!("{name}.content"), at: name, request });
    }
    let reader = caller.allowed.with::<Read>()?;
    let id = reader.conversation(state.conversation.as_str())?;
    let now = conversation(api, &reader, &id, agent.as_str()).await?;
    // A conversation that was deleted and made anew is another.
    let began = api.store.events(&id, state.from.saturating_sub(1), 1).await;
    let began = began.map_err(Problem::from)?.into_iter().next();
    if began.and_then(|event| event.turn_id).as_ref() != Some(&state.turn) {
        return Err(CallError::parameter("requestState", "is of a turn that does not exist"));
    }
    if !answers.is_empty() {
        let answerer = caller.allowed.with::<Answer>()?;
        give(api, &answerer, (&id, &now), answers, Vec::new()).await?;
    }
    Ok(CallTurn { id, turn: state.turn, from: state.from })
}
