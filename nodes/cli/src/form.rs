//! Forms on the terminal, from the JSON Schema of an answer.

mod field;

use inquire::validator::Validation;
use inquire::{Confirm, CustomUserError, MultiSelect, Select, Text};
use serde_json::{Map, Value, json};

use crate::error::CliError;
use crate::printer::cell;
use crate::text::one_line;

use field::{Field, Kind};

/// The most characters of a prompt.
const MAX_PROMPT_CHARS: usize = 300;

const CHOICE_HELP: &str = "↑↓ to move, enter to choose, escape leaves it open";

/// Whether a schema asks for a text, so that one may be given without quotes.
pub(crate) fn is_text(schema: &Value) -> bool {
    let is_text = |value: &Value| value.is_string();
    match (&schema["type"], &schema["enum"]) {
        (Value::String(kind), _) => kind == "string",
        (Value::Null, Value::Array(values)) => values.iter().all(is_text),
        _ => false,
    }
}

/// Asks for the answer to a call that waits; returns the body of its resolution.
pub(crate) fn answer(pending: &Value) -> Result<Value, CliError> {
    let message = one_line(pending["message"].as_str().unwrap_or_default(), MAX_PROMPT_CHARS);
    let schema = &pending["answer_schema"];
    if pending["kind"] == "approval" {
        return approval(&message, schema);
    }
    Ok(json!({"result": value(&message, schema)?}))
}

fn approval(message: &str, schema: &Value) -> Result<Value, CliError> {
    let choices = vec!["Approve", "Deny", "Approve with other arguments"];
    let choice = Select::new(&prompt_of(message, "Approve?"), choices)
        .without_filtering()
        .with_help_message(CHOICE_HELP)
        .raw_prompt();
    match choice.map_err(left)?.index {
        0 => Ok(json!({"approved": true})),
        1 => {
            let reason = Text::new("Why? (may be empty)").prompt().map_err(left)?;
            let mut body = json!({"approved": false});
            if !reason.trim().is_empty() {
                body["reason"] = json!(reason);
            }
            Ok(body)
        }
        _ => {
            let args = value("Arguments", &schema["properties"]["args"])?;
            Ok(json!({"approved": true, "args": args}))
        }
    }
}

/// Asks for a value of a schema: field by field where the schema is an object of simple members.
pub(crate) fn value(message: &str, schema: &Value) -> Result<Value, CliError> {
    let Some(fields) = field::fields(schema) else {
        return ask(&Field::whole(schema), &prompt_of(message, "Answer")).map(|value| {
            // Only a member may be left out.
            value.unwrap_or(Value::Null)
        });
    };
    let mut object = Map::new();
    for field in fields {
        let optional = if field.is_required { "" } else { " (may be empty)" };
        let prompt = one_line(&format!("{}{optional}", field.title), MAX_PROMPT_CHARS);
        if let Some(value) = ask(&field, &prompt)? {
            object.insert(field.name, value);
        }
    }
    Ok(Value::Object(object))
}

