//! The frames of a root's stream that tell what its descendants wait for.

use std::collections::{BTreeMap, BTreeSet};

use abide_actors::child_calls::{ChildCalls, DescendantCalls};
use abide_conversation::{CallId, ConversationId, Seq};

use super::frames::{Frame, Payload};

/// The client is told of no other child while it has this many open calls to show. Its inbox has all.
const MAX_KNOWN_CALLS: usize = 256;
/// Children that wait for nothing are forgotten when more than this many are known.
const MAX_KNOWN_CHILDREN: usize = 256;

/// The open calls of a root's descendants, as its client knows them.
#[derive(Debug, Default)]
pub(super) struct KnownChildren {
    children: BTreeMap<ConversationId, KnownCalls>,
    /// Whether descendants may have calls that the client was not told of, because there are too many.
    is_cut: bool,
    /// Whether there is room again for such calls.
    needs_reading: bool,
}

/// The open calls of a child after the event of this `seq`, with the number of their suspensions.
#[derive(Debug, Default)]
struct KnownCalls {
    seq: Seq,
    calls: BTreeSet<(CallId, u32)>,
}

impl KnownChildren {
    /// What the snapshot tells.
    pub(super) fn new(snapshot: &DescendantCalls) -> Self {
        let mut known = Self::default();
        known.replace(snapshot);
        known
    }

    /// The frames with what has changed since the client was told of this child.
    pub(super) fn update(&mut self, child: &ChildCalls) -> Vec<Frame<'static>> {
        let known = self.children.get(&child.conversation_id);
        if known.is_some_and(|known| known.seq >= child.seq) {
            return Vec::new();
        }
        if known.is_none() && !child.pending.is_empty() && self.open() >= MAX_KNOWN_CALLS {
            self.is_cut = true;
            return Vec::new();
        }
        let frames = self.put(child);
        let has_closed =
            frames.iter().any(|frame| matches!(frame.payload, Payload::ChildCallClosed { .. }));
        self.needs_reading |= self.is_cut && has_closed;
        if self.children.len() > MAX_KNOWN_CHILDREN {
            self.children.retain(|_, known| !known.calls.is_empty());
        }
        frames
    }

    /// The frames with what has changed since the client was told of the descendants.
    pub(super) fn replace(&mut self, all: &DescendantCalls) -> Vec<Frame<'static>> {
        let is_read =
            |id: &ConversationId| all.calls.iter().any(|child| child.conversation_id == *id);
        let is_gone = |id: &&ConversationId| all.is_complete && !is_read(id);
        let gone: Vec<ConversationId> = self.children.keys().filter(is_gone).cloned().collect();
        let mut frames = Vec::new();
        for id in gone {
            let calls = self.children.remove(&id).unwrap_or_default().calls;
            frames.extend(calls.into_iter().map(|call| closed(&id, call)));
        }
        for child in &all.calls {
            let known = self.children.get(&child.conversation_id);
            if known.is_none_or(|known| known.seq < child.seq) {
                frames.extend(self.put(child));
            }
        }
        self.is_cut = !all.is_complete;
        self.needs_reading = false;
        frames
    }

    /// Whether the descendants must be read again, because calls that were too many now have room.
    pub(super) fn needs_reading(&self) -> bool {
        self.needs_reading
    }

    fn put(&mut self, child: &ChildCalls) -> Vec<Frame<'static>> {
        let id = &child.conversation_id;
        let calls: BTreeSet<(CallId, u32)> =
            child.pending.iter().map(|call| (call.call_id.clone(), call.suspension)).collect();
        let now = KnownCalls { seq: child.seq, calls };
        let before = self.children.insert(id.clone(), now).unwrap_or_default().calls;
        let is_new = |call: &(CallId, u32)| !before.contains(call);
        let opened = child
            .entries()
            .filter(|entry| is_new(&(entry.pending.call_id.clone(), entry.pending.suspension)))
            .map(|entry| Frame::live(Payload::ChildSuspended(Box::new(entry))));
        let is_open = |call: &(CallId, u32)| {
            child.pending.iter().any(|open| (&open.call_id, open.suspension) == (&call.0, call.1))
        };
        let closed =
            before.iter().filter(|call| !is_open(call)).map(|call| closed(id, call.clone()));
        closed.chain(opened).collect()
    }

    fn open(&self) -> usize {
        self.children.values().map(|known| known.calls.len()).sum()
    }
}

