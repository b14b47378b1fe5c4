//! Watches what the primary carries out: every write has the right writer, every claim the next
//! epoch, nothing is closed twice, and nobody claims from the living.

use std::collections::{BTreeMap, BTreeSet};

use abide_actors::identity::{Epoch, Incarnation, NodeName};
use abide_actors::journal::{Claim, Holder};
use abide_conversation::event::{Event, EventData};
use abide_conversation::{ConversationId, Scoped};
use abide_registry::store::decompress;

use crate::redis::{Call, Transaction, text};
use crate::world::LEASE_MS;

/// How many processes a conversation may end in a row without completing anything.
const MAX_ENDS: u32 = 5;

/// What a log of transactions amounts to.
#[derive(Debug, Default)]
pub struct Observer {
    /// The number of transactions that were observed.
    pub observed: usize,
    holders: BTreeMap<Scoped<ConversationId>, Claim>,
    /// The highest claimed epoch of each conversation; below, the last writer's claim.
    epochs: BTreeMap<Scoped<ConversationId>, Epoch>,
    writers: BTreeMap<Scoped<ConversationId>, Claim>,
    closed: BTreeSet<(Scoped<ConversationId>, String, u32)>,
    done: BTreeSet<(Scoped<ConversationId>, String)>,
    /// The conversations that were deleted, and when.
    pub deletions: Vec<(Scoped<ConversationId>, u64)>,
    /// The incarnation of each member, and the simulated time of its last renewal.
    members: BTreeMap<String, String>,
    renewed: BTreeMap<String, u64>,
    /// The last renewal of each member, also by a primary of which nothing is left.
    acknowledged: BTreeMap<(String, String), u64>,
    /// The members that were removed after their lease had lapsed. A death that the primary has
    /// forgotten is none: nobody may rely on it.
    pub silenced: BTreeSet<(String, String)>,
    /// How many processes ended under a conversation, since anything of it was completed.
    ends: BTreeMap<Scoped<ConversationId>, u32>,
    pub commits: u64,
    pub claims: u64,
    /// A hash of everything that was done, in order.
    pub trace: u64,
    violation: Option<String>,
}

impl Observer {
    /// The observer of a server that has only a part of what this one has seen.
    pub fn rebuilt(&self, log: &[Transaction]) -> Self {
        let mut rebuilt = Self::default();
        log.iter().for_each(|transaction| rebuilt.observe(transaction));
        Self {
            acknowledged: self.acknowledged.clone(),
            ends: self.ends.clone(),
            commits: self.commits,
            claims: self.claims,
            trace: self.trace,
            // It was reported when it happened.
            violation: None,
            ..rebuilt
        }
    }

    pub fn take_violation(&mut self) -> Option<String> {
        self.violation.take()
    }

    /// All conversations that were ever written, as far as the server knows.
    pub fn written(&self) -> impl Iterator<Item = &Scoped<ConversationId>> {
        self.writers.keys()
    }

    /// How often a conversation was deleted.
    pub fn deletions_of(&self, id: &Scoped<ConversationId>) -> usize {
        self.deletions.iter().filter(|(deleted, _)| deleted == id).count()
    }

    /// The milliseconds since this incarnation last renewed; `None` if it is not a member.
    pub fn silence(&self, who: &Holder, now: u64) -> Option<u64> {
        let incarnation = self.members.get(who.node.as_str())?;
        let renewed = self.renewed.get(who.node.as_str())?;
        (incarnation == who.incarnation.as_str()).then(|| now - renewed)
    }

