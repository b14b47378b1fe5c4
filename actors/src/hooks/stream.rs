//! Passes the text that a model streams through `stream` hooks, before anybody sees it.

use std::collections::VecDeque;
use std::sync::Arc;

use abide_conversation::Step;
use futures::future::BoxFuture;
use futures::stream::{StreamExt, unfold};

use super::{HookCaller, HookContext, HookPayload, HookReply, Kind};
use crate::definition::Definition;
use crate::definition::{HookPoint, HookSpec};
use crate::model::{ModelError, ReplyChunk, ReplyEnd, ReplyStream};

/// The text of one message before the hooks have processed it. More is a model that never stops.
const MAX_TEXT_BYTES: usize = 4 << 20;

/// The hooks of one message, and which of them are still asked.
pub(crate) struct Filter {
    pub(crate) caller: Arc<HookCaller>,
    pub(crate) definition: Arc<Definition>,
    pub(crate) context: HookContext,
    pub(crate) step: Step,
    /// The hooks that failed; they are skipped for the rest of the message.
    pub(crate) skipped: Vec<String>,
    /// Whether a hook has changed the model's text.
    pub(crate) has_changed: bool,
}

/// Text of one kind on its way through the hooks.
struct Chunk {
    kind: Kind,
    text: String,
    is_final: bool,
}

type Filtered = (Filter, Result<Option<ReplyChunk>, ModelError>);

struct Flow {
    chunks: ReplyStream,
    waiting: VecDeque<Chunk>,
    /// The hooks, busy with a chunk or idle.
    hooks: Hooks,
    /// The end of the model's stream; passed on when all of its text has been.
    end: Option<ReplyEnd>,
    received_bytes: usize,
    has_thinking: bool,
    has_text: bool,
    is_over: bool,
}

