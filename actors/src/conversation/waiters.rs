//! Who waits for the actor: callers for a reply, deferred requests for hooks or MCP servers.

use std::collections::BTreeMap;

use abide_conversation::CallId;
use abide_conversation::event::{Event, EventData};
use tokio_util::task::AbortOnDropHandle;

use crate::request::{DeliveryOutcome, Reply, ReplyPort, RequestError};

/// Deferred requests of one conversation. A client that sends more has lost its way.
const MAX_DEFERRED: usize = 100;

/// Callers and requests that wait. They are lost with the actor: callers then read that it is
/// unknown what was done, and deferred requests return to their senders.
#[derive(Default)]
pub(super) struct Waiters {
    /// The callers that wait for the result of a dispatch, by its call.
    dispatches: BTreeMap<CallId, Vec<ReplyPort>>,
    /// The callers that wait until the prefix of a fork is copied, and their replies.
    forks: Vec<(ReplyPort, Reply)>,
    /// The tasks that will return a deferred request, by their number.
    deferred: BTreeMap<u64, AbortOnDropHandle<()>>,
    last_number: u64,
}

impl Waiters {
    /// Whether one of them waits for something that the running activities do not show: a dispatch
    /// whose call a child answers, or a deferred request.
    pub(super) fn need_the_actor(&self) -> bool {
        !self.dispatches.is_empty() || !self.deferred.is_empty()
    }

    pub(super) fn add_dispatch(&mut self, call: CallId, reply: ReplyPort) {
        self.dispatches.entry(call).or_default().push(reply);
    }

    /// Replies to the callers whose dispatch ended with one of these events.
    pub(super) fn answer_dispatches(&mut self, events: &[Event]) {
        for event in events {
            let EventData::DispatchFinished(done) = &event.data else { continue };
            for reply in self.dispatches.remove(&done.call_id).unwrap_or_default() {
                let result =
                    Reply::Dispatched { outcome: done.result.clone(), ui: done.ui.clone() };
                // The caller may be gone; the journal has the result.
                let _ = reply.send(DeliveryOutcome::Done(result));
            }
        }
    }

    pub(super) fn fail_dispatch(&mut self, call: &CallId, error: &RequestError) {
        for reply in self.dispatches.remove(call).unwrap_or_default() {
            let _ = reply.send(DeliveryOutcome::Failed(error.clone()));
        }
    }

    pub(super) fn add_fork(&mut self, reply: ReplyPort, done: Reply) {
        self.forks.push((reply, done));
    }

    /// Replies to the callers that wait for the fork, whose copy is complete.
    pub(super) fn answer_forks(&mut self) {
        for (reply, done) in self.forks.drain(..) {
            let _ = reply.send(DeliveryOutcome::Done(done));
        }
    }

    /// Fails all callers; deferred requests are left alone.
    pub(super) fn fail_callers(&mut self, error: &RequestError) {
        for (reply, _) in self.forks.drain(..) {
            let _ = reply.send(DeliveryOutcome::Failed(error.clone()));
        }
        for reply in std::mem::take(&mut self.dispatches).into_values().flatten() {
            let _ = reply.send(DeliveryOutcome::Failed(error.clone()));
        }
    }

    pub(super) fn can_defer(&self) -> bool {
        self.deferred.len() < MAX_DEFERRED
    }

    /// Starts the task that will return a request under the number that it is given.
    pub(super) fn defer<T>(&mut self, task: impl FnOnce(u64) -> T)
    where
        T: Future<Output = ()> + Send + 'static,
    {
        self.last_number += 1;
        let task = tokio::spawn(task(self.last_number));
        self.deferred.insert(self.last_number, AbortOnDropHandle::new(task));
    }

    pub(super) fn end_deferral(&mut self, number: u64) {
        self.deferred.remove(&number);
    }
}
