//! `todo_write`: replaces the conversation's to-do list.

use abide_conversation::command::StateChange;
use abide_conversation::event::{Todo, TodoStatus};
use serde_json::{Value, json};

use super::argument;
use crate::tools::ToolReturn;

pub(super) const DESCRIPTION: &str = "Replaces the list of what is to be done, which people see. \
    Keep it up to date while you work: at most one thing in progress, each one completed as soon \
    as it is.";

/// Bounded, since the list is part of every snapshot.
const MAX_TODOS: usize = 200;
const MAX_TODO_CHARS: usize = 1_000;

pub(super) fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {"todos": {
            "type": "array",
            "maxItems": MAX_TODOS,
            "description": "The whole list, in order.",
            "items": {
                "type": "object",
                "properties": {
                    "content": {"type": "string", "minLength": 1, "maxLength": MAX_TODO_CHARS},
                    "status": {"enum": ["pending", "in_progress", "completed"]},
                },
                "required": ["content", "status"],
            },
        }},
        "required": ["todos"],
        "additionalProperties": false,
    })
}

pub(super) fn run(args: &Value) -> ToolReturn {
    match parse_todos(args) {
        Ok(todos) => {
            let lines: Vec<String> = todos.iter().map(line).collect();
            ToolReturn::ok(lines.join("\n")).with_change(StateChange::Todos(todos))
        }
        Err((code, detail)) => ToolReturn::builtin_error(code, &detail),
    }
}

type CodedError = (&'static str, String);

fn parse_todos(args: &Value) -> Result<Vec<Todo>, CodedError> {
    let given = argument(args, "todos").ok_or(("missing_todos", String::new()))?;
    let items = given.as_array().ok_or(("invalid_todo", "todos must be a list".to_owned()))?;
    if items.len() > MAX_TODOS {
        return Err(("invalid_todo", format!("at most {MAX_TODOS} are kept")));
    }
    items.iter().enumerate().map(|(at, item)| parse_todo(at, item)).collect()
}

fn parse_todo(at: usize, item: &Value) -> Result<Todo, CodedError> {
    let wrong = |code, why: &str| (code, format!("todos[{at}] {why}"));
    let fields = item.as_object().ok_or(wrong("invalid_todo", "must be an object"))?;
    let content = fields.get("content").and_then(Value::as_str);
    let content =
        content.filter(|text| !text.trim().is_empty() && text.chars().count() <= MAX_TODO_CHARS);
    let content =
        content.ok_or(wrong("invalid_content", "must have a content of 1 to 1000 characters"))?;
    let status = match fields.get("status").and_then(Value::as_str) {
        Some("pending") => TodoStatus::Pending,
        Some("in_progress") => TodoStatus::InProgress,
        Some("completed") => TodoStatus::Completed,
        Some(_) | None => {
            let why = "must have a status: pending, in_progress or completed";
            return Err(wrong("invalid_status", why));
        }
    };
    Ok(Todo { content: content.to_owned(), status })
}

fn line(todo: &Todo) -> String {
    let mark = match todo.status {
        TodoStatus::Pending => ' ',
        TodoStatus::InProgress => '~',
        TodoStatus::Completed => 'x',
    };
    format!("[{mark}] {}", todo.content)
}

#[cfg(test)]
mod tests {
    use abide_conversation::message::Outcome;

    use super::*;

    #[test]
    fn the_result_has_a_line_for_each_todo_and_the_list_is_stored() {
        let returned = run(&json!({"todos": [
            {"content": "a", "status": "pending"},
            {"content": "b", "status": "in_progress"},
            {"content": "c", "status": "completed"},
        ]}));
        assert_eq!(returned.outcome, Outcome::Ok(json!("[ ] a\n[~] b\n[x] c")));
        let [StateChange::Todos(todos)] = &returned.state_changes[..] else { unreachable!() };
        assert_eq!(todos.len(), 3);
    }

    #[test]
    fn every_mistake_has_its_code() {
        let one = |todo: Value| json!({"todos": [todo]});
        for (args, code) in [
            (json!({}), "missing_todos"),
            (json!({"todos": null}), "missing_todos"),
            (json!({"todos": "a"}), "invalid_todo"),
            (one(json!("a")), "invalid_todo: todos[0]"),
            (json!({"todos": vec![json!({}); 201]}), "invalid_todo: at most 200"),
            (one(json!({"status": "pending"})), "invalid_content: todos[0]"),
            (one(json!({"content": " ", "status": "pending"})), "invalid_content"),
            (one(json!({"content": "x".repeat(1001), "status": "pending"})), "invalid_content"),
            (one(json!({"content": "a", "status": "done"})), "invalid_status: todos[0]"),
            (one(json!({"content": "a"})), "invalid_status"),
        ] {
            let returned = run(&args);
            let Outcome::Err(error, _) = &returned.outcome else { unreachable!("{args}") };
            assert!(error.starts_with(code) && returned.state_changes.is_empty(), "{error}");
        }
    }
}