enum Hooks {
    Busy(BoxFuture<'static, Filtered>),
    Idle(Filter),
    Gone,
}

/// The stream with its text as the hooks changed it. While they are busy the model is still read,
/// and the text that arrives meanwhile is joined.
pub(crate) fn filter(chunks: ReplyStream, filter: Filter) -> ReplyStream {
    let flow = Flow {
        chunks,
        waiting: VecDeque::new(),
        hooks: Hooks::Idle(filter),
        end: None,
        received_bytes: 0,
        has_thinking: false,
        has_text: false,
        is_over: false,
    };
    unfold(flow, |mut flow| async move {
        if flow.is_over {
            return None;
        }
        let chunk = flow.next().await;
        flow.is_over = matches!(chunk, Err(_) | Ok(ReplyChunk::Done(_)));
        Some((chunk, flow))
    })
    .boxed()
}

impl Flow {
    async fn next(&mut self) -> Result<ReplyChunk, ModelError> {
        loop {
            self.feed_hooks();
            let busy = match &mut self.hooks {
                Hooks::Busy(busy) => Some(busy),
                Hooks::Idle(_) | Hooks::Gone => None,
            };
            let is_busy = busy.is_some();
            let filtered = async {
                match busy {
                    Some(busy) => busy.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                (filter, chunk) = filtered => {
                    self.hooks = Hooks::Idle(filter);
                    if let Some(chunk) = chunk? {
                        return Ok(chunk);
                    }
                }
                chunk = self.chunks.next(), if self.end.is_none() => {
                    if let Some(chunk) = self.receive(chunk)? {
                        return Ok(chunk);
                    }
                }
                () = std::future::ready(()), if self.end.is_some() && !is_busy => {
                    return Ok(ReplyChunk::Done(self.take_end()));
                }
            }
        }
    }

    /// Gives the hooks the next chunk, if they are idle.
    fn feed_hooks(&mut self) {
        self.hooks = match (std::mem::replace(&mut self.hooks, Hooks::Gone), &self.waiting) {
            (Hooks::Idle(filter), waiting) if !waiting.is_empty() => match self.waiting.pop_front()
            {
                Some(chunk) => Hooks::Busy(Box::pin(run_hooks(filter, chunk))),
                None => Hooks::Idle(filter),
            },
            (hooks, _) => hooks,
        };
    }

    /// The end of the stream. Without the provider's own form of the message if hooks changed the
    /// text: that form would reveal the original.
    fn take_end(&mut self) -> ReplyEnd {
        let mut end = self.end.take().unwrap_or_default();
        if matches!(&self.hooks, Hooks::Idle(filter) if filter.has_changed) {
            end.verbatim = None;
        }
        end
    }

    /// Takes a chunk of the model's. Anything but text passes at once.
    fn receive(
        &mut self,
        chunk: Option<Result<ReplyChunk, ModelError>>,
    ) -> Result<Option<ReplyChunk>, ModelError> {
        match chunk {
            Some(Ok(ReplyChunk::Text(text))) => {
                self.has_text = true;
                self.queue(Kind::Text, text)
            }
            Some(Ok(ReplyChunk::Thinking(text))) => {
                self.has_thinking = true;
                self.queue(Kind::Thinking, text)
            }
            Some(Ok(ReplyChunk::Done(end))) => {
                for (kind, has_any) in
                    [(Kind::Thinking, self.has_thinking), (Kind::Text, self.has_text)]
                {
                    let last = Chunk { kind, text: String::new(), is_final: true };
                    self.waiting.extend(has_any.then_some(last));
                }
                self.end = Some(end);
                Ok(None)
            }
            Some(Ok(call @ ReplyChunk::Call(_))) => Ok(Some(call)),
            Some(Err(error)) => Err(error),
            None => Err(ModelError::permanent("the model's stream ended before its message did")),
        }
    }

    fn queue(&mut self, kind: Kind, text: String) -> Result<Option<ReplyChunk>, ModelError> {
        self.received_bytes = self.received_bytes.saturating_add(text.len());
        if self.received_bytes > MAX_TEXT_BYTES {
            return Err(ModelError::permanent("the model's message is too long"));
        }
        match self.waiting.back_mut() {
            Some(last) if last.kind == kind => last.text.push_str(&text),
            Some(_) | None => self.waiting.push_back(Chunk { kind, text, is_final: false }),
        }
        Ok(None)
    }
}

/// What all the hooks, one after another, let through of a chunk.
async fn run_hooks(mut filter: Filter, chunk: Chunk) -> Filtered {
    let Chunk { kind, mut text, is_final } = chunk;
    let definition = filter.definition.clone();
    for hook in definition.hooks.iter().filter(|hook| hook.on == HookPoint::Stream) {
        let has_nothing_to_see = text.is_empty() && !is_final;
        if filter.skipped.contains(&hook.name) || has_nothing_to_see {
            continue;
        }
        match filter.ask(hook, kind, &text, is_final).await {
            Ok(Some(replacement)) => {
                filter.has_changed |= replacement != text;
                text = replacement;
            }
            Ok(None) => {}
            Err(error) => return (filter, Err(error)),
        }
    }
    if text.is_empty() {
        return (filter, Ok(None));
    }
    let chunk = match kind {
        Kind::Text => ReplyChunk::Text(text),
        Kind::Thinking => ReplyChunk::Thinking(text),
    };
    (filter, Ok(Some(chunk)))
}

impl Filter {
    /// The text that replaces this one, if the hook gives any.
    async fn ask(
        &mut self,
        hook: &HookSpec,
        kind: Kind,
        text: &str,
        is_final: bool,
    ) -> Result<Option<String>, ModelError> {
        let payload =
            HookPayload::Stream { step: self.step, kind, text: text.to_owned(), r#final: is_final };
        match self.caller.ask(hook, &self.context, payload).await {
            Ok(HookReply::Show(text)) => Ok(Some(text)),
            Ok(
                HookReply::GoOn
                | HookReply::Add(_)
                | HookReply::Halt(_)
                | HookReply::Refuse(_)
                | HookReply::Deny(_)
                | HookReply::Args(_)
                | HookReply::Ask(_),
            ) => Ok(None),
            Err(error) if hook.fail_closed => Err(ModelError::permanent(error.to_string())),
            Err(error) => {
                self.skipped.push(error.0);
                Ok(None)
            }
        }
    }
}
