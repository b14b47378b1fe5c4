//! The channels of this process, what it keeps of the directory, and what waits to be sent to others.

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::collections::{BTreeSet, HashMap};

use abide_actors::live::Signal;
use abide_conversation::{ConversationId, Scoped};

use super::StreamItem;
use super::channel::{Channel, Publication};
use super::directory::{Directory, DirectoryPlacement};
use super::relay::{Outbox, Outgoing};
use crate::member::ProcessId;
use crate::protocol::{LiveUpdate, Register, Registered};

#[derive(Debug, Default)]
pub(super) struct Plane {
    pub(super) channels: HashMap<Scoped<ConversationId>, Channel>,
    /// What waits to be sent to other nodes, by process.
    pub(super) outboxes: HashMap<ProcessId, Outbox>,
    /// `None` while no other process is connected.
    placement: Option<DirectoryPlacement>,
    directory: Directory,
    /// Connected processes of a version without a directory: each is told of every listener.
    legacy: BTreeSet<ProcessId>,
}

impl Plane {
    pub(super) fn channel(&mut self, id: &Scoped<ConversationId>) -> &mut Channel {
        self.channels.entry(id.clone()).or_insert_with(Channel::new)
    }

    fn put(&self, process: &ProcessId, message: Outgoing) {
        if let Some(outbox) = self.outboxes.get(process) {
            outbox.put(message);
        }
    }

    // Listening.

    /// Tells the cluster that there are listeners here.
    pub(super) fn begin_listening(&mut self, id: &Scoped<ConversationId>) {
        for process in &self.legacy {
            self.put(process, Outgoing::Listen(id.clone()));
        }
        let Some(placement) = &self.placement else { return };
        let (me, keeper) = (placement.me().clone(), placement.keeper(id).clone());
        if keeper == me {
            let publishers = self.directory.add_listener(id, &me);
            self.listen_at(id, publishers);
        } else {
            self.put(&keeper, Outgoing::RegisterListener(id.clone()));
        }
    }

    /// Tells these processes, which publish, whether there are listeners here.
    fn listen_at(&mut self, id: &Scoped<ConversationId>, publishers: Vec<ProcessId>) {
        let channel = self.channels.get_mut(id).filter(|channel| channel.local_streams > 0);
        let is_listening = channel.is_some();
        if let Some(channel) = channel {
            channel.publishers.extend(publishers.iter().cloned());
        }
        for process in publishers {
            let message = if is_listening { Outgoing::Listen } else { Outgoing::Unlisten };
            self.put(&process, message(id.clone()));
        }
    }

    /// Tells the cluster that no listener is left here.
    pub(super) fn end_listening(&mut self, id: &Scoped<ConversationId>, told: BTreeSet<ProcessId>) {
        for process in told.iter().chain(&self.legacy) {
            self.put(process, Outgoing::Unlisten(id.clone()));
        }
        let Some(placement) = &self.placement else { return };
        let keeper = placement.keeper(id);
        if keeper == placement.me() {
            self.directory.remove_listener(id, placement.me());
        } else {
            self.put(keeper, Outgoing::UnregisterListener(id.clone()));
        }
    }

    // Publishing.

    /// Sends a signal to all listeners, those elsewhere once they are known.
    pub(super) fn publish(&mut self, id: &Scoped<ConversationId>, signal: Signal) {
        if self.placement.is_none() && !self.channels.contains_key(id) {
            return;
        }
        self.begin_publishing(id);
        let Self { channels, outboxes, .. } = self;
        let Some(channel) = channels.get_mut(id) else { return };
        channel.send_signal(signal.clone());
        let ready = match &mut channel.publication {
            Some(publication) => publication.take(signal),
            None => Some(signal),
        };
        if let Some(signal) = ready {
            send_to(&channel.remote_processes, outboxes, id, &signal);
        }
    }

