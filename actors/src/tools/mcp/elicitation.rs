//! Elicitation: the questions that a server asks a person in the middle of a call, and the answers.

use std::collections::BTreeMap;

use abide_conversation::elicitation::{InputAnswer, InputRequest, PendingInput};
use rmcp::model::{
    ElicitRequestParams, InputRequest as McpInputRequest, InputRequiredResult, InputResponses,
};
use serde_json::{Value, json};

use crate::expressions::schema::Schema;
use crate::limits::{MAX_ERROR_BYTES, cut, encoded_len, without_bidi_controls};

/// Forms of one request; each is shown to a person.
const MAX_REQUESTS: usize = 16;
/// The size of all forms together; they are journalled.
const MAX_REQUESTS_BYTES: usize = 64 * 1024;
/// An id in an error is cut to this length.
const MAX_SHOWN_ID_BYTES: usize = 64;

/// What a call needs before it can continue.
pub(super) enum NextStep {
    /// A person's answer.
    AskPerson(InputRequest),
    /// Nothing but the same call again, with this state.
    Repeat(Option<String>),
}

/// Reads the server's request for input; the error names what is not supported.
pub(super) fn next_step(input_required: InputRequiredResult) -> Result<NextStep, String> {
    let request_state = input_required.request_state;
    let requests = input_required.input_requests.unwrap_or_default();
    if requests.is_empty() {
        return Ok(NextStep::Repeat(request_state));
    }
    if requests.len() > MAX_REQUESTS {
        return Err("the MCP server asks too many questions at once".to_owned());
    }
    let mut messages = Vec::new();
    for request in requests.values() {
        messages.push(message(request)?);
    }
    let message = cut(&without_bidi_controls(&messages.join("\n")), MAX_ERROR_BYTES);
    let requests = serde_json::to_value(requests).map_err(|error| error.to_string())?;
    if encoded_len(&requests) > MAX_REQUESTS_BYTES {
        return Err("the MCP server's questions are too large".to_owned());
    }
    let forms = requests.as_object().into_iter().flat_map(|all| all.values());
    for schema in forms.filter_map(|form| form.pointer("/params/requestedSchema")) {
        // No answer could satisfy an invalid schema.
        Schema::compile(schema)
            .map_err(|why| format!("the MCP server's form is invalid: {why}"))?;
    }
    Ok(NextStep::AskPerson(InputRequest { message, requests, request_state }))
}

/// The question of a form; other kinds of requests are refused.
fn message(request: &McpInputRequest) -> Result<&str, String> {
    match request {
        McpInputRequest::Elicitation(elicitation) => match &elicitation.params {
            ElicitRequestParams::FormElicitationParams { message, .. } => Ok(message),
            _ => Err("the MCP server sends people to a web page, which is not supported".into()),
        },
        _ => Err("the MCP server asks for more than a form, which is not supported".into()),
    }
}

/// The answer to each request, and the server's state, for the repeated call.
pub(super) fn responses(input: &PendingInput) -> Option<(InputResponses, Option<String>)> {
    let answer = input.answer.as_ref()?;
    let requests = input.request.requests.as_object()?;
    let respond = |id: &String| match answer {
        InputAnswer::Error(_) => json!({"action": "decline"}),
        InputAnswer::Result(value) => {
            let content = if requests.len() == 1 { value } else { &value[id] };
            json!({"action": "accept", "content": content})
        }
    };
    let responses: BTreeMap<_, _> = requests.keys().map(|id| (id.clone(), respond(id))).collect();
    Some((responses, input.request.request_state.clone()))
}

/// Checks a person's answer: the content for a single question, or for several an object with the
/// content for each under the question's id.
pub async fn check_answer(requests: &Value, answer: &Value) -> Result<(), String> {
    // The forms are compiled for it, which may take long.
    let (requests, answer) = (requests.clone(), answer.clone());
    let check = tokio::task::spawn_blocking(move || check_forms(&requests, &answer));
    check.await.unwrap_or_else(|_| Err("the answer could not be checked".to_owned()))
}

