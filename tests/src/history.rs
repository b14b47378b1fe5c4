//! The requests, answers and streams of a test's clients, to be checked against the journals
//! afterwards.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use reqwest::Method;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::client::{Answer, Client};
use crate::deadline::{POLL_INTERVAL, within};
use crate::frames::{Frame, ids};

/// How long a reader waits on a silent stream before it tries the next node.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(3);

/// One request to the public API and what became of it.
#[derive(Clone, Debug)]
pub struct Exchange {
    pub node: String,
    pub method: Method,
    pub path: String,
    /// Its `Idempotency-Key`.
    pub key: Option<String>,
    pub body: Option<Value>,
    pub sent_at: Timestamp,
    pub ended_at: Timestamp,
    /// `Err` when no complete answer came: the request may or may not have taken effect.
    pub answer: Result<Answer, String>,
}

impl Exchange {
    /// The body of a 2xx answer, which is a promise.
    pub fn acknowledged(&self) -> Option<&Value> {
        let answer = self.answer.as_ref().ok()?;
        (200..300).contains(&answer.status).then_some(&answer.body)
    }

    /// The conversation that the request is about.
    pub fn conversation(&self) -> Option<&str> {
        let (path, _) = self.path.split_once('?').unwrap_or((&self.path, ""));
        match path.strip_prefix("/v1/conversations")?.strip_prefix('/') {
            Some(rest) => rest.split('/').next(),
            None => self.acknowledged()?["id"].as_str(),
        }
    }

    /// The last segment of the path, such as `messages` or `cancel`; empty for the conversation
    /// itself.
    pub fn verb(&self) -> &str {
        self.path.split('/').next_back().filter(|_| self.path.split('/').count() > 4).unwrap_or("")
    }
}

/// What one read during the test showed of a journal.
#[derive(Clone, Debug, PartialEq)]
pub struct JournalRead {
    pub conversation: String,
    pub node: String,
    pub sent_at: Timestamp,
    pub ended_at: Timestamp,
    /// 0 when there was no such conversation.
    pub last_seq: u64,
    /// A hash of each event; `None` when only `last_seq` was read.
    pub events: Option<Vec<u64>>,
}

impl JournalRead {
    /// A hash of an event, for comparing it with the event of another read. Two builds may write the
    /// same time differently.
    pub fn hash(event: &Value) -> u64 {
        let mut hasher = DefaultHasher::new();
        hash_value(event, &mut hasher);
        hasher.finish()
    }
}

fn hash_value(value: &Value, hasher: &mut DefaultHasher) {
    match value {
        Value::String(text) => match text.parse::<Timestamp>() {
            Ok(time) => time.hash(hasher),
            Err(_) => text.hash(hasher),
        },
        Value::Array(items) => {
            items.len().hash(hasher);
            items.iter().for_each(|item| hash_value(item, hasher));
        }
        Value::Object(members) => {
            members.len().hash(hasher);
            for (name, value) in members {
                name.hash(hasher);
                hash_value(value, hasher);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string().hash(hasher),
    }
}

impl fmt::Display for JournalRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, sent_at, last_seq, .. } = self;
        write!(f, "read of {sent_at} from {node} up to seq {last_seq}")
    }
}

/// The history of one test, shared by its clients.
#[derive(Clone, Default)]
pub struct History(Arc<Inner>);

#[derive(Default)]
struct Inner {
    exchanges: Mutex<Vec<Exchange>>,
    reads: Mutex<Vec<JournalRead>>,
    readers: Mutex<Vec<Reader>>,
    reader_tasks: Mutex<JoinSet<()>>,
    resumptions: Mutex<Vec<Timestamp>>,
}

