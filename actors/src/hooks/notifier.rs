//! Tells hooks what was journalled: in the order of a conversation's events, at most once.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use abide_conversation::event::Event;
use abide_conversation::{AgentName, ConversationId, Revision};
use serde_json::Value;
use tokio_util::task::TaskTracker;

use super::{HookContext, HookPayload};
use crate::assigns::merged;
use crate::conversation::Services;
use crate::definition::Definition;
use crate::definition::HookPoint;
use crate::limits::encoded_len;

/// What all conversations of a node may have in the queue, as bytes of JSON. Servers that answer
/// slower than this fills must not cost the node its memory.
const QUEUED: usize = 64 << 20;
/// What a note costs besides what it says.
const NOTE: usize = 1_024;

/// What one conversation's hooks are to be told.
#[derive(Clone, Debug)]
pub(crate) struct Notification {
    pub(crate) whose: HookOwner,
    /// Its assigns are without the agent's.
    pub(crate) occasion: HookContext,
    pub(crate) on: HookPoint,
    /// Of what is about one call.
    pub(crate) tool: Option<String>,
    pub(crate) args: Option<Value>,
    pub(crate) event: Option<Arc<Event>>,
}

/// Whose hooks these are, as far as it is known without asking the store.
#[derive(Clone, Debug)]
pub(crate) enum HookOwner {
    Definition(Arc<Definition>),
    Revision(Revision),
    /// The newest of its name.
    Agent(AgentName),
}

/// The queues of a node. Each conversation has one, with a task of its own as long as something is
/// in it, so that a slow hook holds up no other conversation.
#[derive(Default)]
pub(crate) struct Notifier {
    queues: Mutex<HashMap<ConversationId, VecDeque<(usize, Notification)>>>,
    queued: AtomicUsize,
    dropped: AtomicU64,
    tasks: TaskTracker,
}

impl Notifier {
    /// Queues a note; one that does not fit is dropped, logged and counted.
    pub(crate) fn tell(&self, deps: &Arc<Services>, note: Notification) {
        let (cost, id) = (note.cost(), note.occasion.conversation_id.clone());
        if self.queued.load(Ordering::Relaxed).saturating_add(cost) > QUEUED {
            let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            metrics::counter!("abide_hook_notes_dropped_total").increment(1);
            tracing::warn!(conversation = %id, on = %note.on, dropped, "hooks are not told");
            return;
        }
        self.queued.fetch_add(cost, Ordering::Relaxed);
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get_mut(&id) {
            queue.push_back((cost, note));
            return;
        }
        queues.insert(id.clone(), VecDeque::from([(cost, note)]));
        self.tasks.spawn(run(deps.clone(), id));
    }

    /// Returns when every queue has been empty.
    pub(super) async fn told(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// The next note; with the last the queue goes.
    fn next(&self, id: &ConversationId) -> Option<Notification> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        match queues.get_mut(id)?.pop_front() {
            Some((cost, note)) => {
                self.queued.fetch_sub(cost, Ordering::Relaxed);
                Some(note)
            }
            None => {
                queues.remove(id);
                None
            }
        }
    }
}

async fn run(deps: Arc<Services>, id: ConversationId) {
    let caller = deps.runner.hooks();
    while let Some(note) = caller.teller.next(&id) {
        note.deliver(&deps).await;
    }
}

impl Notification {
    /// What it takes of the queue.
    fn cost(&self) -> usize {
        let event = self.event.as_ref().map(serde_json::to_vec);
        let event = event.and_then(Result::ok).map_or(0, |event| event.len());
        let args = self.args.as_ref().map_or(0, encoded_len);
        NOTE.saturating_add(event).saturating_add(args)
    }

    /// Tells the hooks that it concerns, one after another; their failures are logged.
    async fn deliver(self, deps: &Services) {
        let definition = match &self.whose {
            HookOwner::Definition(definition) => Ok(Some(definition.clone())),
            HookOwner::Revision(revision) => deps.agents.revision(revision).await,
            HookOwner::Agent(name) => deps.agents.newest(name).await,
        };
        let definition = match definition {
            Ok(Some(definition)) => definition,
            Ok(None) => return,
            Err(refusal) => {
                let conversation = &self.occasion.conversation_id;
                tracing::warn!(%conversation, on = %self.on, %refusal, "hooks are not told");
                return;
            }
        };
        let Self { mut occasion, on, tool, args, event, .. } = self;
        occasion.assigns = merged(&definition.assigns, &occasion.assigns, &Default::default());
        for hook in definition.hooks.iter().filter(|hook| hook.concerns(on, tool.as_deref())) {
            let (tool, args, event) = (tool.clone(), args.clone(), event.clone());
            // It has logged what went wrong; nobody waits for it.
            let _ = deps
                .runner
                .hooks()
                .ask(hook, &occasion, HookPayload::Told { tool, args, event })
                .await;
        }
    }
}
