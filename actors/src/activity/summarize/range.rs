//! The turns that a summary covers, and their transcript for its model.

use std::collections::HashMap;

use abide_conversation::context::{Context, ContextMarks};
use abide_conversation::event::{Event, EventData};
use abide_conversation::message::blocks::texts;
use abide_conversation::message::{Message, MessageRole, text_block};
use abide_conversation::{Seq, TurnId};
use serde_json::Value;

use crate::activity::{ActivityContext, load_context};
use crate::context::limits::{percent_of, sendable, window};
use crate::context::reduce::first_shown_event;
use crate::definition::Definition;
use crate::journal::StoreError;
use crate::limits::cut;
use crate::model::ModelSettings;
use crate::model::prompt::{PromptInput, ToolRule, ToolRules};
use crate::model::tokens::TokenCounter;

/// The part of the budget that stays unsummarized: the newest turns.
const KEEP_PERCENT: u64 = 30;
/// The part of the budget that is worth a model call; less waits until there is more.
const MIN_SUMMARY_PERCENT: u64 = 10;
/// The part of one message, and of one result, that the model reads: old ones are of little use.
const MAX_MESSAGE_BYTES: usize = 16 * 1024;
const MAX_RESULT_BYTES: usize = 2 * 1024;

/// The turns that one summary covers.
pub(super) struct Range {
    pub(super) upto: Seq,
    /// What later prompts show.
    pub(super) marks: ContextMarks,
    /// One block for each message.
    pub(super) transcript: Vec<Value>,
    /// The tokens of the transcript that no earlier summary covers.
    pub(super) length: u64,
    /// A rough count of the tokens that leave the context.
    pub(super) tokens: u64,
}

impl Range {
    /// Reads the range; `None` if there is nothing to cover. Turns that do not fit the context
    /// window of the summary's model are left to a later summary.
    pub(super) async fn read(
        ctx: &ActivityContext,
        definition: &Definition,
        settings: &ModelSettings,
        upto: Seq,
    ) -> Result<Option<Self>, StoreError> {
        let context = &ctx.state.context;
        let readable = sendable(window(settings));
        let events = load_context::load_oldest(ctx, upto, readable).await?;
        let rules = |name: &str| {
            let tool = definition.tools.iter().find(|tool| tool.name == name);
            let rule = tool.map(|tool| ToolRule {
                is_builtin: tool.builtin().is_some(),
                retention: tool.retention,
            });
            rule.unwrap_or_default()
        };
        let counter = TokenCounter::estimating(settings.provider);
        let events: Vec<&Event> = events.iter().collect();
        let has_read_all = events.last().is_none_or(|event| event.seq >= upto);
        let budget = definition.context_budget();
        let keep = has_read_all.then(|| percent_of(budget, KEEP_PERCENT));
        let first_queued = ctx.state.queued_messages().next();
        let past = Past { events: &events, first_queued, context, rules: &rules, counter, upto };
        let is_worth_it = |range: &Range| {
            context.has_uncovered_drop() || range.length >= percent_of(budget, MIN_SUMMARY_PERCENT)
        };
        Ok(past.range(keep, readable).filter(is_worth_it))
    }
}

/// The turns that no summary covers, from the oldest on.
pub(super) struct Past<'a> {
    pub(super) events: &'a [&'a Event],
    /// The first message that waits in the queue.
    pub(super) first_queued: Option<Seq>,
    pub(super) context: &'a Context,
    pub(super) rules: &'a ToolRules<'a>,
    pub(super) counter: TokenCounter,
    pub(super) upto: Seq,
}

/// A turn that has ended.
struct Turn {
    end: Seq,
    /// The tokens that it takes in a prompt now; 0 if it was dropped from the context.
    tokens: u64,
    transcript: Vec<Value>,
}

