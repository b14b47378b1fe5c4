//! A schedule as clients write and read it.

use abide_actors::agent;
use abide_actors::blobs::{BlobHold, BlobHolder, named_blobs};
use abide_conversation::command::IfBusy;
use abide_conversation::{
    AgentName, ConversationId, Principal, ScheduleName, Scoped, Timestamp, TurnId,
};
use abide_registry::schedule_changes;
use abide_registry::schedules::cron::Cron;
use abide_registry::schedules::{LastTick, Missed, Rhythm, Schedule};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::access::Allowed;
use crate::access::permission::ManageSchedules;
use crate::http::Api;
use crate::http::conversations::agent_name;
use crate::http::extract;
use crate::http::message_parts::Blocks;
use crate::http::messages::{self, BusyPolicy};
use crate::http::problem::{Kind, Problem};

/// The largest content of a schedule: each tick reads and writes it.
const MAX_CONTENT_BYTES: usize = 64 << 10;
const MIN_INTERVAL_MS: u64 = 1_000;
const UTC: &str = "UTC";

/// A schedule: either `cron` or `every`, and either `text` or `content`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct NewSchedule {
    /// The agent of the conversations.
    #[schema(pattern = "^[a-z0-9][a-z0-9_-]{0,63}$")]
    agent: String,
    /// The conversation that gets every message, and that is created if it does not exist. Absent: each
    /// tick makes one, `NAME-TICK`.
    conversation: Option<String>,
    /// Five fields, or a nickname such as `@daily`.
    #[schema(max_length = 256, example = "0 7 * * mon-fri")]
    cron: Option<String>,
    /// A duration of at least a second, counted from `start`, or else from now.
    #[schema(example = "15m")]
    every: Option<String>,
    /// The IANA name of the time zone that `cron` is read in.
    #[schema(default = "UTC", example = "Europe/Berlin")]
    timezone: Option<String>,
    #[schema(min_length = 1)]
    text: Option<String>,
    /// Blocks, as those of a message; at most 64 KiB.
    #[schema(value_type = Option<Vec<Object>>, min_items = 1)]
    content: Option<Vec<Value>>,
    /// `queue` if absent. No message of a schedule steers.
    #[serde(default, deserialize_with = "messages::without_steer")]
    if_busy: Option<BusyPolicy>,
    /// What becomes of the ticks of an outage; `last` if absent.
    #[serde(default)]
    missed: MissedPolicy,
    /// The first tick is not before this time.
    start: Option<Timestamp>,
    /// The last tick is not after this time.
    until: Option<Timestamp>,
    #[serde(default)]
    paused: bool,
    /// Handed to the calls of the turns; at most 64 KiB.
    #[serde(default)]
    assigns: Map<String, Value>,
}

/// What becomes of the ticks of an outage: the last one happens, all do up to the last hundred, or none.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = MissedTicks)]
enum MissedPolicy {
    #[default]
    Last,
    All,
    Skip,
}