/// Asks for one field; `None` if it is left out.
fn ask(field: &Field, prompt: &str) -> Result<Option<Value>, CliError> {
    match &field.kind {
        Kind::Choice(values) => {
            let shown: Vec<String> = values.iter().map(|it| one_line(&cell(it), 80)).collect();
            let select = Select::new(prompt, shown).without_filtering();
            let select = select.with_help_message(CHOICE_HELP);
            if field.is_required {
                let chosen = select.raw_prompt().map_err(left)?;
                return Ok(values.get(chosen.index).cloned());
            }
            let chosen = select.raw_prompt_skippable().map_err(left)?;
            Ok(chosen.and_then(|chosen| values.get(chosen.index).cloned()))
        }
        Kind::Choices(values) => {
            let shown: Vec<String> = values.iter().map(|it| one_line(&cell(it), 80)).collect();
            let select = MultiSelect::new(prompt, shown).without_filtering();
            let chosen = select.raw_prompt().map_err(left)?;
            let chosen = chosen.iter().filter_map(|chosen| values.get(chosen.index).cloned());
            Ok(Some(Value::Array(chosen.collect())))
        }
        Kind::Flag => {
            let confirm = Confirm::new(prompt);
            if field.is_required {
                return confirm.prompt().map(|yes| Some(json!(yes))).map_err(left);
            }
            Ok(confirm.prompt_skippable().map_err(left)?.map(|yes| json!(yes)))
        }
        kind @ (Kind::Text | Kind::Number | Kind::Integer | Kind::Json) => {
            let (checked, is_required) = (kind.clone(), field.is_required);
            let check = move |text: &str| -> Result<Validation, CustomUserError> {
                Ok(match read(&checked, is_required, text) {
                    Ok(_) => Validation::Valid,
                    Err(rule) => Validation::Invalid(rule.into()),
                })
            };
            let text = Text::new(prompt).with_validator(check).prompt().map_err(left)?;
            read(kind, is_required, &text).map_err(|rule| CliError::Usage(rule.to_owned()))
        }
    }
}

/// A text that was typed as the value that it stands for; the error is the rule that it breaks.
fn read(kind: &Kind, is_required: bool, text: &str) -> Result<Option<Value>, &'static str> {
    if text.is_empty() && !is_required {
        return Ok(None);
    }
    let parsed = || serde_json::from_str::<Value>(text.trim());
    let number = |value: Value, rule| if value.is_number() { Ok(Some(value)) } else { Err(rule) };
    match kind {
        Kind::Text => Ok(Some(Value::String(text.to_owned()))),
        Kind::Number => number(parsed().unwrap_or_default(), "must be a number"),
        Kind::Integer => match parsed().unwrap_or_default() {
            value if value.is_i64() || value.is_u64() => Ok(Some(value)),
            _ => Err("must be a whole number"),
        },
        Kind::Json => parsed().map(Some).map_err(|_| "must be JSON"),
        Kind::Flag | Kind::Choice(_) | Kind::Choices(_) => Err("is chosen"),
    }
}

fn prompt_of(message: &str, without: &str) -> String {
    if message.is_empty() { without.to_owned() } else { message.to_owned() }
}

fn left(error: inquire::InquireError) -> CliError {
    use inquire::InquireError::{OperationCanceled, OperationInterrupted};
    match error {
        OperationCanceled | OperationInterrupted => {
            CliError::Failed("nothing was answered".to_owned())
        }
        error => CliError::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_becomes_a_value_of_its_kind() {
        for (kind, text, expected) in [
            (Kind::Text, "12", Ok(Some(json!("12")))),
            (Kind::Integer, "12", Ok(Some(json!(12)))),
            (Kind::Integer, "1.5", Err("must be a whole number")),
            (Kind::Number, "1.5", Ok(Some(json!(1.5)))),
            (Kind::Number, "x", Err("must be a number")),
            (Kind::Json, "{\"a\": [1]}", Ok(Some(json!({"a": [1]})))),
            (Kind::Json, "{", Err("must be JSON")),
        ] {
            assert_eq!(read(&kind, true, text), expected, "{text}");
        }
        assert_eq!(read(&Kind::Integer, false, ""), Ok(None));
        assert!(read(&Kind::Integer, true, "").is_err());
    }

    #[test]
    fn a_text_needs_no_quotes_where_only_a_text_fits() {
        for (schema, expected) in [
            (json!({"type": "string", "enum": ["window", "aisle"]}), true),
            (json!({"enum": ["window", "aisle"]}), true),
            (json!({"enum": ["window", 1]}), false),
            (json!({"type": ["string", "number"]}), false),
            (json!({"type": "object"}), false),
            (json!(null), false),
        ] {
            assert_eq!(is_text(&schema), expected, "{schema}");
        }
    }
}
