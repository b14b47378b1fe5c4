//! A schedule as it is stored, and its ticks.

use std::collections::{BTreeSet, VecDeque};

use abide_actors::blobs::{BlobHolder, named_blobs};
use abide_conversation::command::IfBusy;
use abide_conversation::identity::Identity;
use abide_conversation::{
    AgentName, BlobId, ConversationId, Principal, ScheduleName, Seq, Timestamp, TurnId,
};
use jiff::SignedDuration;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::cron::{Cron, next_of_interval};

/// How many ticks of an outage are made up for.
pub const MAX_MISSED_TICKS: usize = 100;
/// A tick that is this late was missed.
const MISSED_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// When the ticks of a schedule are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rhythm {
    Cron { cron: String, timezone: String },
    EveryMs(u64),
}

/// What becomes of the ticks of an outage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// The last of them happens.
    #[default]
    Last,
    /// All of them happen, up to the last hundred.
    All,
    /// None of them happens.
    Skip,
}

/// A schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    pub name: ScheduleName,
    /// Raised by every change; the first one is the time, so that one that was deleted and put anew has
    /// another.
    pub version: u64,
    pub agent: AgentName,
    /// Where the messages go; `None`: each to a conversation of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<ConversationId>,
    pub rhythm: Rhythm,
    pub content: Vec<Value>,
    pub if_busy: IfBusy,
    pub missed: Missed,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    #[serde(default)]
    pub paused: bool,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub assigns: Map<String, Value>,
    /// Who put it: the messages are theirs.
    pub principal: Principal,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    pub created_at: Timestamp,
    /// When it was put last; intervals are counted from here if there is no `start`.
    pub put_at: Timestamp,
    /// The next tick; `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LastTick>,
    /// How often it was triggered by hand on nodes of earlier versions, which number their triggers.
    #[serde(default)]
    pub triggers: u64,
    /// The put that wrote it, as the holder of the blobs that its messages name; `None` if an earlier
    /// version put it, or has written it since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub put_id: Option<String>,
}

/// What became of a tick.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastTick {
    pub at: Timestamp,
    pub tick: String,
    /// The message; absent if it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<SentTick>,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The message of a tick.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentTick {
    pub conversation_id: ConversationId,
    pub turn_id: TurnId,
    pub seq: Seq,
}

/// The name of the tick of this time: `20261126T060000Z`.
pub fn tick_name(at: Timestamp) -> String {
    at.strftime("%Y%m%dT%H%M%SZ").to_string()
}

impl Schedule {
    /// The blobs that its messages name.
    pub fn named_blobs(&self) -> BTreeSet<BlobId> {
        let json = serde_json::to_vec(&self.content).unwrap_or_default();
        named_blobs(&json).collect()
    }

    /// Who holds these blobs.
    pub fn blob_holder(&self) -> BlobHolder {
        BlobHolder::Schedule { name: self.name.clone(), put: self.put_id.clone() }
    }

    /// Whether its messages name a blob that this holder holds for it.
    pub fn keeps(&self, holder: &BlobHolder, blob: &BlobId) -> bool {
        let is_own = match holder {
            BlobHolder::Schedule { name, put } => {
                *name == self.name && (self.put_id.is_none() || *put == self.put_id)
            }
            BlobHolder::Conversation(_) | BlobHolder::Uploader(_) | BlobHolder::Others => false,
        };
        is_own && self.named_blobs().contains(blob)
    }

    /// The conversation of a tick.
    pub fn conversation_of(&self, tick: &str) -> ConversationId {
        let own = || ConversationId::new(format!("{}-{tick}", self.name));
        self.conversation.clone().unwrap_or_else(own)
    }

    /// This schedule in place of another of its name, from whose ticks it goes on.
    #[must_use]
    pub fn in_place_of(self, before: &Self) -> Self {
        Self {
            version: self.version.max(before.version.saturating_add(1)),
            created_at: before.created_at,
            last: before.last.clone(),
            triggers: before.triggers,
            ..self
        }
    }

