//! A schedule, whose ticks the nodes send: each happens once, whatever dies.

use std::collections::BTreeMap;
use std::rc::Rc;

use abide_actors::journal::StoreError;
use abide_conversation::command::IfBusy;
use abide_conversation::event::{Event, EventData};
use abide_conversation::{
    AgentName, ConversationId, Principal, ScheduleName, Scoped, Tenant, Timestamp, TurnId,
};
use abide_registry::partition::Partition;
use abide_registry::schedules::{
    LastTick, MAX_MISSED_TICKS, Missed, Rhythm, Schedule, SentTick, tick_name,
};
use abide_registry::store::Schedules as _;

use crate::activities;
use crate::actor::{Ask, Outcome, Request};
use crate::mutation::Mutation;
use crate::node::{BEGINNING_MS, Node, store_unavailable};
use crate::schedule::FAULTS_MS;
use crate::tasks::{READ, UNAVAILABLE_DELAY, WAKE_TIMEOUT};
use crate::world::World;

/// The names of ticks have seconds.
const EVERY_MS: u64 = 1_000;

fn name() -> Scoped<ScheduleName> {
    Scoped::new(&Tenant::default(), &ScheduleName::new("hourly"))
}

/// The conversation of all ticks.
fn conversation() -> Scoped<ConversationId> {
    name().sibling(&ConversationId::new("ticks"))
}

/// The message of a tick.
fn text(tick: &str) -> String {
    format!("sched:{tick} to {}", Tenant::default())
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millisecond(BEGINNING_MS + ms.cast_signed()).unwrap()
}

fn schedule() -> Schedule {
    let schedule = Schedule {
        name: name().local(),
        version: 1,
        agent: AgentName::new("a"),
        conversation: Some(conversation().local()),
        rhythm: Rhythm::EveryMs(EVERY_MS),
        content: Vec::new(),
        if_busy: IfBusy::Queue,
        missed: Missed::All,
        start: None,
        until: Some(at(FAULTS_MS)),
        paused: false,
        assigns: Default::default(),
        principal: Principal::new("ada"),
        identity: None,
        created_at: at(0),
        put_at: at(0),
        next_at: None,
        last: None,
        triggers: 0,
        put_id: None,
    };
    Schedule { next_at: schedule.tick_after(at(0)), ..schedule }
}

impl Node {
    /// Puts the schedule, unless it is there, and sends the ticks that are due.
    pub async fn tick_loop(self: Rc<Self>) {
        self.world.store.use_partition(Partition::of(name().as_str()));
        let redis = self.store.redis();
        while self
            .ask(READ, redis.replace_schedule(&name(), None, Some(&schedule())))
            .await
            .is_err()
        {
            self.sleep(UNAVAILABLE_DELAY).await;
        }
        let read = async |node: &Node, until: Timestamp, limit: usize| {
            let share = node.world.store.used(&node.seen().partitions);
            node.ask(READ, node.store.redis().due_schedules(&share, until, limit)).await
        };
        let fire = async |node: Rc<Node>, id: Scoped<ScheduleName>| node.fire(&id).await.is_ok();
        self.act_on_alarms(read, fire).await;
    }

    /// Sends what is due, one tick after another, and records each before the next.
    async fn fire(self: &Rc<Self>, id: &Scoped<ScheduleName>) -> Result<(), StoreError> {
        for _ in 0..MAX_MISSED_TICKS {
            let stored = self.ask(READ, self.store.redis().schedule(id)).await?;
            let Some(schedule) = stored else { return Ok(()) };
            let Some((tick, done)) = schedule.step(self.now()) else { return Ok(()) };
            let last = match tick {
                Some(at) => Some(self.send_tick(at).await?),
                None => None,
            };
            let moved_on = schedule.after_tick(done, last);
            let known = Some(schedule.version);
            self.ask(READ, self.store.redis().replace_schedule(id, known, Some(&moved_on))).await?;
        }
        Ok(())
    }

    async fn send_tick(self: &Rc<Self>, at: Timestamp) -> Result<LastTick, StoreError> {
        let tick = tick_name(at);
        let text = text(&tick);
        let key = Some(format!("key:{text}"));
        let key = key.filter(|_| self.world.mutation != Some(Mutation::TicksHaveNoKey));
        let action = activities::send(self.world.number(), &text, IfBusy::Queue);
        let request = Request { ask: Ask::Act(action), key };
        let conversation = conversation();
        let sent = self.deliver(&conversation, request);
        let (sent, error) = match self.world.exec.within(self.ms(WAKE_TIMEOUT), sent).await {
            Some(Outcome::Done(seq)) => {
                self.world.store.count("ticks");
                let conversation_id = conversation.local();
                (Some(SentTick { conversation_id, turn_id: TurnId::new(tick.clone()), seq }), None)
            }
            Some(Outcome::Rejected(why)) => (None, Some(format!("{why:?}"))),
            Some(Outcome::Untouched | Outcome::Lost | Outcome::Unavailable(_)) | None => {
                return Err(store_unavailable());
            }
        };
        Ok(LastTick { at, tick, sent, error })
    }
}

/// What the stored schedule still has to do.
pub fn left_due(world: &World) -> Option<String> {
    let due = world.store.schedule(&name())?.due_at()?;
    Some(format!("the tick at {due} does not happen"))
}

/// The first tick that has not happened. One that happened twice is a message that is there twice.
pub fn check(
    world: &World,
    journals: &BTreeMap<&Scoped<ConversationId>, Vec<Event>>,
) -> Option<String> {
    // A fail-over may take the schedule back, with all that followed.
    world.store.schedule(&name())?;
    let events = journals.get(&conversation()).map_or(&[][..], Vec::as_slice);
    let is_there = |text: &str| {
        events.iter().any(
            |event| matches!(&event.data, EventData::UserMsg(user) if user.message.text() == text),
        )
    };
    let ticks = (EVERY_MS..=FAULTS_MS).step_by(EVERY_MS as usize);
    let lost = ticks.map(|ms| tick_name(at(ms))).find(|tick| !is_there(&text(tick)))?;
    Some(format!("the tick {lost} has not happened"))
}