    pub fn observe(&mut self, transaction: &Transaction) {
        self.observed += 1;
        for words in &transaction.effects {
            let key = text(&words[1]);
            let mut parts = key.splitn(4, ':').skip(1);
            let place = [(); 3].map(|()| parts.next());
            match (text(&words[0]), place) {
                ("HSET", [_, Some("c"), Some(id)]) => self.claimed(id, words),
                ("HDEL", [_, Some("c"), Some(id)]) if text(&words[2]) == "node" => {
                    self.holders.remove(&conversation(id));
                }
                ("UNLINK", [_, Some("c"), Some(id)]) => self.deleted(id, transaction.at),
                ("DEL", [_, Some("c"), Some(id)]) => drop(self.holders.remove(&conversation(id))),
                ("RPUSH", [_, Some("j"), Some(id)]) => {
                    self.written_to(id, &words[2..], transaction)
                }
                ("LSET", [_, Some("j"), Some(id)]) => self.rewritten(id, transaction),
                ("ZADD", [Some("{members}"), Some("seen"), _]) => {
                    self.renewed.insert(text(&words[3]).to_owned(), transaction.at);
                    self.acknowledge(transaction);
                }
                ("HSET", [Some("{members}"), Some("members"), _]) => {
                    let incarnation = transaction.call.as_ref().map(|call| call.arg(1).to_owned());
                    let name = text(&words[2]).to_owned();
                    self.members.insert(name, incarnation.unwrap_or_default());
                }
                ("HDEL", [Some("{members}"), Some("members"), _]) => {
                    self.left(text(&words[2]), transaction.at);
                }
                _ => {}
            }
        }
    }

    /// Observes a transaction of a former primary, of which nothing is left.
    pub fn observe_former(&mut self, transaction: &Transaction) {
        self.acknowledge(transaction);
    }