    /// When the schedule next has something to do, unless it is paused.
    pub fn due_at(&self) -> Option<Timestamp> {
        self.next_at.filter(|_| !self.paused)
    }

    /// The first tick after this time.
    pub fn tick_after(&self, after: Timestamp) -> Option<Timestamp> {
        let begin = self.start.unwrap_or(self.put_at);
        let just_before = begin.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(begin);
        let next = match &self.rhythm {
            // The beginning itself may be a tick.
            Rhythm::Cron { cron, timezone } => {
                let zone = TimeZone::get(timezone).ok()?;
                Cron::parse(cron).ok()?.next_after(after.max(just_before), &zone)?
            }
            Rhythm::EveryMs(every) if self.start.is_some() => {
                next_of_interval(begin, *every, after)?
            }
            // Without a beginning of its own, the first tick is one interval after the PUT.
            Rhythm::EveryMs(every) => next_of_interval(begin, *every, after.max(begin))?,
        };
        Some(next).filter(|next| self.until.is_none_or(|until| *next <= until))
    }

    /// The ticks that are due, oldest first: the newest of them, if there are many.
    pub fn due_ticks(&self, now: Timestamp) -> Vec<Timestamp> {
        let Some(first) = self.due_at().filter(|first| *first <= now) else { return Vec::new() };
        let mut window = SignedDuration::from_hours(1);
        loop {
            let begin = now.checked_sub(window).unwrap_or(Timestamp::MIN);
            let is_whole = begin < first;
            let mut next = if is_whole { Some(first) } else { self.tick_after(begin) };
            let mut ticks = VecDeque::new();
            while let Some(tick) = next.filter(|tick| *tick <= now) {
                if ticks.len() >= MAX_MISSED_TICKS {
                    ticks.pop_front();
                }
                ticks.push_back(tick);
                next = self.tick_after(tick);
            }
            if is_whole || ticks.len() >= MAX_MISSED_TICKS {
                return ticks.into();
            }
            window = window.saturating_mul(2);
        }
    }

    /// The tick to deliver now, and the time up to which ticks are then done with; `None` if nothing
    /// is due.
    pub fn step(&self, now: Timestamp) -> Option<(Option<Timestamp>, Timestamp)> {
        let due = self.due_ticks(now);
        let newest = *due.last()?;
        Some(match self.missed {
            Missed::All => (due.first().copied(), due.first().copied()?),
            Missed::Last => (Some(newest), newest),
            Missed::Skip if now.duration_since(newest) > MISSED_AFTER => (None, newest),
            Missed::Skip => (Some(newest), newest),
        })
    }

