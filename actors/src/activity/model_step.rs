//! One model call: the prompt is read from the journal, the reply streams, the calls are planned.

use abide_conversation::command::{ModelFailed, ModelReplied, Plan, Planned};
use abide_conversation::event::{Event, Executor, Intent, Shape};
use abide_conversation::message::{ErrorType, Outcome, Usage};
use abide_conversation::state::{Activeness, Turn};
use abide_conversation::{Action, MessageId};
use futures::StreamExt;
use serde_json::Value;

use super::Surroundings;
use crate::agent::Definition;
use crate::journal::Refusal;
use crate::live::Signal;
use crate::model::retry::Retrying;
use crate::model::{GivenCall, Model, Part, Parts, Request, prompt};
use crate::streaming::Piece;
use crate::tools::schema::Schema;
use crate::tools::{Scope, Toolbox, merged};

/// How many events are read at once.
const PAGE: usize = 1_000;
/// More calls than this in one message are answered with an error: nobody means that many.
const CALLS: usize = 128;
/// More text than this is a model that never stops.
const TEXT_BYTES: usize = 4 << 20;

/// A whole reply.
#[derive(Default)]
struct Heard {
    content: Vec<Value>,
    text: String,
    calls: Vec<GivenCall>,
    usage: Option<Usage>,
}

pub(super) async fn model_step(around: &Surroundings, step: u32) -> Result<Action, Refusal> {
    let Some(turn) = around.state.turn.clone() else { return Ok(Action::Wake) };
    let Some(definition) = around.deps.agents.revision(&turn.revision).await? else {
        return Ok(failed(around, turn, step, "agent-missing".to_owned()));
    };
    let toolbox = around.toolbox(definition.clone());
    let schema = match &turn.shape {
        Shape::Agent => definition.response_format.as_ref().map(|schema| schema.source().clone()),
        Shape::Plain => None,
        Shape::Schema(schema) => Some(schema.clone()),
    };
    let request = Request {
        settings: definition.model.clone(),
        system: definition.system_prompt.clone(),
        messages: prompt::messages(&journal(around).await?, &turn.id),
        tools: toolbox.specs(),
        schema: schema.clone(),
    };
    let (model, clock) = (around.deps.model.clone(), around.deps.clock.clone());
    let asked = Retrying::new(model, definition.retry, clock).ask(request).await;
    let id = MessageId::new(around.deps.clock.id("msg"));
    let heard = match asked {
        Ok(parts) => listen(around, &id, step, parts).await,
        Err(failure) => Err(failure.message),
    };
    Ok(match heard {
        Ok(heard) => replied(around, turn, step, id, heard, schema, &definition, &toolbox),
        Err(reason) => failed(around, turn, step, reason),
    })
}

async fn journal(around: &Surroundings) -> Result<Vec<Event>, Refusal> {
    let mut events: Vec<Event> = Vec::new();
    loop {
        let after = events.last().map(|event| event.seq).unwrap_or_default();
        let page = around.deps.journal.events(&around.id, after, PAGE).await?;
        let last = page.len() < PAGE;
        events.extend(page);
        if last {
            return Ok(events);
        }
    }
}

async fn listen(
    around: &Surroundings,
    id: &MessageId,
    step: u32,
    mut parts: Parts,
) -> Result<Heard, String> {
    let live = &*around.deps.live;
    let mut heard = Heard::default();
    let mut bytes = 0_usize;
    while let Some(part) = parts.next().await {
        let part = part.map_err(|failure| failure.message)?;
        if around.stream.message().is_none() {
            around.stream.begin(id.clone(), step);
            live.publish(&around.id, Signal::State(Activeness::Streaming));
        }
        match part {
            Part::Text(text) => {
                bytes += text.len();
                around.stream.add(live, &around.id, Piece::Text(&text));
            }
            Part::Thinking(text) => {
                bytes += text.len();
                around.stream.add(live, &around.id, Piece::Thinking(&text));
            }
            Part::Call(call) => heard.calls.push(call),
            Part::Done { usage } => {
                heard.usage = usage;
                if let Some(message) = around.stream.message() {
                    heard.content = message.content();
                    heard.text = message.text;
                }
                return Ok(heard);
            }
        }
        if bytes > TEXT_BYTES {
            return Err("the model's message is too long".to_owned());
        }
    }
    Err("the model's stream ended before its message did".to_owned())
}

#[allow(clippy::too_many_arguments)]
fn replied(
    around: &Surroundings,
    turn: Turn,
    step: u32,
    id: MessageId,
    heard: Heard,
    schema: Option<Value>,
    definition: &Definition,
    toolbox: &Toolbox,
) -> Action {
    let scope = Scope {
        conversation: around.id.clone(),
        principal: turn.principal.clone(),
        assigns: merged(&definition.assigns, &around.state.assigns, &turn.assigns),
        metadata: around.state.metadata.clone(),
    };
    let plan = |(place, given): (usize, &GivenCall)| match place < CALLS {
        true => toolbox.plan(given, &scope),
        false => too_many(given),
    };
    let object = schema.filter(|_| heard.calls.is_empty());
    Action::ModelReplied(ModelReplied {
        turn: turn.id,
        step,
        id,
        calls: heard.calls.iter().enumerate().map(plan).collect(),
        content: heard.content,
        usage: heard.usage,
        object: object.map(|schema| judge(&schema, &heard.text)),
    })
}

/// A structured answer's value, or what is wrong with it.
fn judge(schema: &Value, text: &str) -> Result<Value, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    Schema::compile(schema)?.check(&value)?;
    Ok(value)
}

fn too_many(given: &GivenCall) -> Planned {
    let error = format!("invalid tool arguments: more than {CALLS} calls in one message");
    let outcome = Outcome::Err(error, ErrorType::ValidationError);
    Planned {
        given_id: given.id.clone(),
        tool: given.name.chars().take(64).collect(),
        args: Value::Object(Default::default()),
        plan: Plan::Answer { executor: Executor::Server, intent: Intent::Compute, outcome },
    }
}

fn failed(around: &Surroundings, turn: Turn, step: u32, reason: String) -> Action {
    let partial = around.stream.partial();
    Action::ModelFailed(ModelFailed { turn: turn.id, step, reason, partial })
}