impl NewSchedule {
    /// Checks the schedule. It must have a tick to come.
    pub(super) async fn schedule(
        self,
        api: &Api,
        allowed: &Allowed<ManageSchedules>,
        id: &Scoped<ScheduleName>,
    ) -> Result<Schedule, Problem> {
        let rhythm = rhythm(self.cron, self.every, self.timezone)?;
        let agent = agent_name(&self.agent)?;
        if api.store.newest(&id.sibling(&agent)).await?.is_none() {
            return Err(Problem::new(Kind::AgentMissing, format!("agent {agent} does not exist")));
        }
        let conversation = conversation_of(allowed, self.conversation.as_deref())?;
        let assigns = extract::bounded("assigns", self.assigns)?;
        let put_id = api.clock.id("put");
        let holder = BlobHolder::Schedule { name: id.local(), put: Some(put_id.clone()) };
        let content = checked_content(api, id, &holder, (self.text, self.content)).await?;
        let now = api.clock.now();
        let mut schedule = Schedule {
            name: id.local(),
            version: u64::try_from(now.as_microsecond()).unwrap_or(1),
            agent,
            conversation,
            rhythm,
            content,
            if_busy: match self.if_busy.unwrap_or(BusyPolicy::Queue) {
                BusyPolicy::Reject => IfBusy::Reject,
                BusyPolicy::Queue => IfBusy::Queue,
                BusyPolicy::Interrupt => IfBusy::Interrupt,
                BusyPolicy::Steer => IfBusy::Steer,
            },
            missed: match self.missed {
                MissedPolicy::Last => Missed::Last,
                MissedPolicy::All => Missed::All,
                MissedPolicy::Skip => Missed::Skip,
            },
            start: self.start,
            until: self.until,
            paused: self.paused,
            assigns,
            principal: allowed.principal(),
            identity: allowed.identity().cloned(),
            created_at: now,
            put_at: now,
            next_at: None,
            last: None,
            triggers: 0,
            put_id: Some(put_id),
        };
        schedule.next_at = schedule.tick_after(now);
        if schedule.next_at.is_none() {
            schedule_changes::release(&*api.store, id, &holder, schedule.named_blobs(), now).await;
            let field = match (&schedule.rhythm, schedule.until) {
                (_, Some(_)) => "until",
                (Rhythm::Cron { .. }, None) => "cron",
                (Rhythm::EveryMs(_), None) => "every",
            };
            return Err(Problem::field(field, "leaves no time to come"));
        }
        Ok(schedule)
    }
}

fn conversation_of(
    allowed: &Allowed<ManageSchedules>,
    name: Option<&str>,
) -> Result<Option<ConversationId>, Problem> {
    let wrong = || Problem::field("conversation", "is not a conversation id");
    let named = |name| allowed.named_conversation(name).map(|id| id.local()).ok_or_else(wrong);
    name.map(named).transpose()
}

/// Checks the content, and stores its media.
async fn checked_content(
    api: &Api,
    id: &Scoped<ScheduleName>,
    holder: &BlobHolder,
    (text, content): (Option<String>, Option<Vec<Value>>),
) -> Result<Vec<Value>, Problem> {
    let mut blocks = Blocks::new(text, content, Vec::new())?;
    if blocks.media_bytes() > 0 {
        api.access.admit_blob(&id.tenant(), blocks.media_bytes()).await?;
    }
    // The media of a message are the tenant's; the conversation only says whose they are.
    let now = api.clock.now();
    let hold = BlobHold::new(holder.clone(), now);
    let conversation = id.sibling(&ConversationId::new(id.local().as_str()));
    let stored = blocks.store_media(api, &conversation, &hold).await;
    let json = serde_json::to_vec(&blocks.content).unwrap_or_default();
    let checked = stored.and_then(|()| match json.len() {
        1..=MAX_CONTENT_BYTES => Ok(()),
        _ => Err(Problem::field("content", format!("is larger than {MAX_CONTENT_BYTES} bytes"))),
    });
    if let Err(problem) = checked {
        schedule_changes::release(&*api.store, id, holder, named_blobs(&json), now).await;
        return Err(problem);
    }
    Ok(blocks.content)
}

fn rhythm(
    cron: Option<String>,
    every: Option<String>,
    timezone: Option<String>,
) -> Result<Rhythm, Problem> {
    match (cron, every, timezone) {
        (Some(cron), None, timezone) => {
            Cron::parse(&cron).map_err(|why| Problem::field("cron", why))?;
            let given = timezone.as_deref().unwrap_or(UTC);
            let zone = TimeZone::get(given).ok();
            let name = zone.as_ref().and_then(|zone| zone.iana_name());
            let unknown = || Problem::field("timezone", "is not the name of a time zone");
            let timezone = name.ok_or_else(unknown)?.to_owned();
            Ok(Rhythm::Cron { cron, timezone })
        }
        (None, Some(_), Some(_)) => Err(Problem::field("timezone", "is for cron only")),
        (None, Some(every), None) => {
            let every = agent::duration(&every).map_err(|why| Problem::field("every", why))?;
            let ms = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
            if ms < MIN_INTERVAL_MS {
                return Err(Problem::field("every", "must be at least 1s"));
            }
            Ok(Rhythm::EveryMs(ms))
        }
        (None, None, _) | (Some(_), Some(_), _) => {
            Err(Problem::field("cron", "give either cron or every"))
        }
    }
}

