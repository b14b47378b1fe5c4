//! What a server asks of a person in the middle of a call, and the answer on its way back.

use std::collections::BTreeMap;

use abide_conversation::elicitation::{InputAnswer, InputRequest, PendingInput};
use rmcp::model::{
    ElicitRequestParams, InputRequest as McpInputRequest, InputRequiredResult, InputResponses,
};
use serde_json::{Value, json};

use crate::tools::limits::{LONGEST_ERROR, cut, encoded_len};
use crate::tools::schema::Schema;

/// Forms that a server may ask for at once; each is shown to a person.
const MOST_REQUESTS: usize = 16;
/// All of them together; they stand in the journal.
const LARGEST_REQUESTS: usize = 64 * 1024;

/// What is to be done before a call can go on.
pub(super) enum Wanted {
    /// A person has to answer.
    Person(InputRequest),
    /// Nobody: the server wants the same call again with this state.
    Again(Option<String>),
}

/// What the server wants; the error says what of it we have not.
pub(super) fn wanted(asked: InputRequiredResult) -> Result<Wanted, String> {
    let request_state = asked.request_state;
    let requests = asked.input_requests.unwrap_or_default();
    if requests.is_empty() {
        return Ok(Wanted::Again(request_state));
    }
    if requests.len() > MOST_REQUESTS {
        return Err("the MCP server asks too many questions at once".to_owned());
    }
    let mut messages = Vec::new();
    for request in requests.values() {
        messages.push(message(request)?);
    }
    let message = cut(&messages.join("\n"), LONGEST_ERROR);
    let requests = serde_json::to_value(requests).map_err(|error| error.to_string())?;
    if encoded_len(&requests) > LARGEST_REQUESTS {
        return Err("the MCP server's questions are too large".to_owned());
    }
    let forms = requests.as_object().into_iter().flat_map(|all| all.values());
    for schema in forms.filter_map(|form| form.pointer("/params/requestedSchema")) {
        // No answer could ever satisfy it.
        Schema::compile(schema).map_err(|why| format!("the MCP server's form is none: {why}"))?;
    }
    Ok(Wanted::Person(InputRequest { message, requests, request_state }))
}

/// The question of a form; whatever else a server may want is not ours to give.
fn message(request: &McpInputRequest) -> Result<&str, String> {
    match request {
        McpInputRequest::Elicitation(elicitation) => match &elicitation.params {
            ElicitRequestParams::FormElicitationParams { message, .. } => Ok(message),
            _ => Err("the MCP server sends people to a web page, which is not supported".into()),
        },
        _ => Err("the MCP server asks for more than a form, which is not supported".into()),
    }
}

/// What goes back to the server: the answer to each request, and its state.
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

/// Whether a person's answer is what a server asked for: the content of its one question, or for
/// several an object with the content of each under the question's id.
pub fn check_answer(requests: &Value, answer: &Value) -> Result<(), String> {
    let Some(requests) = requests.as_object() else { return Ok(()) };
    if requests.len() == 1 {
        return requests.values().try_for_each(|request| check(request, answer));
    }
    let Some(answers) = answer.as_object() else {
        return Err("must be an object with an answer for each request".to_owned());
    };
    if let Some(unknown) = answers.keys().find(|id| !requests.contains_key(*id)) {
        return Err(format!("{}: answers no request", cut(unknown, LONGEST_ID)));
    }
    requests.iter().try_for_each(|(id, request)| match answers.get(id) {
        Some(answer) => check(request, answer).map_err(|why| format!("{id}: {why}")),
        None => Err(format!("{id}: is missing")),
    })
}

/// As much of an id as an error shows.
const LONGEST_ID: usize = 64;

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

    fn form(message: &str, field: &str) -> Value {
        json!({"method": "elicitation/create", "params": {"mode": "form", "message": message,
            "requestedSchema": {"type": "object", "required": [field],
                                "properties": {field: {"type": "string"}}}}})
    }

    fn asked(requests: Value) -> Result<Wanted, String> {
        let asked = json!({"resultType": "input_required", "inputRequests": requests,
            "requestState": "s1"});
        wanted(serde_json::from_value(asked).unwrap())
    }

    #[test]
    fn an_answer_must_satisfy_each_form() {
        let one = json!({"who": form("Who?", "name")});
        assert_eq!(check_answer(&one, &json!({"name": "ann"})), Ok(()));
        assert!(check_answer(&one, &json!({"name": 1})).unwrap_err().contains("name"));
        let two = json!({"who": form("Who?", "name"), "when": form("When?", "day")});
        let answer = json!({"who": {"name": "ann"}, "when": {"day": "today"}});
        assert_eq!(check_answer(&two, &answer), Ok(()));
        assert_eq!(
            check_answer(&two, &json!({"who": {"name": "ann"}})).unwrap_err(),
            "when: is missing"
        );
        let error = check_answer(&two, &json!({"x": 1})).unwrap_err();
        assert_eq!(error, "x: answers no request");
        assert!(check_answer(&two, &json!("ann")).is_err());
    }

    #[test]
    fn forms_become_one_question_and_the_answers_find_their_way_back() {
        let two = json!({"a": form("Who?", "name"), "b": form("When?", "day")});
        let Ok(Wanted::Person(asks)) = asked(two) else { unreachable!() };
        assert_eq!(asks.message, "Who?\nWhen?");
        let back = |answer| {
            let input = PendingInput { attempt: 1, request: asks.clone(), answer: Some(answer) };
            responses(&input).unwrap()
        };
        let (given, state) =
            back(InputAnswer::Result(json!({"a": {"name": "x"}, "b": {"day": "y"}})));
        assert_eq!(state.as_deref(), Some("s1"));
        assert_eq!(given["b"], json!({"action": "accept", "content": {"day": "y"}}));
        let (given, _) = back(InputAnswer::Error("no".to_owned()));
        assert_eq!(given["a"], json!({"action": "decline"}));
        let unanswered = PendingInput { attempt: 1, request: asks, answer: None };
        assert!(responses(&unanswered).is_none());
    }

    #[test]
    fn only_forms_are_asked_of_people() {
        let sampling = json!({"x": {"method": "sampling/createMessage",
            "params": {"messages": [], "maxTokens": 1}}});
        assert!(asked(sampling).is_err());
        let page = json!({"x": {"method": "elicitation/create",
            "params": {"mode": "url", "message": "Go", "url": "https://a.b"}}});
        assert!(asked(page).is_err());
        assert!(matches!(asked(json!({})), Ok(Wanted::Again(Some(_)))));
        let many: Value = (0..20).map(|n| (n.to_string(), form("?", "a"))).collect();
        assert!(asked(many).is_err());
    }
}