    /// Whether a signal has listeners, or may have some that are not known yet.
    pub(super) fn may_be_heard(&mut self, id: &Scoped<ConversationId>) -> bool {
        self.begin_publishing(id);
        self.channels.get_mut(id).is_some_and(Channel::may_be_heard)
    }

    /// Registers this process as a publisher, unless it is or there is no other process.
    pub(super) fn begin_publishing(&mut self, id: &Scoped<ConversationId>) {
        if self.placement.is_some() && self.channel(id).publication.is_none() {
            self.channel(id).publication = Some(Publication::new());
            self.register_publisher(id);
        }
    }

    fn register_publisher(&mut self, id: &Scoped<ConversationId>) {
        let Some(placement) = &self.placement else { return };
        let (me, keeper) = (placement.me().clone(), placement.keeper(id).clone());
        if keeper == me {
            let listeners = self.directory.add_publisher(id, &me);
            for listener in &listeners {
                self.put(listener, Outgoing::Publisher(id.clone(), me.clone()));
            }
            self.expect_listeners(id, listeners);
        } else {
            self.put(&keeper, Outgoing::RegisterPublisher(id.clone()));
        }
    }

    /// Learns which processes have listeners. Those that are connected say so themselves.
    fn expect_listeners(&mut self, id: &Scoped<ConversationId>, listeners: Vec<ProcessId>) {
        let Self { channels, outboxes, .. } = self;
        let Some(channel) = channels.get_mut(id) else { return };
        let known = &channel.remote_processes;
        let is_awaited = |it: &ProcessId| !known.contains(it) && outboxes.contains_key(it);
        let awaited = listeners.into_iter().filter(is_awaited).collect();
        if let Some(publication) = &mut channel.publication {
            publication.expect(awaited);
        }
        send_released(id, channel, outboxes);
    }

    /// Notes whether a process has listeners.
    fn set_listening(&mut self, id: &Scoped<ConversationId>, from: &ProcessId, listens: bool) {
        let Self { channels, outboxes, .. } = self;
        let Some(channel) = channels.get_mut(id) else { return };
        if listens {
            channel.remote_processes.insert(from.clone());
        } else {
            channel.remote_processes.remove(from);
        }
        channel.update_listeners();
        if let Some(publication) = &mut channel.publication {
            publication.hear_from(from);
        }
        send_released(id, channel, outboxes);
        if !channel.is_used() {
            channels.remove(id);
        }
    }

    /// Sends what has waited too long for listeners elsewhere, and ends publications that are no
    /// longer used.
    pub(super) fn sweep_publications(&mut self) {
        let mut ended = Vec::new();
        for (id, channel) in &mut self.channels {
            send_released(id, channel, &self.outboxes);
            if channel.is_publication_idle() {
                channel.publication = None;
                ended.push(id.clone());
            }
        }
        for id in ended {
            self.unregister_publisher(&id);
            if self.channels.get(&id).is_some_and(|channel| !channel.is_used()) {
                self.channels.remove(&id);
            }
        }
    }

    fn unregister_publisher(&mut self, id: &Scoped<ConversationId>) {
        let Some(placement) = &self.placement else { return };
        let keeper = placement.keeper(id);
        if keeper == placement.me() {
            self.directory.remove_publisher(id, placement.me());
        } else {
            self.put(keeper, Outgoing::UnregisterPublisher(id.clone()));
        }
    }

    // What other processes say.

    /// Applies the update of another process.
    pub(super) fn apply(&mut self, from: &ProcessId, update: LiveUpdate) {
        if update.anew {
            self.forget_listeners(from);
        }
        for id in update.listen {
            self.channel(&id);
            self.set_listening(&id, from, true);
        }
        for id in &update.unlisten {
            self.set_listening(id, from, false);
        }
        for (id, publisher) in update.publishers {
            self.listen_at(&id, vec![publisher]);
        }
        let children = update.children.into_iter().map(|(id, calls)| (id, Signal::Child(calls)));
        let call_args =
            update.call_args.into_iter().map(|(id, delta)| (id, Signal::CallArgs(delta)));
        for (id, signal) in update.signals.into_iter().chain(call_args).chain(children) {
            if let Some(channel) = self.channels.get_mut(&id) {
                channel.send_signal(signal);
            }
        }
        if update.missed {
            self.report_missed();
        }
    }

