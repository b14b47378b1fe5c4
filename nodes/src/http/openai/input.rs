//! Decodes what OpenAI's clients send: messages, answers, tools and formats.

use abide_conversation::CallId;
use abide_conversation::message::blocks::check_from_user;
use abide_conversation::message::text_block;
use serde_json::{Value, json};

use crate::problem::Problem;
use crate::protocols::openai::history;
use crate::protocols::openai::items::parse_approval_id;

/// What a request says that is new.
#[derive(Debug, PartialEq)]
pub(super) enum Input {
    Message {
        content: Vec<Value>,
        /// What the client says was said before.
        background: Option<Value>,
    },
    Answers(Vec<InputAnswer>),
}

impl Input {
    /// What the client says was said before.
    pub(super) fn background(&self) -> Option<&Value> {
        match self {
            Self::Message { background, .. } => background.as_ref(),
            Self::Answers(_) => None,
        }
    }
}

/// An answer to a call, and where it stands in the request.
#[derive(Debug, PartialEq)]
pub(super) struct InputAnswer {
    pub(super) at: String,
    /// The place of its value.
    pub(super) value_at: String,
    pub(super) answer: AnswerToCall,
}

#[derive(Debug, PartialEq)]
pub(super) enum AnswerToCall {
    Approval {
        call: CallId,
        suspension: u32,
        approve: bool,
        reason: Option<String>,
    },
    /// The result of a call, by the id that it was given.
    Result {
        call_id: String,
        result: Value,
    },
}

/// What the items of `field` say that is new: they are items of Responses, or messages of Chat
/// Completions. What a model wrote, and all before it, is history.
pub(super) fn input(field: &str, items: &[Value]) -> Result<Input, Problem> {
    let first = history::first_new(items);
    let (before, new) = items.split_at(first);
    let (mut content, mut answers) = (Vec::new(), Vec::new());
    for (index, item) in (first..).zip(new) {
        let at = format!("{field}[{index}]");
        match (item["role"].as_str(), item["type"].as_str()) {
            (Some("user"), _) => content.extend(blocks(&at, &item["content"])?),
            (Some("system" | "developer"), _) => {}
            (Some("tool"), _) => answers.push(tool_message(at, item)?),
            (_, Some("function_call_output")) => answers.push(function_output(at, item)?),
            (_, Some("mcp_approval_response")) => answers.push(approval(at, item)?),
            (Some(_), _) => return Err(Problem::field(&format!("{at}.role"), "is not supported")),
            (None, _) => return Err(Problem::field(&format!("{at}.type"), "is not supported")),
        }
    }
    match (content.is_empty(), answers.is_empty()) {
        (false, true) => {
            let earlier = before.iter().filter(|item| !is_instruction(item)).cloned();
            let background = history::background(&earlier.collect::<Vec<_>>());
            Ok(Input::Message { content, background })
        }
        (true, false) => Ok(Input::Answers(answers)),
        (true, true) => Err(Problem::field(field, "has nothing new from a user")),
        (false, false) => {
            Err(Problem::field(field, "must have a message or answers to calls, not both"))
        }
    }
}

fn is_instruction(item: &Value) -> bool {
    matches!(item["role"].as_str(), Some("system" | "developer"))
}

/// The instructions among these items, as blocks of context.
pub(super) fn instructions(items: &[Value]) -> Vec<Value> {
    let texts = items.iter().filter(|item| is_instruction(item));
    texts.filter_map(|item| history::text(&item["content"])).map(text_block).collect()
}

fn text_field(at: &str, item: &Value, field: &str) -> Result<String, Problem> {
    let text = item[field].as_str().filter(|text| !text.is_empty());
    let missing = || Problem::field(&format!("{at}.{field}"), "is missing");
    text.map(str::to_owned).ok_or_else(missing)
}

fn tool_message(at: String, item: &Value) -> Result<InputAnswer, Problem> {
    let call_id = text_field(&at, item, "tool_call_id")?;
    let value_at = format!("{at}.content");
    let result = result(&value_at, &item["content"])?;
    Ok(InputAnswer { at, value_at, answer: AnswerToCall::Result { call_id, result } })
}

fn function_output(at: String, item: &Value) -> Result<InputAnswer, Problem> {
    let call_id = text_field(&at, item, "call_id")?;
    let value_at = format!("{at}.output");
    let output = item.get("output").ok_or_else(|| Problem::field(&value_at, "is missing"))?;
    let result = result(&value_at, output)?;
    Ok(InputAnswer { at, value_at, answer: AnswerToCall::Result { call_id, result } })
}

