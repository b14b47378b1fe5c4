//! Begins a run: does what is new in the request, and finds out what is to be told from where on.

use abide_actors::request::{IdempotencyKey, ResolveRequest};
use abide_conversation::command::IfBusy;
use abide_conversation::event::{Event, EventData};
use abide_conversation::state::ConversationStatus;
use abide_conversation::{AgentName, ConversationId, Scoped, Seq, State, TurnId};
use axum::http::StatusCode;
use axum::response::Response;

use super::message::NewMessages;
use super::response::RunStream;
use crate::access::permission::{Answer, Read, Send};
use crate::access::{Allowed, StreamPermit};
use crate::http::Api;
use crate::http::answers::{GivenAnswer, give};
use crate::http::problem::Problem;
use crate::http::protocol_requests::conversation;
use crate::http::turn_stream::{TurnStream, find_in_turn};
use crate::protocols::ag_ui::decode::Run;
use crate::protocols::ag_ui::encoder::RunEncoder;
use crate::protocols::ag_ui::types::RunInput;
use crate::protocols::feed::{Answerable, Feed, Item};

/// How many events are read at a time.
const EVENTS_PER_READ: usize = 100;
/// The most events of one step.
const MAX_STEP_EVENTS: usize = 10_000;

/// A run that begins.
pub(super) struct Beginning<'a> {
    api: &'a Api,
    reader: &'a Allowed<Read>,
    agent: AgentName,
    id: Scoped<ConversationId>,
    run: Run,
}

/// What a response tells.
enum Telling {
    /// The turn of a message that was just sent, from the event of this seq on. Before it may be other
    /// turns that the client does not know.
    Sent { turn: TurnId, seq: Seq, has_history: bool },
    /// What happens after the event of this seq in this turn, and then another turn; a snapshot tells
    /// what was before.
    After { turn: TurnId, seq: Seq, next: Option<TurnId> },
    /// What happens from now on in this turn, and then another turn; a snapshot tells what was before.
    Now { turn: TurnId, next: Option<TurnId> },
    /// What the thread has. No turn is open.
    History(Seq),
    /// A refusal, with its code.
    Refusal(&'static str, String),
}

impl<'a> Beginning<'a> {
    pub(super) fn new(
        api: &'a Api,
        reader: &'a Allowed<Read>,
        agent: AgentName,
        input: RunInput,
    ) -> Result<Self, Problem> {
        if ConversationId::parse(&input.thread_id).is_none() {
            let rule = "must be 1 to 128 of A-Z a-z 0-9 _ . : -, and neither . nor ..";
            return Err(Problem::field("threadId", rule));
        }
        let id = reader.new_conversation(&input.thread_id)?;
        let run = Run::new(input).map_err(|error| Problem::field(&error.field, error.message))?;
        Ok(Self { api, reader, agent, id, run })
    }

    /// Tells the thread, and sends nothing.
    pub(super) async fn connect(self) -> Result<Response, Problem> {
        let permit = self.api.access.open_stream(&self.id.tenant())?;
        let state = self.state().await?;
        let telling = Telling::of_open_turn(state.as_ref());
        self.respond(permit, telling).await
    }

    /// Does what the request asks for, and tells what follows.
    pub(super) async fn run(
        self,
        allowed: &Allowed<Send>,
        keys: Vec<IdempotencyKey>,
    ) -> Result<Response, Problem> {
        let permit = self.api.access.open_stream(&self.id.tenant())?;
        let state = self.state().await?;
        let telling = self.act(allowed, state.as_ref(), keys).await?;
        self.respond(permit, telling).await
    }

    /// The conversation; `None` if it does not exist.
    async fn state(&self) -> Result<Option<State>, Problem> {
        if self.api.store.summary(&self.id).await?.is_none() {
            return Ok(None);
        }
        conversation(self.api, self.reader, &self.id, self.agent.as_str()).await.map(Some)
    }

    async fn act(
        &self,
        allowed: &Allowed<Send>,
        state: Option<&State>,
        keys: Vec<IdempotencyKey>,
    ) -> Result<Telling, Problem> {
        let open = state.map(State::pending_calls).unwrap_or_default();
        let answers = match self.run.answers(&open, &allowed.principal()) {
            Ok(answers) => answers,
            Err(why) => return Ok(Telling::Refusal("invalid_resume", why)),
        };
        let message = NewMessages::of_run(self.api, &self.id, &self.run).await?;
        let waits = state.is_some_and(|it| it.status() == ConversationStatus::AwaitingInput);
        let has_answers = !answers.requests.is_empty();
        let is_addressed = has_answers || !self.run.resume.is_empty();
        let is_new = message.as_ref().is_some_and(|message| !message.is_repeat);
        if is_new
            && waits
            && !is_addressed
            && self.run.if_busy.is_none_or(|it| it == IfBusy::Reject)
        {
            let why = "the thread waits for answers: send them as resume, or set \
                       forwardedProps.abide.if_busy to queue or interrupt";
            return Ok(Telling::Refusal("interrupts_pending", why.to_owned()));
        }
        let answered = match self.answer(allowed, state, answers.requests, keys.clone()).await {
            Ok(answered) => answered,
            Err(problem) if problem.status() == StatusCode::UNPROCESSABLE_ENTITY => {
                return Ok(Telling::Refusal("invalid_resume", problem.detail().to_owned()));
            }
            Err(problem) => return Err(problem),
        };
        let Some(message) = message else { return self.attached(state, answered).await };
        let is_repeat = message.is_repeat;
        // A message that comes with answers waits for the turn that they continue.
        let default = if is_addressed { IfBusy::Queue } else { IfBusy::Reject };
        let if_busy = self.run.if_busy.unwrap_or(default);
        // A key stands for one request, which the answers are if there are any.
        let keys = if self.run.has_answers() { Vec::new() } else { keys };
        let to = (&self.id, &self.agent);
        let sent = message.send(self.api, allowed, to, (&self.run, if_busy), keys).await?;
        let turn = state.and_then(|state| state.turn.as_ref()).filter(|_| is_addressed);
        let next = |turn: &TurnId| Some(sent.turn_id.clone()).filter(|next| next != turn);
        Ok(match (answered, turn) {
            (Some(first), Some(turn)) => Telling::After {
                turn: turn.id.clone(),
                seq: first.saturating_sub(1),
                next: next(&turn.id),
            },
            (None, Some(turn)) => Telling::Now { turn: turn.id.clone(), next: next(&turn.id) },
            _ if is_repeat => Telling::Now { turn: sent.turn_id, next: None },
            _ => {
                let has_history = state.is_some_and(|it| it.turn.is_some()) || is_addressed;
                Telling::Sent { turn: sent.turn_id, seq: sent.seq, has_history }
            }
        })
    }