    /// Registers listeners and publishers of another process in the directory here.
    pub(super) fn register(&mut self, from: &ProcessId, request: Register) -> Registered {
        if request.anew {
            self.directory.forget(from);
        }
        for id in &request.unlisten {
            self.directory.remove_listener(id, from);
        }
        for id in &request.unpublish {
            self.directory.remove_publisher(id, from);
        }
        let mut answer = Registered::default();
        for id in request.listen {
            let publishers = self.directory.add_listener(&id, from);
            if !publishers.is_empty() {
                answer.publishers.push((id, publishers));
            }
        }
        let me = self.placement.as_ref().map(|placement| placement.me().clone());
        for id in request.publish {
            let listeners = self.directory.add_publisher(&id, from);
            for listener in &listeners {
                if me.as_ref() == Some(listener) {
                    self.listen_at(&id, vec![from.clone()]);
                } else {
                    self.put(listener, Outgoing::Publisher(id.clone(), from.clone()));
                }
            }
            answer.listeners.push((id, listeners));
        }
        answer
    }

    /// Takes in what the directory has answered.
    pub(super) fn learn(&mut self, answer: Registered) {
        for (id, publishers) in answer.publishers {
            self.listen_at(&id, publishers);
        }
        for (id, listeners) in answer.listeners {
            self.expect_listeners(&id, listeners);
        }
    }

    // Processes that come and go.

    /// Adopts the connected processes, of which `legacy` know no directory, and registers anew what
    /// other processes keep from now on.
    pub(super) fn set_processes(
        &mut self,
        me: &ProcessId,
        others: &BTreeSet<ProcessId>,
        legacy: BTreeSet<ProcessId>,
    ) {
        for process in legacy.difference(&self.legacy) {
            self.put(process, Outgoing::Anew);
        }
        self.legacy = legacy;
        let known = self.placement.as_ref().map(DirectoryPlacement::others);
        if known.unwrap_or(&BTreeSet::new()) == others {
            return;
        }
        let before = std::mem::replace(&mut self.placement, DirectoryPlacement::new(me, others));
        let moved = |id: &&Scoped<ConversationId>| {
            let keeper = |placement: &Option<DirectoryPlacement>| {
                placement.as_ref().map(|placement| placement.keeper(id).clone())
            };
            keeper(&before) != keeper(&self.placement)
        };
        let moved: Vec<_> = self.channels.keys().filter(moved).cloned().collect();
        for id in moved {
            match before.as_ref().map(|before| before.keeper(&id)) {
                Some(keeper) if keeper == me => {
                    self.directory.remove_listener(&id, me);
                    self.directory.remove_publisher(&id, me);
                }
                Some(keeper) => {
                    self.put(keeper, Outgoing::UnregisterListener(id.clone()));
                    self.put(keeper, Outgoing::UnregisterPublisher(id.clone()));
                }
                None => {}
            }
            let Some(channel) = self.channels.get_mut(&id) else { continue };
            let listens = channel.local_streams > 0;
            if self.placement.is_none() {
                channel.publication = None;
                if !channel.is_used() {
                    self.channels.remove(&id);
                    continue;
                }
            }
            let publication = channel.publication.as_mut();
            let publishes = publication.map(Publication::restart).is_some();
            if listens {
                self.begin_listening(&id);
            }
            if publishes {
                self.register_publisher(&id);
            }
        }
    }

    /// Removes what a process has registered and said here, because its connection has ended.
    pub(super) fn forget(&mut self, process: &ProcessId) {
        self.outboxes.remove(process);
        self.directory.forget(process);
        self.forget_listeners(process);
    }