fn check_forms(requests: &Value, answer: &Value) -> Result<(), String> {
    let Some(requests) = requests.as_object() else { return Ok(()) };
    if requests.len() == 1 {
        return requests.values().try_for_each(|request| check(request, answer));
    }
    let Some(answers) = answer.as_object() else {
        return Err("must be an object with an answer for each request".to_owned());
    };
    if let Some(unknown) = answers.keys().find(|id| !requests.contains_key(*id)) {
        return Err(format!("{}: answers no request", cut(unknown, MAX_SHOWN_ID_BYTES)));
    }
    requests.iter().try_for_each(|(id, request)| match answers.get(id) {
        Some(answer) => check(request, answer).map_err(|why| format!("{id}: {why}")),
        None => Err(format!("{id}: is missing")),
    })
}

fn check(request: &Value, answer: &Value) -> Result<(), String> {
    match request.pointer("/params/requestedSchema") {
        Some(schema) => Schema::compile(schema)?.check(answer),
        None => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use abide_conversation::Attempt;

    fn form(message: &str, field: &str) -> Value {
        json!({"method": "elicitation/create", "params": {"mode": "form", "message": message,
            "requestedSchema": {"type": "object", "required": [field],
                                "properties": {field: {"type": "string"}}}}})
    }

    fn next_step_for(requests: Value) -> Result<NextStep, String> {
        let reply = json!({"resultType": "input_required", "inputRequests": requests,
            "requestState": "s1"});
        next_step(serde_json::from_value(reply).unwrap())
    }

    #[test]
    fn an_answer_must_satisfy_each_form() {
        let one = json!({"who": form("Who?", "name")});
        assert_eq!(check_forms(&one, &json!({"name": "ann"})), Ok(()));
        assert!(check_forms(&one, &json!({"name": 1})).unwrap_err().contains("name"));
        let two = json!({"who": form("Who?", "name"), "when": form("When?", "day")});
        let answer = json!({"who": {"name": "ann"}, "when": {"day": "today"}});
        assert_eq!(check_forms(&two, &answer), Ok(()));
        assert_eq!(
            check_forms(&two, &json!({"who": {"name": "ann"}})).unwrap_err(),
            "when: is missing"
        );
        let error = check_forms(&two, &json!({"x": 1})).unwrap_err();
        assert_eq!(error, "x: answers no request");
        assert!(check_forms(&two, &json!("ann")).is_err());
    }

    #[test]
    fn forms_become_one_question_and_the_answers_find_their_way_back() {
        let two = json!({"a": form("Who?", "name"), "b": form("When?", "day")});
        let Ok(NextStep::AskPerson(asks)) = next_step_for(two) else { unreachable!() };
        assert_eq!(asks.message, "Who?\nWhen?");
        let back = |answer| {
            let input = PendingInput {
                attempt: Attempt::FIRST,
                request: asks.clone(),
                answer: Some(answer),
            };
            responses(&input).unwrap()
        };
        let (given, state) =
            back(InputAnswer::Result(json!({"a": {"name": "x"}, "b": {"day": "y"}})));
        assert_eq!(state.as_deref(), Some("s1"));
        assert_eq!(given["b"], json!({"action": "accept", "content": {"day": "y"}}));
        let (given, _) = back(InputAnswer::Error("no".to_owned()));
        assert_eq!(given["a"], json!({"action": "decline"}));
        let unanswered = PendingInput { attempt: Attempt::FIRST, request: asks, answer: None };
        assert!(responses(&unanswered).is_none());
    }

    #[test]
    fn only_forms_are_asked_of_people() {
        let sampling = json!({"x": {"method": "sampling/createMessage",
            "params": {"messages": [], "maxTokens": 1}}});
        assert!(next_step_for(sampling).is_err());
        let page = json!({"x": {"method": "elicitation/create",
            "params": {"mode": "url", "message": "Go", "url": "https://a.b"}}});
        assert!(next_step_for(page).is_err());
        assert!(matches!(next_step_for(json!({})), Ok(NextStep::Repeat(Some(_)))));
        let many: Value = (0..20).map(|n| (n.to_string(), form("?", "a"))).collect();
        assert!(next_step_for(many).is_err());
    }
}
