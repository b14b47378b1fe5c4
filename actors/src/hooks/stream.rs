//! Passes the text that a model streams through `stream` hooks, before anybody sees it.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::{StreamExt, unfold};

use super::{HookCaller, HookContext, HookPayload, Kind, Reply};
use crate::definition::Definition;
use crate::definition::{HookPoint, HookSpec};
use crate::model::{ModelError, ReplyChunk, ReplyEnd, ReplyStream};

/// What the model says in one message before the hooks have had it; more is a model that never stops.
const TEXT: usize = 4 << 20;

/// The hooks of one message, and which of them are still asked.
pub(crate) struct Filter {
    pub(crate) caller: Arc<HookCaller>,
    pub(crate) definition: Arc<Definition>,
    pub(crate) occasion: HookContext,
    pub(crate) step: u32,
    /// Those that failed.
    pub(crate) left_out: Vec<String>,
    /// Whether any text is not as the model said it.
    pub(crate) changed: bool,
}

/// Text of one kind on its way through the hooks.
struct Chunk {
    kind: Kind,
    text: String,
    is_final: bool,
}

type Passed = (Filter, Result<Option<ReplyChunk>, ModelError>);

struct Flow {
    parts: ReplyStream,
    waiting: VecDeque<Chunk>,
    /// The hooks at work on a chunk, or at rest.
    hooks: Hooks,
    /// What the model ended with, told when all of its text has been.
    ended: Option<ReplyEnd>,
    heard: usize,
    said: [bool; 2],
    over: bool,
}

enum Hooks {
    Busy(BoxFuture<'static, Passed>),
    Idle(Filter),
    Gone,
}

/// The same parts, with what the hooks make of the text. While they are busy the model is listened
/// to, and what it says meanwhile is joined.
pub(crate) fn filtered(parts: ReplyStream, filter: Filter) -> ReplyStream {
    let flow = Flow {
        parts,
        waiting: VecDeque::new(),
        hooks: Hooks::Idle(filter),
        ended: None,
        heard: 0,
        said: [false; 2],
        over: false,
    };
    unfold(flow, |mut flow| async move {
        if flow.over {
            return None;
        }
        let part = flow.next().await;
        flow.over = matches!(part, Err(_) | Ok(ReplyChunk::Done(_)));
        Some((part, flow))
    })
    .boxed()
}

impl Flow {
    async fn next(&mut self) -> Result<ReplyChunk, ModelError> {
        loop {
            self.work();
            let busy = match &mut self.hooks {
                Hooks::Busy(busy) => Some(busy),
                Hooks::Idle(_) | Hooks::Gone => None,
            };
            let is_busy = busy.is_some();
            let passed = async {
                match busy {
                    Some(busy) => busy.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                (filter, passed) = passed => {
                    self.hooks = Hooks::Idle(filter);
                    if let Some(part) = passed? {
                        return Ok(part);
                    }
                }
                part = self.parts.next(), if self.ended.is_none() => {
                    if let Some(part) = self.take(part)? {
                        return Ok(part);
                    }
                }
                () = std::future::ready(()), if self.ended.is_some() && !is_busy => {
                    return Ok(ReplyChunk::Done(self.whole()));
                }
            }
        }
    }

    /// Gives the hooks the next chunk, if they are at rest.
    fn work(&mut self) {
        self.hooks = match (std::mem::replace(&mut self.hooks, Hooks::Gone), &self.waiting) {
            (Hooks::Idle(filter), waiting) if !waiting.is_empty() => match self.waiting.pop_front()
            {
                Some(chunk) => Hooks::Busy(Box::pin(pass(filter, chunk))),
                None => Hooks::Idle(filter),
            },
            (hooks, _) => hooks,
        };
    }

    /// What the model ended with. Its provider's own form of the message would tell what hooks have
    /// changed.
    fn whole(&mut self) -> ReplyEnd {
        let mut done = self.ended.take().unwrap_or_default();
        if matches!(&self.hooks, Hooks::Idle(filter) if filter.changed) {
            done.verbatim = None;
        }
        done
    }

    /// Takes what the model says; what is no text passes at once.
    fn take(
        &mut self,
        part: Option<Result<ReplyChunk, ModelError>>,
    ) -> Result<Option<ReplyChunk>, ModelError> {
        match part {
            Some(Ok(ReplyChunk::Text(text))) => self.wait(Kind::Text, text),
            Some(Ok(ReplyChunk::Thinking(text))) => self.wait(Kind::Thinking, text),
            Some(Ok(ReplyChunk::Done(done))) => {
                for (kind, said) in [Kind::Thinking, Kind::Text].into_iter().zip(self.said) {
                    let text = String::new();
                    self.waiting.extend(said.then_some(Chunk { kind, text, is_final: true }));
                }
                self.ended = Some(done);
                Ok(None)
            }
            Some(Ok(call @ ReplyChunk::Call(_))) => Ok(Some(call)),
            Some(Err(failure)) => Err(failure),
            None => Err(ModelError::permanent("the model's stream ended before its message did")),
        }
    }

    fn wait(&mut self, kind: Kind, text: String) -> Result<Option<ReplyChunk>, ModelError> {
        self.heard = self.heard.saturating_add(text.len());
        if self.heard > TEXT {
            return Err(ModelError::permanent("the model's message is too long"));
        }
        self.said[usize::from(kind == Kind::Text)] = true;
        match self.waiting.back_mut() {
            Some(last) if last.kind == kind => last.text.push_str(&text),
            Some(_) | None => self.waiting.push_back(Chunk { kind, text, is_final: false }),
        }
        Ok(None)
    }
}

/// What all the hooks let through of a chunk, one after another.
async fn pass(mut filter: Filter, chunk: Chunk) -> Passed {
    let Chunk { kind, mut text, is_final } = chunk;
    let definition = filter.definition.clone();
    for hook in definition.hooks.iter().filter(|hook| hook.on == HookPoint::Stream) {
        // Nothing is left for it to look at.
        if filter.left_out.contains(&hook.name) || (text.is_empty() && !is_final) {
            continue;
        }
        match filter.ask(hook, kind, &text, is_final).await {
            Ok(Some(shown)) => {
                filter.changed |= shown != text;
                text = shown;
            }
            Ok(None) => {}
            Err(failure) => return (filter, Err(failure)),
        }
    }
    let part = match kind {
        Kind::Text => ReplyChunk::Text(text),
        Kind::Thinking => ReplyChunk::Thinking(text),
    };
    let is_empty =
        matches!(&part, ReplyChunk::Text(text) | ReplyChunk::Thinking(text) if text.is_empty());
    (filter, Ok((!is_empty).then_some(part)))
}

impl Filter {
    /// What stands in place of the text, if anything else does.
    async fn ask(
        &mut self,
        hook: &HookSpec,
        kind: Kind,
        text: &str,
        is_final: bool,
    ) -> Result<Option<String>, ModelError> {
        let (step, text) = (self.step, text.to_owned());
        let what = HookPayload::Stream { step, kind, text, r#final: is_final };
        match self.caller.ask(hook, &self.occasion, what).await {
            Ok(Reply::Show(text)) => Ok(Some(text)),
            Ok(
                Reply::GoOn
                | Reply::Add(_)
                | Reply::Halt(_)
                | Reply::Refuse(_)
                | Reply::Deny(_)
                | Reply::Args(_),
            ) => Ok(None),
            Err(failed) if hook.fail_closed => Err(ModelError::permanent(failed.to_string())),
            Err(failed) => {
                self.left_out.push(failed.0);
                Ok(None)
            }
        }
    }
}