    /// Removes all listeners of another process.
    fn forget_listeners(&mut self, process: &ProcessId) {
        let Self { channels, outboxes, .. } = self;
        channels.retain(|id, channel| {
            if channel.remote_processes.remove(process) {
                channel.update_listeners();
            }
            if let Some(publication) = &mut channel.publication {
                publication.hear_from(process);
            }
            send_released(id, channel, outboxes);
            channel.is_used()
        });
    }

    /// Whether a process knows no directory.
    pub(super) fn is_legacy(&self, process: &ProcessId) -> bool {
        self.legacy.contains(process)
    }

    /// Tells every listener here to read the journal.
    pub(super) fn report_missed(&mut self) {
        for channel in self.channels.values_mut() {
            channel.send(StreamItem::Missed);
        }
    }

    // What a process is told after its messages were lost.

    /// The conversations that have listeners on this node.
    pub(super) fn local_subscriptions(&self) -> Vec<Scoped<ConversationId>> {
        self.ids(|_, channel| channel.local_streams > 0)
    }

    /// The conversations of whose listeners here this process must know, because it publishes.
    pub(super) fn subscriptions_at(&self, process: &ProcessId) -> Vec<Scoped<ConversationId>> {
        let all = self.legacy.contains(process);
        self.ids(|_, channel| {
            channel.local_streams > 0 && (all || channel.publishers.contains(process))
        })
    }

    /// The conversations with listeners here, and those that this process publishes, of which that
    /// process keeps the directory.
    pub(super) fn registrations_at(
        &self,
        process: &ProcessId,
    ) -> (Vec<Scoped<ConversationId>>, Vec<Scoped<ConversationId>>) {
        let is_kept_there = |id: &Scoped<ConversationId>| {
            self.placement.as_ref().is_some_and(|placement| placement.keeper(id) == process)
        };
        (
            self.ids(|id, channel| channel.local_streams > 0 && is_kept_there(id)),
            self.ids(|id, channel| channel.publication.is_some() && is_kept_there(id)),
        )
    }

    /// What publishes the conversations to which that process listens, as far as the directory here
    /// knows.
    pub(super) fn publishers_for(
        &self,
        listener: &ProcessId,
    ) -> Vec<(Scoped<ConversationId>, ProcessId)> {
        self.directory.publishers_for(listener)
    }

    fn ids(
        &self,
        filter: impl Fn(&Scoped<ConversationId>, &Channel) -> bool,
    ) -> Vec<Scoped<ConversationId>> {
        let all = self.channels.iter().filter(|(id, channel)| filter(id, channel));
        all.map(|(id, _)| id.clone()).collect()
    }

    /// The outboxes of the processes that are told first that there are listeners here, and of those
    /// that publish.
    pub(super) fn told_of(&self, id: &Scoped<ConversationId>) -> [Vec<&Outbox>; 2] {
        let keeper = self.placement.as_ref().map(|placement| placement.keeper(id));
        let publishers = self.channels.get(id).map(|channel| &channel.publishers);
        let outbox = |process: &ProcessId| self.outboxes.get(process);
        [
            keeper.into_iter().chain(&self.legacy).filter_map(outbox).collect(),
            publishers.into_iter().flatten().filter_map(outbox).collect(),
        ]
    }
}

fn send_to(
    processes: &BTreeSet<ProcessId>,
    outboxes: &HashMap<ProcessId, Outbox>,
    id: &Scoped<ConversationId>,
    signal: &Signal,
) {
    for outbox in processes.iter().filter_map(|process| outboxes.get(process)) {
        outbox.put(Outgoing::Signal(id.clone(), signal.clone()));
    }
}

/// Sends other processes the signals that need no longer wait.
fn send_released(
    id: &Scoped<ConversationId>,
    channel: &mut Channel,
    outboxes: &HashMap<ProcessId, Outbox>,
) {
    let Some(publication) = &mut channel.publication else { return };
    for signal in publication.release() {
        send_to(&channel.remote_processes, outboxes, id, &signal);
    }
}