fn closed(id: &ConversationId, (call_id, suspension): (CallId, u32)) -> Frame<'static> {
    Frame::live(Payload::ChildCallClosed { conversation_id: id.clone(), call_id, suspension })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use abide_conversation::AgentName;
    use abide_conversation::state::PendingCall;
    use serde_json::json;

    use super::*;

    fn call(id: &str) -> PendingCall {
        let time = "2026-01-01T00:00:00Z";
        let call = json!({"call_id": id, "tool": "who", "executor": "human", "kind": "elicitation",
            "args": {}, "message": "", "intent": "compute", "suspension": 1, "suspended_at": time,
            "expires_at": time});
        serde_json::from_value(call).unwrap()
    }

    fn child(id: &str, seq: u64, calls: &[&str]) -> ChildCalls {
        ChildCalls {
            participants: Default::default(),
            conversation_id: ConversationId::new(id),
            agent: AgentName::new("kid"),
            seq: Seq::new(seq),
            closed: Vec::new(),
            expiring: Vec::new(),
            pending: calls.iter().map(|id| call(id)).collect(),
        }
    }

    fn all(calls: Vec<ChildCalls>, is_complete: bool) -> DescendantCalls {
        DescendantCalls { calls, is_complete }
    }

    /// The frames as `+CHILD/CALL` and `-CHILD/CALL`.
    fn changes(frames: &[Frame]) -> Vec<String> {
        let change = |frame: &Frame| {
            let frame = json!(frame.payload);
            let sign = if frame["event"] == "child_suspended" { "+" } else { "-" };
            let member = |name: &str| frame["data"][name].as_str().unwrap().to_owned();
            format!("{sign}{}/{}", member("conversation_id"), member("call_id"))
        };
        frames.iter().map(change).collect()
    }

    #[test]
    fn the_client_is_told_what_has_changed_once() {
        let mut known = KnownChildren::new(&all(vec![child("k", 5, &["a", "b"])], true));
        assert_eq!(changes(&known.update(&child("k", 4, &[]))), [""; 0]);
        assert_eq!(changes(&known.update(&child("k", 5, &["a", "b"]))), [""; 0]);
        assert_eq!(changes(&known.update(&child("k", 7, &["b", "c"]))), ["-k/a", "+k/c"]);
        assert_eq!(changes(&known.update(&child("l", 3, &["a"]))), ["+l/a"]);
        let lost = all(vec![child("k", 7, &["b", "c"]), child("m", 2, &["a"])], true);
        assert_eq!(changes(&known.replace(&lost)), ["-l/a", "+m/a"]);
        assert_eq!(changes(&known.replace(&all(Vec::new(), true))), ["-k/b", "-k/c", "-m/a"]);
    }

    #[test]
    fn what_was_not_read_stays_open() {
        let mut known = KnownChildren::new(&all(vec![child("k", 5, &["a"])], true));
        assert_eq!(changes(&known.replace(&all(vec![child("l", 2, &["a"])], false))), ["+l/a"]);
        assert_eq!(changes(&known.update(&child("k", 6, &[]))), ["-k/a"]);
        assert!(known.needs_reading(), "calls that were not read may have room now");
        known.replace(&all(vec![child("l", 2, &["a"])], true));
        assert!(!known.needs_reading());
    }

    #[test]
    fn calls_beyond_the_limit_are_read_when_there_is_room() {
        let mut known = KnownChildren::default();
        let many: Vec<ChildCalls> =
            (0..MAX_KNOWN_CALLS).map(|n| child(&format!("k{n}"), 1, &["a"])).collect();
        for each in &many {
            assert_eq!(known.update(each).len(), 1);
        }
        assert_eq!(changes(&known.update(&child("late", 1, &["a"]))), [""; 0]);
        assert!(!known.needs_reading());
        assert_eq!(changes(&known.update(&child("k7", 2, &[]))), ["-k7/a"]);
        assert!(known.needs_reading());
        let mut rest = many;
        rest.remove(7);
        rest.push(child("late", 1, &["a"]));
        assert_eq!(changes(&known.replace(&all(rest, true))), ["+late/a"]);
        assert!(!known.needs_reading());
    }
}
