//! The deterministic model, which plays the agent's script.
//!
//! A script is a list of entries, one for each step of the turn, or a list of rules. The number of
//! a step is the number of assistant messages after the last user message. After the last entry the
//! model answers `Done.`
//!
//! ```yaml
//! script:                             # entries
//!   - text: "I look it up."
//!     calls:
//!       - {name: search, args: {query: "{{ user }}"}}
//!   - text: "Found: {{ results.search.result }}"
//! ```
//!
//! ```yaml
//! script:                             # rules; the first that matches the user's text is played
//!   - when: "(?i)refund"              # a regular expression; a rule without it always matches
//!     steps:
//!       - {calls: [{name: refund, args: {amount: 120}}]}
//!       - {text: "{{ 'Refunded.' if results.refund.ok else results.refund.error }}"}
//!   - steps: [{text: "You said: {{ user }}"}]
//! ```
//!
//! An entry has any of:
//!
//! | key | meaning |
//! |---|---|
//! | `thinking` | streamed first, word by word; a template |
//! | `text` | streamed after that, word by word; a template |
//! | `calls` | each is `{name, args?, id?}`; strings within `args` are templates |
//! | `error` | `{message, retry?}`: the model call fails after the items above were streamed; `retry: elsewhere` is a model that is gone |
//! | `delay` | the delay before every piece, such as `20ms`, at most 1 minute |
//! | `usage` | `{input_tokens, output_tokens}` |
//! | `stream_args` | `true`: the arguments of the calls are streamed first, in pieces |
//!
//! `args` that are a string count as a provider's raw arguments, JSON or not. The id of a call
//! without one is `call_<step>_<n>`, both counted from 1.
//!
//! A template (minijinja) sees `user`, the last user message with one line of text per block, and
//! `results`: by tool name, the envelope of its last result in this turn. The repair of a
//! structured answer is one more step.
//!
//! The answer to a request for a summary is `Summary of N messages.`, whatever the script is.

mod script;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use abide_conversation::message::blocks::texts;
use abide_conversation::message::{Message, MessageRole};
use async_trait::async_trait;
use futures::stream::{self, StreamExt};
use minijinja::context;
use minijinja::value::Serde;
use serde_json::{Map, Value, json};

use self::script::{Script, ScriptCall, ScriptEntry};
use super::prompt::{BUILTIN_ERROR, is_from_person};
use super::{
    CallPiece, Model, ModelError, ModelRequest, ModelToolCall, Purpose, ReplyChunk, ReplyEnd,
    ReplyStream, big_numbers,
};

/// How many compiled scripts are cached: as many scripted agents as a node is likely to run.
const MAX_COMPILED_SCRIPTS: usize = 32;

/// The characters of a piece of arguments.
const ARGS_PIECE_CHARS: usize = 8;

/// Plays scripts, and caches the most recent ones in compiled form.
#[derive(Default)]
pub struct ScriptedModel {
    compiled: Mutex<VecDeque<(Arc<Value>, Arc<Script>)>>,
}

/// Validates a script when its agent is defined. The error begins with the path, such as
/// `script[2].calls[0].name: …`.
pub fn check(script: &Value) -> Result<(), String> {
    Script::parse(script).map(|_| ())
}

#[async_trait]
impl Model for ScriptedModel {
    async fn call(&self, request: &ModelRequest) -> Result<ReplyStream, ModelError> {
        if request.purpose == Purpose::Summary {
            let count = request.messages.iter().map(|message| message.content.len()).sum::<usize>();
            let (_, played) = text_only(&format!("Summary of {count} messages."));
            return Ok(stream::iter(played).filter_map(async |it| it.chunk()).boxed());
        }
        let source = request.settings.script.clone().unwrap_or_default();
        let script = self.compile(&source)?;
        let input = ScriptInput::of(&request.messages);
        let (delay, played) = play(&script, &input)?;
        let sink = request.call_pieces.clone();
        let pace = move |played: Played| {
            let sink = sink.clone();
            async move {
                if !delay.is_zero() && !matches!(played, Played::Chunk(Ok(ReplyChunk::Done(_)))) {
                    tokio::time::sleep(delay).await;
                }
                match played {
                    Played::Chunk(chunk) => Some(chunk),
                    Played::CallPiece(piece) => {
                        sink.send(piece);
                        None
                    }
                }
            }
        };
        Ok(stream::iter(played).filter_map(pace).boxed())
    }
}

impl ScriptedModel {
    fn compile(&self, source: &Arc<Value>) -> Result<Arc<Script>, ModelError> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, script)) = compiled.iter().find(|(known, _)| known == source) {
            return Ok(script.clone());
        }
        let script = Arc::new(Script::parse(source).map_err(ModelError::permanent)?);
        if compiled.len() == MAX_COMPILED_SCRIPTS {
            compiled.pop_front();
        }
        compiled.push_back((source.clone(), script.clone()));
        Ok(script)
    }
}

/// The facts that a script reacts to.
struct ScriptInput {
    user: String,
    /// The number of the turn's assistant messages.
    step: usize,
    results: BTreeMap<String, Value>,
}

