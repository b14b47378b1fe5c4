//! Questions to the person behind a client, and what they answer.

use abide_conversation::AnswerSchema;
use abide_conversation::command::ResolutionAnswer;
use abide_conversation::event::SuspensionKind;
use rmcp::model::{ElicitResult, ElicitationAction, InputRequest};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::protocols::answers::{cancelled, parsed};
use crate::protocols::feed::SuspendedCall;

/// What an answer looks like. A form of the protocol is an object of plain values, nothing deeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// `{approved, reason?}`.
    Approval,
    /// The answer's own object.
    Object,
    /// `{answer}`, a plain value.
    Value,
    /// `{answer}`, with the answer as JSON.
    Json,
    /// `{answer}`, a text or the JSON of an object or a list.
    Text,
}

/// The field of a response that is wrong, and why.
pub type WrongField = (&'static str, &'static str);

/// A question that a client was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    pub kind: SuspensionKind,
    pub form: Form,
}

impl Question {
    /// The question about a call that waits, as the client is to ask it.
    pub fn about(open: &SuspendedCall) -> Option<(Self, InputRequest)> {
        let kind = open.kind;
        let message = match kind {
            SuspensionKind::Approval => {
                format!("{}\n\n{} {:#}", open.message, open.tool, open.args)
            }
            SuspensionKind::Elicitation | SuspensionKind::ClientExec | SuspensionKind::InDoubt => {
                open.message.clone()
            }
        };
        let schema = open.answer_schema.as_ref().map(AnswerSchema::to_value);
        forms(kind, schema.as_ref()).into_iter().find_map(|(form, schema)| {
            let request = json!({"method": "elicitation/create",
                "params": {"mode": "form", "message": message, "requestedSchema": schema}});
            // The protocol's own types say which schemas a client can draw.
            let request = serde_json::from_value(request).ok()?;
            Some((Self { kind, form }, request))
        })
    }

    /// The answer in a client's response, or the field that is wrong, and why.
    pub fn answer(self, response: &Value) -> Result<ResolutionAnswer, WrongField> {
        let response: ElicitResult = serde_json::from_value(response.clone())
            .map_err(|_| ("action", "must be accept, decline or cancel"))?;
        match response.action {
            ElicitationAction::Accept => {}
            // Declined, cancelled, or refused in a way that a later version of the protocol has.
            _ => return Ok(cancelled(self.kind)),
        }
        let content = response.content.unwrap_or_default();
        if !content.is_object() {
            return Err(("content", "must be an object"));
        }
        let answer = || match &content["answer"] {
            Value::Null => Err(("content.answer", "is missing")),
            answer => Ok(answer.clone()),
        };
        match self.form {
            Form::Approval => {
                let approved = content["approved"].as_bool();
                let approved = approved.ok_or(("content.approved", "must be a boolean"))?;
                let reason = content["reason"].as_str().filter(|reason| !reason.is_empty());
                let reason = reason.map(str::to_owned);
                Ok(ResolutionAnswer::Approval { approved, reason, args: None })
            }
            Form::Object => Ok(ResolutionAnswer::Result(content)),
            Form::Value => answer().map(ResolutionAnswer::Result),
            Form::Json => answer().map(|answer| ResolutionAnswer::Result(from_json(answer))),
            Form::Text => answer().map(|answer| ResolutionAnswer::Result(parsed(&answer))),
        }
    }
}

/// The forms in which a question might be asked, the best first.
fn forms(kind: SuspensionKind, schema: Option<&Value>) -> Vec<(Form, Value)> {
    if kind == SuspensionKind::Approval {
        let approved = json!({"type": "boolean", "title": "Approve?"});
        let reason = json!({"type": "string", "title": "Reason"});
        let schema = json!({"type": "object", "required": ["approved"],
            "properties": {"approved": approved, "reason": reason}});
        return vec![(Form::Approval, schema)];
    }
    let wrapped = |answer: Value| {
        let properties = json!({"answer": answer});
        json!({"type": "object", "properties": properties, "required": ["answer"]})
    };
    let text = |description: String| {
        wrapped(json!({"type": "string", "title": "Answer", "description": description}))
    };
    match schema {
        None => vec![(Form::Text, text("Text, or JSON of an object or a list".to_owned()))],
        Some(schema) => vec![
            (Form::Object, with_types(schema)),
            (Form::Value, wrapped(with_type(schema))),
            (Form::Json, text(format!("JSON that fits {schema}"))),
        ],
    }
}

/// The schema, whose choices of texts say that they are texts.
fn with_types(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(|property| *property = with_type(property));
    }
    schema
}

fn with_type(schema: &Value) -> Value {
    let mut schema = schema.clone();
    let choices = schema["enum"].as_array();
    let are_texts = choices.is_some_and(|choices| choices.iter().all(Value::is_string));
    if are_texts && schema["type"].is_null() {
        schema["type"] = json!("string");
    }
    schema
}

/// What a text of JSON says; any other text is the answer itself.
fn from_json(answer: Value) -> Value {
    let value = answer.as_str().and_then(|text| serde_json::from_str(text).ok());
    value.unwrap_or(answer)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
