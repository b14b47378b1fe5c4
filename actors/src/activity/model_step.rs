//! One model call: the prompt is read from the journal, the reply streams, the calls are planned.

use std::sync::Arc;

use abide_conversation::command::{Judged, ModelFailed, ModelReplied, Plan, Planned};
use abide_conversation::event::{Event, Executor, Intent, Shape};
use abide_conversation::message::{ErrorType, Outcome, Usage};
use abide_conversation::state::{Activeness, Turn};
use abide_conversation::{Action, ConversationId, MessageId};
use futures::StreamExt;
use serde_json::Value;

use super::Surroundings;
use crate::agent::Definition;
use crate::clock::Clock;
use crate::journal::Refusal;
use crate::live::Signal;
use crate::model::retry::Retrying;
use crate::model::{GivenCall, MOST_CALLS, Model, Part, Parts, Request, prompt};
use crate::streaming::Piece;
use crate::tools::schema::Schema;
use crate::tools::{Gate, LONGEST_NAME, Scope, Tool, Toolbox, merged};

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
    usage: Option<Usage>,
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
    match step.speak(&id, &events).await {
        Ok(heard) => step.replied(id, heard).await,
        Err(reason) => Ok(step.failed(reason)),
    }
}

impl Step<'_> {
    async fn speak(&self, id: &MessageId, events: &[Event]) -> Result<Heard, String> {
        let is_builtin =
            |name: &str| self.toolbox.tool(name).is_some_and(|tool| tool.builtin().is_some());
        let request = Request {
            settings: self.definition.model.clone(),
            system: self.definition.system_prompt.clone(),
            messages: prompt::messages(events, &self.turn.id, &is_builtin),
            tools: self.toolbox.specs(&self.gate()),
            schema: self.schema.clone(),
        };
        let deps = &self.around.deps;
        let model = Retrying::new(deps.model.clone(), self.definition.retry, deps.clock.clone());
        let parts = model.ask(request).await.map_err(|failure| failure.message)?;
        self.listen(id, parts).await
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

    async fn replied(self, id: MessageId, heard: Heard) -> Result<Action, Refusal> {
        let object = self.schema.as_ref().filter(|_| heard.calls.is_empty());
        let object = match object.cloned() {
            Some(schema) => Some(judged(schema, heard.text).await),
            None => None,
        };
        let scope = Scope {
            conversation: self.around.id.clone(),
            principal: self.turn.principal.clone(),
            assigns: merged(
                &self.definition.assigns,
                &self.around.state.assigns,
                &self.turn.assigns,
            ),
            metadata: self.around.state.metadata.clone(),
        };
        let toolbox = self.toolbox.clone();
        let (deps, calls) = (&self.around.deps, heard.calls);
        let clock = deps.clock.clone();
        let of_agent = match toolbox.recalls(calls.iter().map(|call| call.name.as_str())) {
            true => deps.agents.decisions(&self.turn.agent).await?,
            false => Vec::new(),
        };
        let gate = self.gate().recalling(&self.around.state, of_agent, clock.now());
        // Conditions and messages may take a while; they must not hold up other conversations.
        let planned = match calls.is_empty() {
            true => Ok(Vec::new()),
            false => {
                tokio::task::spawn_blocking(move || plan(&toolbox, &calls, &scope, gate, &*clock))
                    .await
            }
        };
        Ok(match planned {
            Ok(calls) => Action::ModelReplied(ModelReplied {
                turn: self.turn.id,
                step: self.step,
                id,
                calls,
                content: heard.content,
                usage: heard.usage,
                object,
                judged: Judged::GoOn,
            }),
            Err(error) => {
                tracing::error!(conversation = %self.around.id, %error, "planning failed");
                self.failed("the model's calls could not be planned".to_owned())
            }
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

fn plan(
    toolbox: &Toolbox,
    calls: &[GivenCall],
    scope: &Scope,
    mut gate: Gate,
    clock: &dyn Clock,
) -> Vec<Planned> {
    let plan = |(place, given): (usize, &GivenCall)| match place < MOST_CALLS {
        true => {
            let mut planned = toolbox.plan(given, scope, &mut gate);
            let asks = toolbox.tool(&planned.tool).is_some_and(Tool::asks_a_child);
            if let Plan::Execute { child, .. } = &mut planned.plan {
                *child = asks.then(|| ConversationId::new(clock.id("conv")));
            }
            planned
        }
        false => too_many(given),
    };
    calls.iter().enumerate().map(plan).collect()
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

fn too_many(given: &GivenCall) -> Planned {
    let error = format!("invalid tool arguments: more than {MOST_CALLS} calls in one message");
    let outcome = Outcome::Err(error, ErrorType::ValidationError);
    Planned {
        given_id: given.id.clone(),
        tool: given.name.chars().take(LONGEST_NAME).collect(),
        args: Value::Object(Default::default()),
        said: None,
        plan: Plan::Answer { executor: Executor::Server, intent: Intent::Compute, outcome },
        gate: None,
    }
}
