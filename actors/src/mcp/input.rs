//! What a server asks of a person in the middle of a call, and the answer on its way back.

use serde_json::Value;

use crate::tools::schema::Schema;

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
        return Err(format!("{unknown}: answers no request"));
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
