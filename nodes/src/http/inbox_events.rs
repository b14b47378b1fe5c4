//! The inbox as a stream: a snapshot, then what opens, closes, is voted on and will expire.

mod known;

use std::time::Duration;

use abide_actors::access::Answerer;
use abide_actors::journal::InboxFilter;
use abide_actors::live::{Signal, inbox_channel};
use abide_conversation::event::SuspensionKind;
use abide_registry::live::{StreamItem, Subscription};
use axum::extract::State;
use axum::response::IntoResponse;
use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};
use utoipa::IntoParams;

pub(super) use self::known::InboxFrame;
use self::known::KnownInbox;
use super::Api;
use super::calls::PendingEntry;
use super::conversations::agent_name;
use super::event_stream::{self, EventSource};
use super::extract::Query;
use super::problem::Problem;
use crate::access::permission::ListPending;
use crate::access::{Allowed, CredentialWatch, StreamPermit};

/// How many entries the snapshot has.
const SNAPSHOT_ENTRIES: usize = 200;
/// How long to wait until the other nodes know that this node has a listener.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_millis(500);
/// After this long without a frame, a comment line keeps proxies from closing the connection.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// How often the inbox is read again, to find what no signal told: a node of an older version tells
/// nothing, and one that cannot be reached tells it too late.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct InboxQuery {
    /// Only suspensions of this kind.
    kind: Option<SuspensionKind>,
    /// Only those of this agent.
    agent: Option<String>,
    /// Only those of this tool.
    tool: Option<String>,
    /// Only those of this conversation.
    conversation: Option<String>,
    /// Only what the caller may answer.
    #[param(default = false)]
    mine: Option<bool>,
}

/// Follows the open suspensions that the caller may see, live.
///
/// The first frame is `snapshot`, with those that expire first. Then come `opened`, also for an entry that
/// has changed, `voted`, `expiring` and `closed`. Another `snapshot` replaces all that was told, whenever
/// something may have been missed. A comment line is sent every 15 s. The frames have no id: a new stream
/// begins with a new snapshot.
#[utoipa::path(get, path = "/v1/pending/events", operation_id = "stream_pending", tag = "calls",
    params(InboxQuery),
    responses((status = 200, content_type = "text/event-stream",
        description = "Server-sent events, such as `event: closed`, `data: {\"call_id\":\"call_1\", …}`, \
            and an empty line; the schema describes one frame, with its lines as members.",
        body = InboxFrame)))]
pub(super) async fn events(
    allowed: Allowed<ListPending>,
    State(api): State<Api>,
    Query(query): Query<InboxQuery>,
) -> Result<impl IntoResponse, Problem> {
    let conversation = query.conversation.as_deref().map(|id| {
        let wrong = || Problem::field("conversation", "is not a conversation id");
        allowed.named_conversation(id).ok_or_else(wrong)
    });
    let conversation = conversation.transpose()?.map(|id| id.local());
    let caller = allowed.answerer(api.clock.now());
    let filter = InboxFilter {
        kind: query.kind,
        agent: query.agent.as_deref().map(agent_name).transpose()?,
        tool: query.tool,
        conversation,
        visible_to: allowed.viewer(),
        answerable_by: query.mine.unwrap_or(false).then(|| caller.clone()),
    };
    let tenant = allowed.tenant();
    let permit = api.access.open_stream(&tenant)?;
    // Subscribe before reading the inbox, so that nothing falls in between.
    let subscription = api.hub.subscribe(&allowed.scoped(&inbox_channel()));
    subscription.wait_until_announced(ANNOUNCE_TIMEOUT).await;
    let mut feed = InboxFeed {
        credential: api.access.watch_list(&allowed),
        known: KnownInbox::default(),
        check_at: Instant::now() + CHECK_INTERVAL,
        encoded: BytesMut::new(),
        has_ended: false,
        _permit: permit,
        subscription,
        filter,
        caller,
        tenant,
        api,
    };
    feed.send_snapshot().await?;
    Ok(event_stream::respond(feed))
}

/// The frames for one client.
struct InboxFeed {
    api: Api,
    tenant: abide_conversation::Tenant,
    filter: InboxFilter,
    caller: Answerer,
    subscription: Subscription,
    known: KnownInbox,
    /// When the inbox is compared with what the client knows.
    check_at: Instant,
    encoded: BytesMut,
    credential: Option<CredentialWatch>,
    has_ended: bool,
    /// Counts the stream among those of its tenant.
    _permit: Option<StreamPermit>,
}

impl EventSource for InboxFeed {
    /// Ends with the credential, or when the store fails.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        while self.encoded.is_empty() {
            if self.has_ended {
                return None;
            }
            let keep_alive_at = Instant::now() + KEEP_ALIVE_INTERVAL;
            let item = tokio::select! {
                item = self.subscription.next() => item,
                () = ended(&mut self.credential) => {
                    self.has_ended = true;
                    return Some(InboxFrame::CredentialEnded {}.encode());
                }
                () = sleep_until(self.check_at) => {
                    self.check().await.ok()?;
                    continue;
                }
                () = sleep_until(keep_alive_at) => return Some(Bytes::from_static(b":\n\n")),
            };
            let encoding_streams = self.api.encoding_streams.clone();
            let _permit = encoding_streams.acquire().await.ok()?;
            match item {
                StreamItem::Missed => self.send_snapshot().await.ok()?,
                StreamItem::Signal(shared) => self.take(&shared.signal),
            }
        }
        Some(std::mem::take(&mut self.encoded).freeze())
    }
}

impl InboxFeed {
    fn take(&mut self, signal: &Signal) {
        // The channel has no journal: it is neither committed to nor deleted.
        let Signal::Child(calls) = signal else { return };
        self.caller.at = self.api.clock.now();
        for frame in self.known.update(calls, &self.filter, &self.caller) {
            self.encoded.extend_from_slice(&frame.encode());
        }
    }

    async fn send_snapshot(&mut self) -> Result<(), Problem> {
        let (entries, more) = self.read().await?;
        self.known.replace(&entries, more);
        let pending = entries.into_iter().map(|entry| PendingEntry::new(entry, &self.caller));
        let frame = InboxFrame::Snapshot { pending: pending.collect(), more };
        self.encoded.extend_from_slice(&frame.encode());
        Ok(())
    }

    /// Sends another snapshot if the inbox is not as the client knows it.
    async fn check(&mut self) -> Result<(), Problem> {
        let (entries, more) = self.read().await?;
        if !self.known.agrees(&entries, more) {
            self.send_snapshot().await?;
        }
        self.check_at = Instant::now() + CHECK_INTERVAL;
        Ok(())
    }

    async fn read(&mut self) -> Result<(Vec<abide_actors::journal::InboxEntry>, bool), Problem> {
        self.caller.at = self.api.clock.now();
        let (filter, store) = (&self.filter, &self.api.store);
        let mut entries = Vec::new();
        let mut cursor = None;
        loop {
            let room = SNAPSHOT_ENTRIES - entries.len();
            let page = store.inbox(&self.tenant, filter, cursor.as_deref(), room).await?;
            entries.extend(page.items);
            cursor = page.cursor;
            if cursor.is_none() || entries.len() >= SNAPSHOT_ENTRIES {
                return Ok((entries, cursor.is_some()));
            }
        }
    }
}

/// Returns when the credential has ended.
async fn ended(credential: &mut Option<CredentialWatch>) {
    match credential {
        Some(credential) => credential.ended().await,
        None => std::future::pending().await,
    }
}
