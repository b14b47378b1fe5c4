//! Notifies hooks of journalled events: in the order of a conversation, and at most once.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use abide_conversation::event::Event;
use abide_conversation::{AgentName, ConversationId, Revision, Scoped};
use serde_json::Value;
use tokio_util::task::TaskTracker;

use super::{HookCaller, HookContext, HookPayload};
use crate::agents::Agents;
use crate::assigns::merged;
use crate::definition::{Definition, HookPoint};
use crate::limits::encoded_len;

/// The bytes of JSON that may wait for all conversations of a node together. Servers that answer
/// too slowly must not cost the node its memory.
const MAX_QUEUED_BYTES: usize = 64 << 20;
/// The bytes that a notification takes in addition to its content.
const OVERHEAD_BYTES: usize = 1_024;

/// One notification for the hooks of a conversation.
#[derive(Clone, Debug)]
pub(crate) struct Notification {
    pub(crate) conversation: Scoped<ConversationId>,
    pub(crate) owner: HookOwner,
    /// Its assigns are those of the conversation, without the agent's.
    pub(crate) context: HookContext,
    pub(crate) on: HookPoint,
    /// Only if it is about one call.
    pub(crate) tool: Option<String>,
    pub(crate) args: Option<Value>,
    pub(crate) event: Option<Arc<Event>>,
}

/// The owner of the hooks to notify, as far as it is known without reading the store.
#[derive(Clone, Debug)]
pub(crate) enum HookOwner {
    Definition(Arc<Definition>),
    Revision(Revision),
    /// The revision of the agent that the conversation runs on next.
    Agent(AgentName),
}

/// The notifications of one conversation that wait, each with its bytes.
type Queue = VecDeque<(usize, Notification)>;

/// The queues of a node. Each conversation has one, and a task while anything is in it, so that a
/// slow hook holds up no other conversation.
#[derive(Default)]
pub(super) struct Notifier {
    queues: Mutex<HashMap<Scoped<ConversationId>, Queue>>,
    queued_bytes: AtomicUsize,
    dropped: AtomicU64,
    tasks: TaskTracker,
}

impl Notifier {
    /// Returns when all queues are empty.
    pub(super) async fn flush(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Takes the next notification of a queue; removes the queue when it is empty.
    fn next(&self, id: &Scoped<ConversationId>) -> Option<Notification> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        match queues.get_mut(id)?.pop_front() {
            Some((bytes, notification)) => {
                self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
                Some(notification)
            }
            None => {
                queues.remove(id);
                None
            }
        }
    }
}

impl HookCaller {
    /// Queues a notification for the hooks that it concerns. Without room for it, it is dropped,
    /// logged and counted.
    pub(crate) fn notify(self: &Arc<Self>, agents: &Arc<dyn Agents>, notification: Notification) {
        let notifier = &self.notifier;
        let bytes = notification.bytes();
        let id = notification.conversation.clone();
        if notifier.queued_bytes.load(Ordering::Relaxed).saturating_add(bytes) > MAX_QUEUED_BYTES {
            let dropped = notifier.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            metrics::counter!("abide_hook_notes_dropped_total").increment(1);
            let on = notification.on;
            tracing::warn!(conversation = %id, %on, dropped, "hook notification dropped: queue full");
            return;
        }
        notifier.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut queues = notifier.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get_mut(&id) {
            queue.push_back((bytes, notification));
            return;
        }
        queues.insert(id.clone(), VecDeque::from([(bytes, notification)]));
        notifier.tasks.spawn(deliver_queue(self.clone(), agents.clone(), id));
    }
}

async fn deliver_queue(
    caller: Arc<HookCaller>,
    agents: Arc<dyn Agents>,
    id: Scoped<ConversationId>,
) {
    while let Some(notification) = caller.notifier.next(&id) {
        notification.deliver(&caller, &*agents).await;
    }
}

impl Notification {
    /// The bytes that it takes in the queue.
    fn bytes(&self) -> usize {
        let event = self.event.as_ref().map(serde_json::to_vec);
        let event = event.and_then(Result::ok).map_or(0, |event| event.len());
        let args = self.args.as_ref().map_or(0, encoded_len);
        OVERHEAD_BYTES.saturating_add(event).saturating_add(args)
    }

    /// Calls the hooks that it concerns, one after another. Their failures are logged.
    async fn deliver(self, caller: &HookCaller, agents: &dyn Agents) {
        let conversation = &self.conversation;
        let definition = match &self.owner {
            HookOwner::Definition(definition) => Ok(Some(definition.clone())),
            HookOwner::Revision(revision) => agents.revision(&conversation.sibling(revision)).await,
            HookOwner::Agent(name) => {
                let choice = agents.choose(name, conversation).await;
                choice.map(|choice| choice.map(|choice| choice.definition))
            }
        };
        let definition = match definition {
            Ok(Some(definition)) => definition,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%conversation, on = %self.on, %error, "hooks not notified: no definition");
                return;
            }
        };
        let Self { mut context, on, tool, args, event, .. } = self;
        context.assigns = merged(&definition.assigns, &context.assigns, &Default::default());
        for hook in definition.hooks.iter().filter(|hook| hook.concerns(on, tool.as_deref())) {
            let payload = HookPayload::Notification {
                tool: tool.clone(),
                args: args.clone(),
                event: event.clone(),
            };
            // The caller has logged a failure; nobody waits for the reply.
            let _ = caller.ask(hook, &context, payload).await;
        }
    }
}