    /// Gives the answers. Returns the seq of the first event of one; `None` if there is none.
    async fn answer(
        &self,
        allowed: &Allowed<Send>,
        state: Option<&State>,
        requests: Vec<ResolveRequest>,
        keys: Vec<IdempotencyKey>,
    ) -> Result<Option<Seq>, Problem> {
        let Some(state) = state.filter(|_| !requests.is_empty()) else { return Ok(None) };
        let allowed = allowed.with::<Answer>()?;
        let answers = requests.into_iter().map(GivenAnswer::to_question).collect();
        Ok(give(self.api, &allowed, (&self.id, state), answers, keys).await?.first)
    }

    /// What is told after answers without a message.
    async fn attached(
        &self,
        state: Option<&State>,
        answered: Option<Seq>,
    ) -> Result<Telling, Problem> {
        let turn = state.and_then(|state| state.turn.as_ref());
        if let (Some(first), Some(turn)) = (answered, turn) {
            let (turn, seq) = (turn.id.clone(), first.saturating_sub(1));
            return Ok(Telling::After { turn, seq, next: None });
        }
        if !self.run.has_answers() {
            return Ok(Telling::of_open_turn(state));
        }
        // What became of the calls may have happened since.
        let state = self.state().await?;
        Ok(Telling::of_open_turn(state.as_ref()))
    }

    async fn respond(
        self,
        permit: Option<StreamPermit>,
        telling: Telling,
    ) -> Result<Response, Problem> {
        let Self { api, reader, id, run, .. } = self;
        let thread = id.local();
        let encoder = RunEncoder::new(run.dialect, thread.as_str(), &run.run_id, run.run_tools());
        let mut stream = RunStream::new(api, &id, encoder, run.state);
        let feed = match telling {
            Telling::Refusal(code, why) => {
                stream.fail(code, &why);
                return Ok(stream.into_response(None));
            }
            Telling::History(seq) => {
                stream.tell_messages(seq).await?;
                stream.succeed();
                return Ok(stream.into_response(None));
            }
            Telling::Sent { turn, seq, has_history } => {
                if has_history {
                    stream.tell_messages_at_start();
                }
                Feed::new(turn, seq.saturating_sub(1))
            }
            Telling::After { turn, seq, next } => {
                stream.follow_with(next);
                let primed = prime(api, &id, &turn, Some(seq)).await?;
                stream.continue_from(primed).await?
            }
            Telling::Now { turn, next } => {
                stream.follow_with(next);
                let primed = prime(api, &id, &turn, None).await?;
                stream.continue_from(primed).await?
            }
        };
        let turns = TurnStream::open(api, reader, (&id, permit), feed).await?;
        Ok(stream.into_response(Some(turns)))
    }
}

impl Telling {
    fn of_open_turn(state: Option<&State>) -> Self {
        match state {
            Some(State { turn: Some(turn), .. }) => Self::Now { turn: turn.id.clone(), next: None },
            Some(state) => Self::History(state.seq),
            None => Self::History(Seq::ZERO),
        }
    }
}

/// A feed that has taken the latest step of a turn up to some event, and the items of that step.
pub(super) struct PrimedFeed {
    pub(super) feed: Feed,
    pub(super) items: Vec<Item>,
}

/// Reads the latest step of a turn up to this event, or all that the journal has.
async fn prime(
    api: &Api,
    id: &Scoped<ConversationId>,
    turn: &TurnId,
    until: Option<Seq>,
) -> Result<PrimedFeed, Problem> {
    let begins = |event: &Event| {
        matches!(event.data, EventData::AssistantMsg(_))
            && until.is_none_or(|until| event.seq <= until)
    };
    let Some(from) = find_in_turn(api, id, turn, begins).await? else {
        // The turn is queued.
        let summary = api.store.summary(id).await?;
        let last = summary.map(|summary| summary.last_seq).unwrap_or_default();
        return Ok(PrimedFeed { feed: Feed::new(turn.clone(), last), items: Vec::new() });
    };
    let mut feed = Feed::new(turn.clone(), from.seq.saturating_sub(1));
    let mut items = feed.event(&from, &Answerable::All);
    for _ in 0..MAX_STEP_EVENTS / EVENTS_PER_READ {
        let events = api.store.events(id, feed.seq(), EVENTS_PER_READ).await?;
        let is_last = events.len() < EVENTS_PER_READ;
        for event in &events {
            if until.is_some_and(|until| event.seq > until) {
                return Ok(PrimedFeed { feed, items });
            }
            items.extend(feed.event(event, &Answerable::All));
        }
        if is_last || feed.has_ended() {
            break;
        }
    }
    Ok(PrimedFeed { feed, items })
}
