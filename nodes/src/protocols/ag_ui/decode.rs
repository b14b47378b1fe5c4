//! Decodes a request: what is new in it. Clients send their whole history, of which nothing is believed.

use std::collections::BTreeSet;

use abide_actors::request::ResolveRequest;
use abide_conversation::command::{IfBusy, ResolutionAnswer};
use abide_conversation::event::{Executor, SuspensionKind};
use abide_conversation::message::text_block;
use abide_conversation::state::PendingCall;
use abide_conversation::{CallId, Principal};
use serde_json::{Map, Value, json};

use super::content;
use super::types::{Dialect, InputError, InputResume, InputTool, ResumeStatus, RunInput, RunTools};
use crate::protocols::answers::{cancelled, parsed};
use crate::protocols::feed::parse_suspension_id;

/// The longest id of a message or a run.
const MAX_ID_CHARS: usize = 255;
/// How many messages, the newest, may be new.
const MAX_NEW_MESSAGES: usize = 200;
/// The member of the state that a node sends, and clients send back.
const OWN_STATE: &str = "abide";

/// What a request asks for.
#[derive(Debug)]
pub struct Run {
    pub dialect: Dialect,
    pub run_id: String,
    pub resume: Vec<InputResume>,
    /// The results that the client's history has behind its last messages of a user.
    results: Vec<ToolMessage>,
    /// The messages of the user behind everything else, oldest first.
    pub messages: Vec<UserMessage>,
    pub tools: Vec<InputTool>,
    /// Blocks for the end of the turn's prompts.
    pub context: Vec<Value>,
    /// The client's state, without the member that a node sends.
    pub state: Value,
    pub if_busy: Option<IfBusy>,
}

/// A message of a user.
#[derive(Clone, Debug, PartialEq)]
pub struct UserMessage {
    pub id: String,
    pub content: Vec<Value>,
}

#[derive(Debug)]
struct ToolMessage {
    call: CallId,
    content: Value,
    error: Option<String>,
}

/// The answers of a request.
#[derive(Debug, Default, PartialEq)]
pub struct Answers {
    pub requests: Vec<ResolveRequest>,
    /// Whether some came too late: the client is told what became of their calls.
    pub has_stale: bool,
}

impl Run {
    /// Reads a request.
    pub fn new(input: RunInput) -> Result<Self, InputError> {
        let dialect = input.dialect();
        if !(1..=MAX_ID_CHARS).contains(&input.run_id.chars().count()) {
            return Err(InputError::new(
                "runId",
                format!("must be 1 to {MAX_ID_CHARS} characters"),
            ));
        }
        let if_busy = if_busy(&input.forwarded_props)?;
        let messages = user_messages(&input.messages)?;
        let results = results(&input.messages);
        let context = input.context.into_iter().map(|context| match context.description.as_str() {
            "" => text_block(context.value),
            description => text_block(format!("{description}:\n{}", context.value)),
        });
        Ok(Self {
            dialect,
            run_id: input.run_id,
            resume: input.resume.unwrap_or_default(),
            results,
            messages,
            tools: input.tools,
            context: context.collect(),
            state: own_state(input.state),
            if_busy,
        })
    }

    /// The names of the tools that the client executes.
    pub fn run_tools(&self) -> RunTools {
        RunTools::new(self.tools.iter().map(|tool| tool.name.clone()))
    }

    /// The definitions of the client's tools for one turn.
    pub fn tool_definitions(&self) -> Vec<Value> {
        let mut names = BTreeSet::new();
        let is_first = |tool: &&InputTool| names.insert(tool.name.clone());
        let definition = |tool: &InputTool| {
            let mut definition = json!({"name": tool.name, "executor": "client"});
            if !tool.description.is_empty() {
                definition["description"] = json!(tool.description);
            }
            if tool.parameters.is_object() {
                definition["parameters"] = tool.parameters.clone();
            }
            definition
        };
        self.tools.iter().filter(is_first).map(definition).collect()
    }

    /// The client's state as assigns of a turn.
    pub fn assigns(&self) -> Map<String, Value> {
        let is_empty = match &self.state {
            Value::Null => true,
            Value::Object(state) => state.is_empty(),
            _ => false,
        };
        if is_empty {
            return Map::new();
        }
        Map::from_iter([("state".to_owned(), self.state.clone())])
    }

    /// Whether the request has anything that may be an answer.
    pub fn has_answers(&self) -> bool {
        !self.resume.is_empty() || !self.results.is_empty()
    }

    /// The answers to calls that are open. The error says why an answer can be read by nobody; then none
    /// is given.
    pub fn answers(&self, open: &[PendingCall], by: &Principal) -> Result<Answers, String> {
        let mut answers = Answers::default();
        let mut calls = BTreeSet::new();
        let request = |call: &PendingCall, answer| ResolveRequest {
            call: call.call_id.clone(),
            suspension: Some(call.suspension),
            by: by.clone(),
            answer,
            remember: None,
        };
        for resume in &self.resume {
            let id = parse_suspension_id(&resume.interrupt_id);
            let pending = open.iter().find(|call| {
                id.as_ref().is_some_and(|(id, n)| *id == call.call_id && *n == call.suspension)
            });
            if let Some((call, _)) = &id {
                calls.insert(call.clone());
            }
            let Some(pending) = pending else {
                answers.has_stale = true;
                continue;
            };
            if answers.requests.iter().any(|other| other.call == pending.call_id) {
                return Err(format!("{}: has an answer before this", resume.interrupt_id));
            }
            let answer =
                answer(pending, resume).map_err(|why| format!("{}: {why}", resume.interrupt_id))?;
            answers.requests.push(request(pending, answer));
        }
        for result in &self.results {
            // Clients add the answer to an approval as a result of their own.
            if !calls.insert(result.call.clone()) {
                continue;
            }
            let open = open.iter().find(|pending| pending.call_id == result.call);
            if let Some(pending) = open.filter(|pending| is_for_client(pending)) {
                answers.requests.push(request(pending, result.answer()));
            }
        }
        Ok(answers)
    }
}