/// A schedule.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Schedule)]
pub(in crate::http) struct ScheduleDocument {
    name: ScheduleName,
    agent: AgentName,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation: Option<ConversationId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timezone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    every: Option<String>,
    #[schema(value_type = Vec<Object>)]
    content: Vec<Value>,
    if_busy: BusyPolicy,
    missed: MissedPolicy,
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    paused: bool,
    #[serde(skip_serializing_if = "Map::is_empty")]
    assigns: Map<String, Value>,
    /// Who put it, and sends its messages.
    principal: Principal,
    created_at: Timestamp,
    /// The next tick; null if it is paused or has ended.
    #[schema(required)]
    next_at: Option<Timestamp>,
    /// The last tick; null before the first.
    #[schema(required)]
    last: Option<LastTickDocument>,
}

/// What became of a tick.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ScheduleTick)]
struct LastTickDocument {
    at: Timestamp,
    tick: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation_id: Option<ConversationId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn_id: Option<TurnId>,
    /// `completed`, `cancelled`, `halted` or `failed` when the turn has ended, else `running`;
    /// `refused` if the message was. Absent in lists, and if the conversation is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<TickOutcome>,
    /// Why the message was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What became of the turn of a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum TickOutcome {
    Completed,
    Cancelled,
    Halted,
    Failed,
    Running,
    Refused,
}

impl ScheduleDocument {
    pub(super) fn with_outcome(mut self, outcome: Option<TickOutcome>) -> Self {
        if let Some(last) = &mut self.last {
            last.outcome = outcome;
        }
        self
    }
}

impl From<Schedule> for ScheduleDocument {
    fn from(schedule: Schedule) -> Self {
        let next_at = schedule.due_at();
        let (cron, timezone, every) = match schedule.rhythm {
            Rhythm::Cron { cron, timezone } => (Some(cron), Some(timezone), None),
            Rhythm::EveryMs(ms) => (None, None, Some(duration(ms))),
        };
        Self {
            name: schedule.name,
            agent: schedule.agent,
            conversation: schedule.conversation,
            cron,
            timezone,
            every,
            content: schedule.content,
            if_busy: match schedule.if_busy {
                IfBusy::Reject => BusyPolicy::Reject,
                IfBusy::Queue => BusyPolicy::Queue,
                IfBusy::Interrupt => BusyPolicy::Interrupt,
                IfBusy::Steer => BusyPolicy::Steer,
            },
            missed: match schedule.missed {
                Missed::Last => MissedPolicy::Last,
                Missed::All => MissedPolicy::All,
                Missed::Skip => MissedPolicy::Skip,
            },
            start: schedule.start,
            until: schedule.until,
            paused: schedule.paused,
            assigns: schedule.assigns,
            principal: schedule.principal,
            created_at: schedule.created_at,
            next_at,
            last: schedule.last.map(LastTickDocument::from),
        }
    }
}

impl From<LastTick> for LastTickDocument {
    fn from(last: LastTick) -> Self {
        let outcome = last.error.as_ref().map(|_| TickOutcome::Refused);
        let (conversation_id, turn_id) =
            last.sent.map(|sent| (sent.conversation_id, sent.turn_id)).unzip();
        Self { at: last.at, tick: last.tick, conversation_id, turn_id, outcome, error: last.error }
    }
}

/// An interval, in the form in which it may be written.
fn duration(ms: u64) -> String {
    if ms.is_multiple_of(1_000) { format!("{}s", ms / 1_000) } else { format!("{ms}ms") }
}
