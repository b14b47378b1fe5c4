//! Which turns a summary covers, and what its model reads of them.

use std::collections::HashMap;

use abide_conversation::TurnId;
use abide_conversation::context::{Context, Marks};
use abide_conversation::event::{Event, EventData};
use abide_conversation::message::blocks::texts;
use abide_conversation::message::{Message, Role, text_block};
use serde_json::Value;

use crate::activity::{ActivityContext, load_context};
use crate::agent::Definition;
use crate::context::limits::{percent_of, sendable, window};
use crate::context::reduce::first_shown_event;
use crate::journal::StoreError;
use crate::model::ModelSettings;
use crate::model::prompt::{PromptInput, ToolRule, ToolRules};
use crate::model::tokens::TokenCounter;
use crate::tools::limits::cut;

/// So many percent of the budget are left as they are: what was said last.
const KEPT: u64 = 30;
/// What has less of the budget is not worth a model's call; it waits for more.
const WORTH: u64 = 10;
/// What the model reads of one message, and of one result: those of old are of little use.
const MESSAGE: usize = 16 * 1024;
const RESULT: usize = 2 * 1024;

/// What one summary covers.
pub(super) struct Span {
    pub(super) upto: u64,
    /// What is shown after it.
    pub(super) marks: Marks,
    /// A block a message.
    pub(super) transcript: Vec<Value>,
    /// The tokens of what is new in it.
    pub(super) length: u64,
    /// What it takes out of the context, roughly.
    pub(super) tokens: u64,
}

impl Span {
    /// `None`: there is nothing to cover. What the summary's model could not read is left to a later
    /// one.
    pub(super) async fn read(
        around: &ActivityContext,
        definition: &Definition,
        settings: &ModelSettings,
        upto: u64,
    ) -> Result<Option<Self>, StoreError> {
        let context = &around.state.context;
        let readable = sendable(window(settings));
        let journal = &*around.deps.journal;
        let events = load_context::oldest(journal, &around.id, context, (upto, readable)).await?;
        let rules = |name: &str| {
            let tool = definition.tools.iter().find(|tool| tool.name == name);
            let rule = tool.map(|tool| ToolRule {
                is_builtin: tool.builtin().is_some(),
                retention: tool.retention,
            });
            rule.unwrap_or_default()
        };
        let counter = TokenCounter::estimating(settings.provider);
        let all = events.last().is_none_or(|event| event.seq >= upto);
        let budget = definition.context_budget();
        let kept = all.then(|| percent_of(budget, KEPT));
        let past = Past { events: &events, context, rules: &rules, counter, upto };
        let worth = |span: &Span| context.has_dropped() || span.length >= percent_of(budget, WORTH);
        Ok(past.span(kept, readable).filter(worth))
    }
}

/// The turns that no summary covers, from the oldest on.
pub(super) struct Past<'a> {
    pub(super) events: &'a [Event],
    pub(super) context: &'a Context,
    pub(super) rules: &'a ToolRules<'a>,
    pub(super) counter: TokenCounter,
    pub(super) upto: u64,
}

/// One of them, that has ended.
struct Turn {
    end: u64,
    /// As it is shown now; 0 of one that was dropped.
    tokens: u64,
    transcript: Vec<Value>,
}