    /// The schedule when the ticks up to this one are done with.
    #[must_use]
    pub fn after_tick(&self, done: Timestamp, last: Option<LastTick>) -> Self {
        Self {
            version: self.version.saturating_add(1),
            next_at: self.tick_after(done),
            last: last.or_else(|| self.last.clone()),
            ..self.clone()
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    pub(crate) fn schedule(rhythm: Rhythm, missed: Missed) -> Schedule {
        let put_at = at("2026-11-26T06:00:00Z");
        let mut schedule = Schedule {
            name: ScheduleName::new("daily"),
            version: 1,
            agent: AgentName::new("demo"),
            conversation: None,
            rhythm,
            content: Vec::new(),
            if_busy: IfBusy::Queue,
            missed,
            start: None,
            until: None,
            paused: false,
            assigns: Map::new(),
            principal: Principal::new("ada"),
            identity: None,
            created_at: put_at,
            put_at,
            next_at: None,
            last: None,
            triggers: 0,
            put_id: None,
        };
        schedule.next_at = schedule.tick_after(put_at);
        schedule
    }

    fn hourly(missed: Missed) -> Schedule {
        let (cron, timezone) = ("@hourly".to_owned(), "UTC".to_owned());
        schedule(Rhythm::Cron { cron, timezone }, missed)
    }

    /// The ticks that happen at this time, one after another.
    fn happen(mut schedule: Schedule, now: &str) -> (Vec<String>, Option<Timestamp>) {
        let mut names = Vec::new();
        while let Some((tick, done)) = schedule.step(at(now)) {
            names.extend(tick.map(tick_name));
            schedule = schedule.after_tick(done, None);
        }
        (names, schedule.next_at)
    }

    #[test]
    fn a_tick_is_named_by_its_time_and_makes_a_conversation_of_its_name() {
        let name = tick_name(at("2026-11-26T06:00:00Z"));
        assert_eq!(name, "20261126T060000Z");
        let own = hourly(Missed::Last).conversation_of(&name);
        assert_eq!(own.as_str(), "daily-20261126T060000Z");
    }

    #[test]
    fn what_is_due_happens_and_the_next_tick_follows() {
        for (now, ticks, next) in [
            ("2026-11-26T06:59:59Z", vec![], "2026-11-26T07:00:00Z"),
            ("2026-11-26T07:00:00Z", vec!["20261126T070000Z"], "2026-11-26T08:00:00Z"),
        ] {
            let ticks: Vec<String> = ticks.into_iter().map(String::from).collect();
            assert_eq!(happen(hourly(Missed::Last), now), (ticks, Some(at(next))), "{now}");
        }
    }

    #[test]
    fn of_the_ticks_of_an_outage_the_last_all_or_none_happen() {
        let now = "2026-11-26T10:30:00Z";
        let next = Some(at("2026-11-26T11:00:00Z"));
        let names = |hours: &[u8]| {
            let name = |hour: &u8| format!("20261126T{hour:02}0000Z");
            hours.iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(happen(hourly(Missed::Last), now), (names(&[10]), next));
        assert_eq!(happen(hourly(Missed::All), now), (names(&[7, 8, 9, 10]), next));
        assert_eq!(happen(hourly(Missed::Skip), now), (names(&[]), next));
        let in_time = "2026-11-26T10:00:59Z";
        assert_eq!(happen(hourly(Missed::Skip), in_time), (names(&[10]), next));
    }

    #[test]
    fn of_a_long_outage_the_last_hundred_ticks_happen() {
        let (ticks, next) = happen(hourly(Missed::All), "2027-11-26T10:30:00Z");
        assert_eq!(ticks.len(), MAX_MISSED_TICKS);
        assert_eq!(ticks.last().unwrap(), "20271126T100000Z");
        assert_eq!(next, Some(at("2027-11-26T11:00:00Z")));
        let secondly = schedule(Rhythm::EveryMs(1_000), Missed::All);
        assert_eq!(happen(secondly, "2026-12-26T10:30:00Z").0.len(), MAX_MISSED_TICKS);
    }

    #[test]
    fn an_interval_begins_with_its_start_or_one_interval_after_the_put() {
        let put = schedule(Rhythm::EveryMs(90_000), Missed::Last);
        assert_eq!(put.next_at, Some(at("2026-11-26T06:01:30Z")));
        let start = Some(at("2026-11-26T09:00:00Z"));
        let mut started = Schedule { start, ..put };
        started.next_at = started.tick_after(started.put_at);
        assert_eq!(started.next_at, start);
        let cron = Schedule { start, ..hourly(Missed::Last) };
        assert_eq!(cron.tick_after(cron.put_at), start, "a beginning may be a tick");
    }

    #[test]
    fn there_is_no_tick_after_the_end_and_none_while_it_is_paused() {
        let until = Some(at("2026-11-26T08:00:00Z"));
        let ending = Schedule { until, ..hourly(Missed::All) };
        let (ticks, next) = happen(ending, "2026-11-26T12:00:00Z");
        assert_eq!((ticks.len(), next), (2, None));
        let paused = Schedule { paused: true, ..hourly(Missed::All) };
        assert_eq!(paused.step(at("2026-11-26T12:00:00Z")), None);
    }
}