    fn report(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// A member has entered or renewed its lease.
    fn acknowledge(&mut self, transaction: &Transaction) {
        let renews = |call: &&Call| matches!(call.script, "enter" | "renew");
        if let Some(call) = transaction.call.as_ref().filter(renews) {
            let who = (call.arg(0).to_owned(), call.arg(1).to_owned());
            self.acknowledged.insert(who, transaction.at);
        }
    }

    /// A conversation has ended the process that ran it.
    pub fn ends_process(&mut self, id: &Scoped<ConversationId>) {
        let ends = self.ends.entry(id.clone()).or_default();
        *ends += 1;
        if *ends > MAX_ENDS {
            self.report(format!("{id} ends more than {MAX_ENDS} processes"));
        }
    }

    /// An operator lets the conversation run again.
    pub fn forget_ends(&mut self, id: &Scoped<ConversationId>) {
        self.ends.remove(id);
    }

    /// Whether some primary has renewed the lease of this holder in time, even if nothing is left
    /// of it.
    pub fn was_acknowledged(&self, who: &Holder, now: u64) -> bool {
        self.acknowledged.get(&key(who)).is_some_and(|at| now - at <= LEASE_MS)
    }

    /// A member was removed.
    fn left(&mut self, name: &str, now: u64) {
        let Some(incarnation) = self.members.get(name).cloned() else { return };
        let who = holder(name, &incarnation);
        let lapsed = self.silence(&who, now).is_some_and(|silent_ms| silent_ms > LEASE_MS);
        if lapsed {
            self.silenced.insert(key(&who));
        }
        self.members.remove(name);
    }

    fn deleted(&mut self, id: &str, now: u64) {
        let id = conversation(id);
        self.deletions.push((id.clone(), now));
        self.holders.remove(&id);
        self.closed.retain(|(closed, _, _)| *closed != id);
        self.done.retain(|(done, _)| *done != id);
        self.ends.remove(&id);
    }

    /// A conversation's hash was set: a claim sets the holder.
    fn claimed(&mut self, id: &str, words: &[Vec<u8>]) {
        let Some(claim) = claim_set_by(words) else { return };
        let id = conversation(id);
        self.claims += 1;
        self.fold_into_trace(&[id.as_str(), &claim.holder.to_string()], claim.epoch.get());
        let highest = self.epochs.insert(id.clone(), claim.epoch).unwrap_or_default();
        if claim.epoch <= highest {
            self.report(format!("{id}: epoch {} is claimed after {highest}", claim.epoch));
        }
        let former = self.holders.insert(id.clone(), claim.clone()).map(|former| former.holder);
        let is_member = |holder: &Holder| {
            self.members.get(holder.node.as_str()).map(String::as_str)
                == Some(holder.incarnation.as_str())
        };
        if let Some(former) = former.filter(|former| *former != claim.holder && is_member(former)) {
            let me = claim.holder;
            self.report(format!("{id}: {me} claims it from {former}, which is a member"));
        }
    }

    /// Checks who replaces an event: only the holder of the conversation may.
    fn rewritten(&mut self, id: &str, transaction: &Transaction) {
        let Some(call) = &transaction.call else { return };
        let (id, epoch) = (conversation(id), Epoch::new(call.arg(2).parse().unwrap()));
        let held = Claim { holder: holder(call.arg(0), call.arg(1)), epoch };
        let present = self.holders.get(&id).cloned();
        if present.as_ref() != Some(&held) {
            self.report(format!("{id}: {held:?} rewrites under the claim {present:?}"));
        }
    }

    /// Checks what must hold for every write: who wrote it, and that it closes nothing twice.
    fn written_to(&mut self, id: &str, events: &[Vec<u8>], transaction: &Transaction) {
        let Some(call) = &transaction.call else { return };
        let id = conversation(id);
        let epoch = Epoch::new(call.arg(2).parse().unwrap());
        let mut held = Claim { holder: holder(call.arg(0), call.arg(1)), epoch };
        if epoch == Epoch::ZERO {
            // The first commit claims the conversation.
            let claimed = transaction.effects.iter().find_map(|words| claim_set_by(words));
            held = claimed.unwrap_or(held);
        }
        let events = events.iter().map(|stored| {
            let json = decompress(stored).unwrap();
            abide_conversation::from_json::<Event>(&json).unwrap()
        });
        let events: Vec<_> = events.collect();
        self.commits += 1;
        let last = events.last().map_or(0, |event| event.seq.get());
        self.fold_into_trace(&[id.as_str()], last ^ held.epoch.get() << 32);
        if let Some(last) = self.writers.insert(id.clone(), held.clone())
            && (last.epoch > held.epoch || last.epoch == held.epoch && last != held)
        {
            self.report(format!("{id}: {held:?} writes after {last:?}"));
        }
        if events.iter().any(|event| completes(&event.data)) {
            self.ends.remove(&id);
        }
        for Event { data, .. } in events {
            let is_new = match &data {
                EventData::Resolution(closed) => {
                    let call = closed.call_id.to_string();
                    self.closed.insert((id.clone(), call, closed.suspension))
                }
                EventData::ToolResult(result) => {
                    self.done.insert((id.clone(), result.call_id.to_string()))
                }
                _ => true,
            };
            if !is_new {
                self.report(format!("{id}: closed twice: {data:?}"));
            }
        }
    }

    fn fold_into_trace(&mut self, names: &[&str], number: u64) {
        let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let hash = names.iter().flat_map(|name| name.bytes()).fold(self.trace, fold);
        self.trace = number.to_le_bytes().into_iter().fold(hash, fold);
    }
}

/// Whether an event is none of those that every attempt to run the same thing writes.
fn completes(data: &EventData) -> bool {
    matches!(
        data,
        EventData::AssistantMsg(_)
            | EventData::ToolResult(_)
            | EventData::DispatchFinished(_)
            | EventData::TurnEnded(_)
            | EventData::Resolution(_)
            | EventData::Forked(_)
            | EventData::ChildEnded(_)
            | EventData::ChildReleased(_)
            | EventData::ParentNotified(_)
            | EventData::DecisionPublished(_)
    )
}

/// The claim that a command sets which sets fields of a conversation.
fn claim_set_by(words: &[Vec<u8>]) -> Option<Claim> {
    let field = |name: &str| {
        let mut pairs = words.get(2..)?.chunks_exact(2);
        pairs.find(|pair| pair[0] == name.as_bytes()).map(|pair| text(&pair[1]).to_owned())
    };
    let [Some(node), Some(incarnation), Some(epoch)] = ["node", "incarnation", "epoch"].map(field)
    else {
        return None;
    };
    let epoch = Epoch::new(epoch.parse().unwrap());
    Some(Claim { holder: holder(&node, &incarnation), epoch })
}

fn holder(node: &str, incarnation: &str) -> Holder {
    Holder { node: NodeName::new(node), incarnation: Incarnation::new(incarnation) }
}

fn conversation(id: &str) -> Scoped<ConversationId> {
    Scoped::parse(id).unwrap()
}

pub fn key(who: &Holder) -> (String, String) {
    (who.node.as_str().to_owned(), who.incarnation.as_str().to_owned())
}