impl ScriptInput {
    fn of(messages: &[Message]) -> Self {
        let last = messages.iter().rposition(is_from_person);
        let user = last.map(|index| texts(&messages[index].content).join("\n")).unwrap_or_default();
        let turn = &messages[last.map_or(0, |index| index + 1)..];
        let assistant = turn.iter().filter(|message| message.role == MessageRole::Assistant);
        let names: HashMap<_, _> = assistant
            .clone()
            .flat_map(|message| &message.tool_calls)
            .map(|call| (&call.id, &call.name))
            .collect();
        let result = |message: &Message| {
            let name = names.get(message.tool_call_id.as_ref()?)?;
            let text = message.text();
            Some(((*name).clone(), envelope(text)))
        };
        Self { user, step: assistant.count(), results: turn.iter().filter_map(result).collect() }
    }
}

/// A result as scripts see it, independent of the form that other models read.
fn envelope(text: String) -> Value {
    match text.strip_prefix(BUILTIN_ERROR) {
        Some(error) => json!({"ok": false, "error": error, "error_type": "TOOL_ERROR"}),
        None => serde_json::from_str(&text).unwrap_or(Value::String(text)),
    }
}

/// What a script has the model do next.
enum Played {
    Chunk(Result<ReplyChunk, ModelError>),
    CallPiece(CallPiece),
}

impl Played {
    fn chunk(self) -> Option<Result<ReplyChunk, ModelError>> {
        match self {
            Self::Chunk(chunk) => Some(chunk),
            Self::CallPiece(_) => None,
        }
    }
}

fn text_only(text: &str) -> (Duration, Vec<Played>) {
    let done = Played::Chunk(Ok(ReplyChunk::Done(ReplyEnd::default())));
    (Duration::ZERO, words(text, ReplyChunk::Text).chain([done]).collect())
}

fn play(script: &Script, input: &ScriptInput) -> Result<(Duration, Vec<Played>), ModelError> {
    let Some(entries) = script.entries(&input.user) else {
        return Ok(text_only("No rule of the script matches this message."));
    };
    match entries.get(input.step) {
        Some(entry) => Ok((entry.delay, entry_chunks(script, entry, input)?)),
        None => Ok(text_only("Done.")),
    }
}

fn entry_chunks(
    script: &Script,
    entry: &ScriptEntry,
    input: &ScriptInput,
) -> Result<Vec<Played>, ModelError> {
    let values = context! { user => input.user.as_str(), results => Serde(&input.results) };
    let render = |text: &str| script.render(text, &values);
    let mut played = Vec::new();
    if let Some(thinking) = &entry.thinking {
        played.extend(words(&render(thinking)?, ReplyChunk::Thinking));
    }
    if let Some(text) = &entry.text {
        played.extend(words(&render(text)?, ReplyChunk::Text));
    }
    let mut calls = Vec::new();
    for (index, call) in entry.calls.iter().enumerate() {
        let id = format!("call_{}_{}", input.step + 1, index + 1);
        calls.push(model_call(call, id, &render)?);
    }
    if entry.stream_args {
        let pieces = calls.iter().enumerate().flat_map(|(index, call)| args_pieces(index, call));
        played.extend(pieces.map(Played::CallPiece));
    }
    played.extend(calls.into_iter().map(|call| Played::Chunk(Ok(ReplyChunk::Call(call)))));
    let done = ReplyEnd { usage: entry.usage, ..ReplyEnd::default() };
    played.push(Played::Chunk(match &entry.error {
        Some(error) => Err(error.clone()),
        None => Ok(ReplyChunk::Done(done)),
    }));
    Ok(played)
}

/// The arguments of a call in pieces, of which the first has only the tool's name.
fn args_pieces(index: usize, call: &ModelToolCall) -> Vec<CallPiece> {
    let args = match &call.args {
        Ok(args) => args.to_string(),
        Err(raw) => raw.clone(),
    };
    let chars: Vec<char> = args.chars().collect();
    let piece = |chars: &[char]| CallPiece { index, name: None, args_text: chars.iter().collect() };
    let first = CallPiece { index, name: Some(call.name.clone()), args_text: String::new() };
    [first].into_iter().chain(chars.chunks(ARGS_PIECE_CHARS).map(piece)).collect()
}

type Render<'a> = dyn Fn(&str) -> Result<String, ModelError> + 'a;

fn model_call(
    call: &ScriptCall,
    id: String,
    render: &Render<'_>,
) -> Result<ModelToolCall, ModelError> {
    let args = match &call.args {
        Value::String(raw) => big_numbers::parse_exact(render(raw)?),
        args => Ok(render_value(args, render)?),
    };
    let id = call.id.clone().unwrap_or(id);
    Ok(ModelToolCall { id, name: call.name.clone(), args, provider_result: None })
}

fn render_value(value: &Value, render: &Render<'_>) -> Result<Value, ModelError> {
    Ok(match value {
        Value::String(text) => Value::String(render(text)?),
        Value::Array(values) => {
            let values = values.iter().map(|value| render_value(value, render));
            Value::Array(values.collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| {
                Ok::<_, ModelError>((key.clone(), render_value(value, render)?))
            };
            Value::Object(fields.iter().map(field).collect::<Result<Map<_, _>, _>>()?)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    })
}

/// The words of a text as chunks, each followed by its white space.
fn words(text: &str, part: fn(String) -> ReplyChunk) -> impl Iterator<Item = Played> {
    let played = move |word: &str| Played::Chunk(Ok(part(word.to_owned())));
    text.split_inclusive(char::is_whitespace).map(played)
}