/// Whether a client gives the result of this call.
fn is_for_client(pending: &PendingCall) -> bool {
    let is_result = match pending.kind {
        SuspensionKind::Approval => false,
        SuspensionKind::Elicitation | SuspensionKind::ClientExec | SuspensionKind::InDoubt => true,
    };
    is_result && matches!(pending.executor, Executor::Client | Executor::Human)
}

impl ToolMessage {
    fn answer(&self) -> ResolutionAnswer {
        match self.error.as_deref().map(str::trim) {
            None => ResolutionAnswer::Result(parsed(&self.content)),
            Some("") => ResolutionAnswer::Error("failed".to_owned()),
            Some(error) => ResolutionAnswer::Error(error.to_owned()),
        }
    }
}

fn answer(pending: &PendingCall, resume: &InputResume) -> Result<ResolutionAnswer, &'static str> {
    if resume.status == ResumeStatus::Cancelled {
        return Ok(cancelled(pending.kind));
    }
    if pending.kind != SuspensionKind::Approval {
        return Ok(ResolutionAnswer::Result(resume.payload.clone()));
    }
    let payload = &resume.payload;
    let approved = payload["approved"].as_bool();
    let approved = approved.ok_or("payload.approved must be true or false")?;
    let reason = match &payload["reason"] {
        Value::Null => None,
        Value::String(reason) => Some(reason.clone()).filter(|reason| !reason.is_empty()),
        _ => return Err("payload.reason must be a text"),
    };
    let args = Some(payload["editedArgs"].clone()).filter(|args| !args.is_null());
    if args.is_some() && !approved {
        return Err("payload.editedArgs must be absent when the call is denied");
    }
    Ok(ResolutionAnswer::Approval { approved, reason, args })
}

fn if_busy(forwarded: &Value) -> Result<Option<IfBusy>, InputError> {
    match &forwarded["abide"]["if_busy"] {
        Value::Null => Ok(None),
        Value::String(policy) => match policy.as_str() {
            "reject" => Ok(Some(IfBusy::Reject)),
            "queue" => Ok(Some(IfBusy::Queue)),
            "interrupt" => Ok(Some(IfBusy::Interrupt)),
            _ => Err(unknown_policy()),
        },
        _ => Err(unknown_policy()),
    }
}

fn unknown_policy() -> InputError {
    let rule = "must be reject, queue or interrupt";
    InputError::new("forwardedProps.abide.if_busy", rule)
}

fn own_state(state: Value) -> Value {
    match state {
        Value::Object(mut state) => {
            state.remove(OWN_STATE);
            Value::Object(state)
        }
        other => other,
    }
}

fn role(message: &Value) -> &str {
    message["role"].as_str().unwrap_or_default()
}

/// The messages of the user behind the last message of the assistant or a tool.
fn user_messages(messages: &[Value]) -> Result<Vec<UserMessage>, InputError> {
    let newest = messages.iter().enumerate().rev();
    let newest = newest.take_while(|(_, message)| !matches!(role(message), "assistant" | "tool"));
    let mut new = Vec::new();
    for (index, message) in newest.filter(|(_, message)| role(message) == "user") {
        let at = format!("messages[{index}]");
        if new.len() == MAX_NEW_MESSAGES {
            let rule = format!("has more than {MAX_NEW_MESSAGES} new messages");
            return Err(InputError::new("messages", rule));
        }
        let id = message["id"].as_str().unwrap_or_default();
        if !(1..=MAX_ID_CHARS).contains(&id.chars().count()) {
            let rule = format!("must be 1 to {MAX_ID_CHARS} characters");
            return Err(InputError::new(format!("{at}.id"), rule));
        }
        let content = content::blocks(&message["content"]).map_err(|error| error.below(&at))?;
        new.push(UserMessage { id: id.to_owned(), content });
    }
    new.reverse();
    Ok(new)
}

/// The results of tools in the last turn that the history has. Those of no call that is open count for
/// nothing, wherever they come from.
fn results(messages: &[Value]) -> Vec<ToolMessage> {
    let newest = messages.iter().rev().skip_while(|message| role(message) == "user");
    let of_turn = newest.take_while(|message| role(message) != "user").take(MAX_NEW_MESSAGES);
    let result = |message: &Value| {
        let call = message["toolCallId"].as_str().filter(|call| !call.is_empty())?;
        let error = message["error"].as_str().map(str::to_owned);
        Some(ToolMessage { call: CallId::new(call), content: text(&message["content"]), error })
    };
    of_turn.filter(|message| role(message) == "tool").filter_map(result).collect()
}

/// The content of a result: a text, or the texts of its parts.
fn text(content: &Value) -> Value {
    match content {
        Value::Array(parts) if parts.iter().all(|part| part["type"] == "text") => {
            json!(parts.iter().filter_map(|part| part["text"].as_str()).collect::<String>())
        }
        other => other.clone(),
    }
}
