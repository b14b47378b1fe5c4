//! One model call: the prompt is read from the journal, the reply streams, the calls are planned.

mod hooked;
mod planned;

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_conversation::command::{ModelFailed, ModelReplied};
use abide_conversation::event::{Event, Shape};
use abide_conversation::message::{Message, Usage};
use abide_conversation::state::{Activeness, Turn};
use abide_conversation::{Action, MessageId};
use futures::StreamExt;
use serde_json::Value;

use super::{Surroundings, asked};
use crate::agent::Definition;
use crate::blobs;
use crate::journal::Refusal;
use crate::live::Signal;
use crate::model::{Done, GivenCall, Part, Parts, Purpose, Request, prompt};
use crate::streaming::Piece;
use crate::tools::schema::Schema;
use crate::tools::{Gate, Toolbox};

/// How many events are read at once.
const PAGE: usize = 1_000;
/// More text than this is a model that never stops.
const TEXT_BYTES: usize = 4 << 20;

/// A whole reply.
#[derive(Default)]
struct Heard {
    content: Vec<Value>,
    text: String,
    calls: Vec<GivenCall>,
    done: Done,
}

/// What a step goes by.
struct Step<'a> {
    around: &'a Surroundings,
    turn: Turn,
    step: u32,
    definition: Arc<Definition>,
    schema: Option<Value>,
    /// One for the whole step: a call is judged by what the model was told.
    toolbox: Toolbox,
}

pub(super) async fn model_step(around: &Surroundings, step: u32) -> Result<Action, Refusal> {
    let Some(turn) = around.state.turn.clone() else { return Ok(Action::Wake) };
    let Some(definition) = around.deps.agents.revision(&turn.revision).await? else {
        let (turn, reason) = (turn.id, "agent-missing".to_owned());
        return Ok(Action::ModelFailed(ModelFailed { turn, step, reason, partial: None }));
    };
    let schema = match &turn.shape {
        Shape::Agent => definition.response_format.as_ref().map(|schema| schema.source().clone()),
        Shape::Plain => None,
        Shape::Schema(schema) => Some(schema.clone()),
    };
    let toolbox = around.toolbox(definition.clone()).await;
    let step = Step { around, turn, step, definition, schema, toolbox };
    let events = journal(around).await?;
    let id = MessageId::new(around.deps.clock.id("msg"));
    let messages = match step.messages(&events).await {
        Ok(messages) => messages,
        Err(instead) => return Ok(instead),
    };
    let messages = blobs::filled(&*around.deps.blobs, messages).await?;
    match step.speak(&id, messages).await {
        Ok(heard) => step.replied(id, heard).await,
        Err(reason) => Ok(step.failed(reason)),
    }
}

impl Step<'_> {
    /// What the model reads; or what is to be journalled first, or instead.
    async fn messages(&self, events: &[Event]) -> Result<Vec<Message>, Action> {
        let is_builtin =
            |name: &str| self.toolbox.tool(name).is_some_and(|tool| tool.builtin().is_some());
        let mut messages = prompt::messages(events, &self.turn.id, &is_builtin);
        let added = self.prepare(events, &messages).await?;
        messages.extend(added);
        Ok(messages)
    }

    async fn speak(&self, id: &MessageId, messages: Vec<Message>) -> Result<Heard, String> {
        let request = Request {
            settings: self.definition.model.clone(),
            system: self.definition.system_prompt.clone(),
            stable: messages.len(),
            verbatim: BTreeMap::new(),
            cache_key: self.around.id.to_string(),
            purpose: Purpose::Step,
            messages,
            tools: self.toolbox.specs(&self.gate()),
            schema: self.schema.clone(),
        };
        let step = Some((self.turn.id.clone(), self.step));
        let parts = asked::ask(self.around, &self.definition, step, request).await;
        let parts = parts.map_err(|failure| failure.message)?;
        self.listen(id, self.filtered(parts)).await
    }

    async fn listen(&self, id: &MessageId, mut parts: Parts) -> Result<Heard, String> {
        let around = self.around;
        let live = &*around.deps.live;
        let mut heard = Heard::default();
        let mut bytes = 0_usize;
        while let Some(part) = parts.next().await {
            let part = part.map_err(|failure| failure.message)?;
            if !around.stream.speaks() {
                around.stream.begin(id.clone(), self.turn.id.clone(), self.step);
                let (state, seq) = (Activeness::Streaming, around.state.seq);
                live.publish(&around.id, Signal::State { state, seq });
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
                Part::Done(done) => {
                    heard.done = done;
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

    async fn replied(self, id: MessageId, heard: Heard) -> Result<Action, Refusal> {
        let object = self.schema.as_ref().filter(|_| heard.calls.is_empty());
        let object = match object.cloned() {
            Some(schema) => Some(judged(schema, heard.text.clone()).await),
            None => None,
        };
        let mut judged = self.judged(&heard).await;
        let prices = self.definition.model.prices;
        let priced = |usage: Usage| Usage { cost: prices.cost(&usage), ..usage };
        Ok(match self.planned(heard.calls, &mut judged).await? {
            Some(calls) => Action::ModelReplied(ModelReplied {
                turn: self.turn.id,
                step: self.step,
                id,
                calls,
                content: heard.content,
                usage: heard.done.usage.map(priced),
                stop: heard.done.stop,
                verbatim: heard.done.verbatim,
                context_tokens: None,
                object,
                judged,
            }),
            None => self.failed("the model's calls could not be planned".to_owned()),
        })
    }

    fn gate(&self) -> Gate {
        Gate::new(self.definition.clone(), &self.around.state)
    }

    fn failed(self, reason: String) -> Action {
        let partial = self.around.stream.partial();
        let (turn, step) = (self.turn.id, self.step);
        Action::ModelFailed(ModelFailed { turn, step, reason, partial })
    }
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

/// The same, aside: schemas may be large.
async fn judged(schema: Value, text: String) -> Result<Value, String> {
    let judged = tokio::task::spawn_blocking(move || judge(&schema, &text)).await;
    judged.unwrap_or_else(|error| Err(format!("the answer could not be judged: {error}")))
}

/// A structured answer's value, or what is wrong with it.
fn judge(schema: &Value, text: &str) -> Result<Value, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    Schema::compile(schema)?.check(&value)?;
    Ok(value)
}
