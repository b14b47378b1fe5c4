//! Reads journals page by page, so that a long one delays nobody else.

use abide_actors::journal::{StoreError, StoredConversation};
use abide_conversation::{ConversationId, Event, Scoped, Seq, State, replay};
use redis::cmd;
use tokio::task;

use super::super::super::compression::decompressed_len;
use super::super::super::sealing::{self, OwnKey, open_own};
use super::super::Redis;
use super::super::command::error::refused;
use super::super::command::keys::Tag;
use super::super::connection::execute::Guarantee;
use super::super::rows::decode::{self, STATE};
use super::super::scripts::StoredRow;

/// The bytes after which a first page ends: more than usually follow a cached state.
pub(in crate::store::redis) const FIRST_PAGE_BYTES: usize = 256 << 10;
/// The bytes after which a further page ends. With a million short events before it, a server takes
/// some milliseconds to find and send one; everybody else waits for that.
pub(in crate::store::redis) const PAGE_BYTES: usize = 64 << 10;
/// Events that are read without a script: a page may have as many, however long they are.
const FEW_EVENTS: i64 = 8;
/// The bytes that are decoded on the caller's thread: that takes a millisecond.
const MAX_INLINE_BYTES: usize = 128 << 10;
/// What is sealed does not show that it is compressed, and usually has three or four times its length.
const USUAL_RATIO: usize = 4;
/// How often a read begins anew because its conversation was claimed in between.
const MAX_READS: usize = 5;

/// What became of one attempt to read a conversation.
enum ReadAttempt {
    Whole(Box<StoredConversation>),
    UnreadableCache,
    /// Another claim was won in between, and so the conversation may be another one.
    Claimed,
}

impl Redis {
    /// Reads what follows the first page of a stored conversation. All pages are of one journal,
    /// which only grows: whoever deletes and creates a conversation claims it, and then the read
    /// begins anew.
    pub(super) async fn read_all(
        &self,
        id: &Scoped<ConversationId>,
        mut stored: Option<StoredRow>,
    ) -> Result<Option<StoredConversation>, StoreError> {
        let mut is_cache_readable = true;
        for _ in 0..MAX_READS {
            let Some(row) = stored else { return Ok(None) };
            match self.read_rest(id, row).await? {
                ReadAttempt::Whole(conversation) => return Ok(Some(*conversation)),
                ReadAttempt::UnreadableCache => is_cache_readable = false,
                ReadAttempt::Claimed => {}
            }
            stored = self.load_by_script(id, is_cache_readable).await?;
        }
        Err(refused(format!("{}: claimed whenever it was read", key_name(id))))
    }

    async fn read_rest(
        &self,
        id: &Scoped<ConversationId>,
        row: StoredRow,
    ) -> Result<ReadAttempt, StoreError> {
        let (seq, epoch, state, events, key) = row;
        let own = self.key_of(id, &key)?;
        let bytes = decompressed_len(&state) + decompressed_bytes_of(&events);
        let name = key_name(id);
        let first_key = own.clone();
        let decoded = run(bytes, move || decode_first(&name, first_key.as_ref(), &state, &events));
        let decoded = decoded.await??;
        let Some(mut conversation) = decoded else { return Ok(ReadAttempt::UnreadableCache) };
        let mut last_read = conversation.cached_seq.get() + conversation.events.len() as u64;
        while last_read < seq {
            let range = (signed(last_read), signed(seq) - 1);
            let call = Self::page_call(id, &epoch, range, PAGE_BYTES);
            // What precedes the last event of a confirmed read is confirmed, too.
            let page = self.call_paging(call, Guarantee::Unconfirmed).await?;
            let Some(page): Option<Vec<Vec<u8>>> = page else { return Ok(ReadAttempt::Claimed) };
            // A damaged journal is shorter than its conversation says: the next commit conflicts.
            if page.is_empty() {
                break;
            }
            let before = last_read;
            last_read += page.len() as u64;
            let (name, own) = (key_name(id), own.clone());
            // Whatever follows a first page is long.
            conversation =
                run(usize::MAX, move || decode_next(&name, own, conversation, before, &page))
                    .await??;
        }
        Ok(ReadAttempt::Whole(Box::new(conversation)))
    }