/// The result that a client gives a call. Parts of which some are no text are the blocks that a tool
/// would return.
fn result(at: &str, output: &Value) -> Result<Value, Problem> {
    let is_no_text = |part: &Value| part["type"].is_string() && !part["text"].is_string();
    let Some(parts) = output.as_array().filter(|parts| parts.iter().any(is_no_text)) else {
        return Ok(history::result(output));
    };
    let blocks = blocks_of(at, parts)?;
    for (index, block) in blocks.iter().enumerate() {
        check_from_user(block)
            .map_err(|error| Problem::field(&format!("{at}[{index}]"), error.problem))?;
    }
    Ok(Value::Array(blocks))
}

fn approval(at: String, item: &Value) -> Result<InputAnswer, Problem> {
    let field = |name: &str, why: &str| Problem::field(&format!("{at}.{name}"), why);
    let id = text_field(&at, item, "approval_request_id")?;
    let place = parse_approval_id(&id);
    let (call, suspension) =
        place.ok_or_else(|| field("approval_request_id", "is of no approval request"))?;
    let approve = item["approve"].as_bool();
    let approve = approve.ok_or_else(|| field("approve", "must be true or false"))?;
    let reason = item["reason"].as_str().map(str::to_owned);
    let value_at = format!("{at}.approve");
    let answer = AnswerToCall::Approval { call, suspension, approve, reason };
    Ok(InputAnswer { at, value_at, answer })
}

/// The blocks of a user's message, which is text or a list of parts.
fn blocks(at: &str, content: &Value) -> Result<Vec<Value>, Problem> {
    match content {
        Value::String(text) if !text.is_empty() => Ok(vec![text_block(text)]),
        Value::Array(parts) if !parts.is_empty() => blocks_of(&format!("{at}.content"), parts),
        _ => Err(Problem::field(&format!("{at}.content"), "must be text, or parts")),
    }
}

/// The blocks of the parts at this place.
fn blocks_of(at: &str, parts: &[Value]) -> Result<Vec<Value>, Problem> {
    let block = |(index, part): (usize, &Value)| {
        block(part).map_err(|why| Problem::field(&format!("{at}[{index}]"), why))
    };
    parts.iter().enumerate().map(block).collect()
}

fn block(part: &Value) -> Result<Value, &'static str> {
    match part["type"].as_str() {
        Some("text" | "input_text") => part["text"].as_str().map(text_block).ok_or("has no text"),
        Some("input_image") => media("image", &part["image_url"], None),
        Some("image_url") => media("image", &part["image_url"]["url"], None),
        Some("input_file") => file(part),
        Some("file") => file(&part["file"]),
        _ => Err("must be text, an image or a file"),
    }
}

fn file(part: &Value) -> Result<Value, &'static str> {
    let url = if part["file_data"].is_null() { &part["file_url"] } else { &part["file_data"] };
    media("document", url, part["filename"].as_str())
}

/// A block of this kind with what a URL refers to, or has.
fn media(kind: &str, url: &Value, title: Option<&str>) -> Result<Value, &'static str> {
    let url = url.as_str().unwrap_or_default();
    let source = match url.strip_prefix("data:") {
        Some(data) => {
            let (media, data) = data.split_once(";base64,").ok_or("has no data in base64")?;
            json!({"type": "base64", "mimeType": media, "data": data})
        }
        None if url.starts_with("https://") || url.starts_with("http://") => {
            json!({"type": "url", "url": url})
        }
        None => return Err("needs a data, https or http URL"),
    };
    let mut block = json!({"type": kind, "source": source});
    if let Some(title) = title {
        block["title"] = json!(title);
    }
    Ok(block)
}

/// The functions among a client's tools, as tools of one turn. The others, and those that the agent has,
/// need no declaration.
pub(super) fn client_tools(tools: &[Value], of_agent: &[String]) -> Result<Vec<Value>, Problem> {
    let mut declared = Vec::new();
    for (index, tool) in tools.iter().enumerate().filter(|(_, tool)| tool["type"] == "function") {
        // Chat Completions has the function in a member.
        let function = if tool["function"].is_object() { &tool["function"] } else { tool };
        let name = function["name"].as_str().filter(|name| !name.is_empty());
        let missing = || Problem::field(&format!("tools[{index}].name"), "is missing");
        let name = name.ok_or_else(missing)?;
        if of_agent.iter().any(|own| own == name) {
            continue;
        }
        let description = function["description"].as_str().unwrap_or(name);
        let parameters = match &function["parameters"] {
            Value::Null => json!({"type": "object"}),
            parameters => parameters.clone(),
        };
        declared.push(json!({"name": name, "description": description, "parameters": parameters,
            "executor": "client"}));
    }
    Ok(declared)
}

/// The names of the functions among a client's tools.
pub(super) fn tool_names(tools: &[Value]) -> impl Iterator<Item = String> {
    let name = |tool: &Value| {
        let function = if tool["function"].is_object() { &tool["function"] } else { tool };
        function["name"].as_str().map(str::to_owned)
    };
    tools.iter().filter_map(name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