impl Past<'_> {
    /// Leaves the newest turns that have `kept` tokens together, one in any case; all are covered if
    /// even newer ones were not read.
    pub(super) fn span(&self, kept: Option<u64>, readable: u64) -> Option<Span> {
        let (earlier, turns) = self.turns();
        let mut covered = turns.len();
        if let Some(mut left) = kept {
            covered = covered.saturating_sub(1);
            left = left.saturating_sub(turns.last().map_or(0, |turn| turn.tokens));
            // One that is shown no longer is to be covered, and all before it.
            let fits = |turn: &&Turn, left| turn.tokens > 0 && turn.tokens <= left;
            while let Some(turn) = turns[..covered].last().filter(|turn| fits(turn, left)) {
                (left, covered) = (left - turn.tokens, covered - 1);
            }
        }
        let mut transcript: Vec<Value> = earlier.iter().map(told).collect();
        let mut tokens = self.counter.content(&transcript);
        let all = readable.saturating_sub(tokens);
        let (mut end, mut room) = (None, all);
        for turn in &turns[..covered] {
            let length = self.counter.content(&turn.transcript);
            if end.is_some() && length > room {
                break;
            }
            for block in &turn.transcript {
                let length = self.counter.content(std::slice::from_ref(block));
                if length <= room {
                    room -= length;
                    transcript.push(block.clone());
                }
            }
            tokens = tokens.saturating_add(turn.tokens);
            end = Some(turn.end);
        }
        let upto = end?;
        let since = upto.saturating_add(1);
        let marks =
            Marks { since, from: first_shown_event(self.events, since), ..self.context.marks };
        Some(Span { upto, marks, transcript, length: all - room, tokens })
    }

    /// What stands for what is covered already, and the turns that have ended since.
    fn turns(&self) -> (Vec<Message>, Vec<Turn>) {
        let ends = self.events.iter().filter(|event| {
            event.seq <= self.upto && matches!(event.data, EventData::TurnEnded(_))
        });
        let ends: HashMap<&TurnId, u64> =
            ends.filter_map(|event| Some((event.turn_id.as_ref()?, event.seq))).collect();
        let Some((last, _)) = ends.iter().max_by_key(|(_, end)| **end) else {
            return Default::default();
        };
        // The last is always drawn, also if it is shown no longer.
        let starts = self.events.iter().filter(|event| {
            let dropped = event.seq < self.context.marks.since;
            dropped && matches!(event.data, EventData::TurnStarted(_))
        });
        let dropped: Vec<&TurnId> = starts.filter_map(|event| event.turn_id.as_ref()).collect();
        let since = self.context.summary.map_or(0, |summary| summary.upto).saturating_add(1);
        let whole = Context {
            marks: Marks { since, ..Marks::default() },
            summary: self.context.summary,
            ..Context::default()
        };
        let (mut earlier, mut turns) = (Vec::new(), Vec::<(TurnId, Turn)>::new());
        let view =
            PromptInput { events: self.events, turn: last, context: &whole, rules: self.rules };
        for shown in view.messages() {
            let Some(id) = shown.turn else {
                earlier.push(shown.message);
                continue;
            };
            if turns.last().is_none_or(|(of, _)| of != id) {
                let end = ends.get(id).copied().unwrap_or(self.upto);
                turns.push((id.clone(), Turn { end, tokens: 0, transcript: Vec::new() }));
            }
            if let Some((_, turn)) = turns.last_mut() {
                turn.transcript.push(told(&shown.message));
            }
        }
        let mut now: HashMap<TurnId, u64> = HashMap::new();
        for shown in (PromptInput { context: self.context, ..view }).messages() {
            let Some(id) = shown.turn.filter(|id| !dropped.contains(id)) else { continue };
            *now.entry(id.clone()).or_default() += self.counter.message(&shown.message);
        }
        let weighed = |(id, turn)| Turn { tokens: now.get(&id).copied().unwrap_or(0), ..turn };
        (earlier, turns.into_iter().map(weighed).collect())
    }
}

/// One message of a transcript.
fn told(message: &Message) -> Value {
    let (who, longest) = match message.role {
        Role::User => ("User", MESSAGE),
        Role::Assistant => ("Assistant", MESSAGE),
        Role::Tool => ("Result", RESULT),
    };
    let mut text = texts(&message.content).join("\n");
    for call in &message.tool_calls {
        text.push_str(&format!(
            "\n[calls {} with {}]",
            call.name,
            cut(&call.args.to_string(), RESULT)
        ));
    }
    text_block(format!("{who}: {}", cut(&text, longest)))
}