    /// The events `after + 1 ..= last`, as far as they exist.
    pub(in crate::store::redis) async fn range(
        &self,
        id: &Scoped<ConversationId>,
        after: Seq,
        last: Seq,
        guarantee: Guarantee,
    ) -> Result<Vec<Event>, StoreError> {
        // Redis counts from 0, in signed numbers, and includes the last index.
        let (mut first, last) = (signed(after.get()), signed(last.get()) - 1);
        if last < first {
            return Ok(Vec::new());
        }
        if last - first < FEW_EVENTS {
            let tag = Tag::of(id);
            let mut command = cmd("LRANGE");
            command.arg(tag.key_of("j", id.as_str())).arg(first).arg(last);
            let events = match guarantee {
                Guarantee::Confirmed => self.query_confirmed(tag, command).await?,
                Guarantee::Unconfirmed => self.query(tag, command).await?,
            };
            return self.decode_events(id, unsigned(first), events).await;
        }
        let first_call = Self::page_call(id, "", (first, last), FIRST_PAGE_BYTES);
        let mut page: Vec<Vec<u8>> = match guarantee {
            Guarantee::Confirmed => self.call_confirmed(first_call).await?,
            Guarantee::Unconfirmed => self.call_reading(first_call).await?,
        };
        let (mut max_bytes, mut events) = (FIRST_PAGE_BYTES, Vec::new());
        loop {
            let is_full = bytes_of(&page) >= max_bytes;
            let before = unsigned(first);
            first = first.saturating_add(signed(page.len() as u64));
            events.append(&mut self.decode_events(id, before, page).await?);
            if !is_full || first > last {
                return Ok(events);
            }
            max_bytes = PAGE_BYTES;
            let call = Self::page_call(id, "", (first, last), max_bytes);
            page = self.call_paging(call, guarantee).await?;
        }
    }
}

/// The cached state with the first page of events; `None` if the state cannot be read.
fn decode_first(
    name: &str,
    own: Option<&OwnKey>,
    state: &[u8],
    events: &[Vec<u8>],
) -> Result<Option<StoredConversation>, StoreError> {
    let state: State = match state {
        [] => State::default(),
        stored => match sealing::read(&open_own(own, STATE, "", stored)?) {
            Ok(state) => state,
            Err(_) => return Ok(None),
        },
    };
    let cached_seq = state.seq;
    let events = parse(name, own, cached_seq.get(), events)?;
    Ok(Some(StoredConversation { state, events, cached_seq }))
}

/// The conversation with the former page folded into its state, so that no more than a page and the
/// state are in memory at once.
fn decode_next(
    name: &str,
    own: Option<OwnKey>,
    former: StoredConversation,
    before: u64,
    page: &[Vec<u8>],
) -> Result<StoredConversation, StoreError> {
    let StoredConversation { state, events, cached_seq } = former;
    let state = replay(state, &events);
    let events = parse(name, own.as_ref(), before, page)?;
    Ok(StoredConversation { state, events, cached_seq })
}

impl Redis {
    /// Decodes events, of which the first follows this number of others.
    async fn decode_events(
        &self,
        id: &Scoped<ConversationId>,
        before: u64,
        events: Vec<Vec<u8>>,
    ) -> Result<Vec<Event>, StoreError> {
        let own = self.key_of_events(id, before, &events).await?;
        let name = key_name(id);
        run(decompressed_bytes_of(&events), move || parse(&name, own.as_ref(), before, &events))
            .await?
    }
}

fn parse(
    name: &str,
    own: Option<&OwnKey>,
    before: u64,
    events: &[Vec<u8>],
) -> Result<Vec<Event>, StoreError> {
    let numbered = (before + 1..).zip(events);
    let events = numbered.map(|(seq, json)| match own {
        None => decode::parse(name, json),
        Some(own) => decode::parse(name, &own.open("event", &seq.to_string(), json)?),
    });
    events.collect()
}

/// Runs what decodes that many bytes, on a blocking thread if they are many.
async fn run<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StoreError> {
    if bytes <= MAX_INLINE_BYTES {
        return Ok(work());
    }
    task::spawn_blocking(work).await.map_err(|error| refused(error.to_string()))
}

fn bytes_of(events: &[Vec<u8>]) -> usize {
    events.iter().map(Vec::len).sum()
}

/// About how many bytes are decoded of these events.
fn decompressed_bytes_of(events: &[Vec<u8>]) -> usize {
    events.iter().map(|event| decompressed_bytes(event)).sum()
}

fn decompressed_bytes(event: &[u8]) -> usize {
    if sealing::is_sealed(event) { event.len() * USUAL_RATIO } else { decompressed_len(event) }
}

fn key_name(id: &Scoped<ConversationId>) -> String {
    Tag::of(id).key_of("j", id.as_str())
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