impl Past<'_> {
    /// Leaves out the newest turns that have `keep` tokens together, and always the last one.
    /// Covers all turns with `None`, because newer ones were not read.
    pub(super) fn range(&self, keep: Option<u64>, readable: u64) -> Option<Range> {
        let (earlier, turns) = self.turns();
        let mut covered = turns.len();
        if let Some(mut left) = keep {
            covered = covered.saturating_sub(1);
            left = left.saturating_sub(turns.last().map_or(0, |turn| turn.tokens));
            // A dropped turn is covered, and so are all before it.
            let fits = |turn: &&Turn, left| turn.tokens > 0 && turn.tokens <= left;
            while let Some(turn) = turns[..covered].last().filter(|turn| fits(turn, left)) {
                left -= turn.tokens;
                covered -= 1;
            }
        }
        let mut transcript: Vec<Value> = earlier.iter().map(transcript_block).collect();
        let mut tokens = self.counter.content(&transcript);
        let capacity = readable.saturating_sub(tokens);
        let mut room = capacity;
        let mut end = None;
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
        let marks = ContextMarks {
            shown_from: since,
            read_from: first_shown_event(self.events, since, self.first_queued),
            ..self.context.marks
        };
        Some(Range { upto, marks, transcript, length: capacity - room, tokens })
    }

    /// The messages of the earlier summary, and the turns that have ended since.
    fn turns(&self) -> (Vec<Message>, Vec<Turn>) {
        let ends = self.events.iter().filter(|event| {
            event.seq <= self.upto && matches!(event.data, EventData::TurnEnded(_))
        });
        let ends: HashMap<&TurnId, Seq> =
            ends.filter_map(|event| Some((event.turn_id.as_ref()?, event.seq))).collect();
        let Some((last, _)) = ends.iter().max_by_key(|(_, end)| **end) else {
            return (Vec::new(), Vec::new());
        };
        // The last turn always has messages, even when it was dropped from the context.
        let starts = self.events.iter().filter(|event| {
            let dropped = event.seq < self.context.marks.shown_from;
            dropped && matches!(event.data, EventData::TurnStarted(_))
        });
        let dropped: Vec<&TurnId> = starts.filter_map(|event| event.turn_id.as_ref()).collect();
        let since = self.context.summary.map_or(Seq::ZERO, |summary| summary.upto).next();
        let whole = Context {
            marks: ContextMarks { shown_from: since, ..ContextMarks::default() },
            summary: self.context.summary,
            ..Context::default()
        };
        let mut earlier = Vec::new();
        let mut turns = Vec::<(TurnId, Turn)>::new();
        let input =
            PromptInput { events: self.events, turn: last, context: &whole, rules: self.rules };
        for shown in input.messages() {
            let Some(id) = shown.turn else {
                earlier.push(shown.message);
                continue;
            };
            if turns.last().is_none_or(|(last, _)| last != id) {
                let end = ends.get(id).copied().unwrap_or(self.upto);
                turns.push((id.clone(), Turn { end, tokens: 0, transcript: Vec::new() }));
            }
            if let Some((_, turn)) = turns.last_mut() {
                turn.transcript.push(transcript_block(&shown.message));
            }
        }
        let mut tokens: HashMap<TurnId, u64> = HashMap::new();
        for shown in (PromptInput { context: self.context, ..input }).messages() {
            let Some(id) = shown.turn.filter(|id| !dropped.contains(id)) else { continue };
            *tokens.entry(id.clone()).or_default() += self.counter.message(&shown.message);
        }
        let with_tokens =
            |(id, turn)| Turn { tokens: tokens.get(&id).copied().unwrap_or(0), ..turn };
        (earlier, turns.into_iter().map(with_tokens).collect())
    }
}

/// One message of the transcript.
fn transcript_block(message: &Message) -> Value {
    let (who, max_bytes) = match message.role {
        MessageRole::User => ("User", MAX_MESSAGE_BYTES),
        MessageRole::Assistant => ("Assistant", MAX_MESSAGE_BYTES),
        MessageRole::Tool => ("Result", MAX_RESULT_BYTES),
    };
    let mut text = texts(&message.content).join("\n");
    for call in &message.tool_calls {
        text.push_str(&format!(
            "\n[calls {} with {}]",
            call.name,
            cut(&call.args.to_string(), MAX_RESULT_BYTES)
        ));
    }
    text_block(format!("{who}: {}", cut(&text, max_bytes)))
}