impl History {
    /// Every request, in the order in which they were answered.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.0.exchanges.lock().unwrap().clone()
    }

    /// Every read of a journal that was recorded, in the order in which they were answered.
    pub fn reads(&self) -> Vec<JournalRead> {
        self.0.reads.lock().unwrap().clone()
    }

    /// The conversations to which anything but a GET was sent.
    pub fn conversations(&self) -> BTreeSet<String> {
        let exchanges = self.0.exchanges.lock().unwrap();
        let writes = exchanges.iter().filter(|exchange| exchange.method != Method::GET);
        writes.filter_map(|exchange| exchange.conversation().map(str::to_owned)).collect()
    }

    /// When a node that had been stopped by SIGSTOP was resumed.
    pub fn resumptions(&self) -> Vec<Timestamp> {
        self.0.resumptions.lock().unwrap().clone()
    }

    /// Reads a conversation's stream from its first event on, and moves on to the next node when a
    /// stream ends, is refused, or has been silent for three seconds.
    pub fn listen<'a>(&self, clients: impl IntoIterator<Item = &'a Client>, id: &str) -> Reader {
        // The tasks belong to the history: a client that refers to it would keep it alive for ever.
        let clients: Vec<Client> =
            clients.into_iter().map(|client| client.clone().without_history()).collect();
        let (frames, end) = (watch::channel(Vec::new()).0, watch::channel(None).0);
        let reader = Reader { conversation: id.to_owned(), frames, end };
        self.0.reader_tasks.lock().unwrap().spawn(run_reader(clients, reader.clone()));
        self.0.readers.lock().unwrap().push(reader.clone());
        reader
    }

    /// All readers.
    pub fn readers(&self) -> Vec<Reader> {
        self.0.readers.lock().unwrap().clone()
    }

    pub(crate) fn record(&self, exchange: Exchange) {
        self.0.exchanges.lock().unwrap().push(exchange);
    }

    pub(crate) fn record_resumption(&self) {
        self.0.resumptions.lock().unwrap().push(Timestamp::now());
    }

    pub(crate) fn record_read(&self, read: JournalRead) {
        self.0.reads.lock().unwrap().push(read);
    }
}

/// A reader of one conversation's stream, with the frames that it has received.
#[derive(Clone)]
pub struct Reader {
    pub conversation: String,
    frames: watch::Sender<Vec<Frame>>,
    end: watch::Sender<Option<u64>>,
}

impl Reader {
    /// All frames so far, over all connections.
    pub fn frames(&self) -> Vec<Frame> {
        self.frames.borrow().clone()
    }

    /// Lets the reader end once it has received this event or a later one.
    pub fn ends_at(&self, seq: u64) {
        self.end.send_replace(Some(seq));
    }

    async fn wait_for_end(&self) {
        let (mut end, mut frames) = (self.end.subscribe(), self.frames.subscribe());
        // The senders are this reader's own.
        let _ = end.wait_for(|end| end.is_some()).await;
        let end = *self.end.borrow();
        let _ = frames.wait_for(|read| ids(read).last().copied() >= end || end == Some(0)).await;
    }

    /// Waits until the condition holds for the frames, and returns them.
    pub async fn wait_for(&self, what: &str, condition: impl Fn(&[Frame]) -> bool) -> Vec<Frame> {
        let mut read = self.frames.subscribe();
        within(what, read.wait_for(|frames| condition(frames))).await.unwrap().clone()
    }
}

async fn run_reader(clients: Vec<Client>, reader: Reader) {
    tokio::select! {
        () = follow(clients, reader.clone()) => {}
        () = reader.wait_for_end() => {}
    }
}

async fn follow(clients: Vec<Client>, reader: Reader) {
    for client in clients.iter().cycle() {
        let after = ids(&reader.frames.borrow()).last().copied().unwrap_or_default();
        let open = client.try_events(&reader.conversation, Some(after));
        let Ok(Some(mut frames)) = timeout(SILENCE_TIMEOUT, open).await else {
            tokio::time::sleep(POLL_INTERVAL).await;
            continue;
        };
        while let Ok(Some(frame)) = timeout(SILENCE_TIMEOUT, frames.read()).await {
            reader.frames.send_modify(|read| read.push(frame));
        }
    }
}
