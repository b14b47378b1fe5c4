//! Follows the turn of a call until it ends or rests, and tells its client of the progress.

use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;
use tokio::time::{Instant, timeout_at};

use crate::http::Api;
use crate::http::turn_stream::{Break, Next, TurnStream};
use crate::problem::{Kind, Problem};
use crate::protocols::feed::{Item, SuspendedCall};
use crate::protocols::mcp::agent_turn::AgentTurn;

/// How long a request is held. A client goes on with another.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(600);

/// How long a turn is followed that neither ends nor rests.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    /// Not at all: what is journalled counts.
    None,
    For(Duration),
}

/// What a turn has come to.
pub(super) enum CallOutcome {
    End(Box<AgentTurn>),
    Rest(Vec<SuspendedCall>),
    Running,
}

/// Follows a turn until it ends or rests.
pub(super) async fn follow(
    api: &Api,
    mut stream: TurnStream,
    context: &RequestContext<RoleServer>,
    patience: Patience,
) -> Result<CallOutcome, Problem> {
    let (max_wait, permit) = match patience {
        Patience::None => (MAX_WAIT, None),
        // Where too many wait, the client is told how far the turn is, and asks again.
        Patience::For(max_wait) => (max_wait, api.waiting_requests.try_acquire().ok()),
    };
    let give_up_at = Instant::now() + max_wait;
    let mut turn = AgentTurn::default();
    let mut progress = Progress::new(context);
    loop {
        let next = tokio::select! {
            next = timeout_at(give_up_at, stream.next()) => next,
            // Nobody listens any more. What was begun goes on.
            () = context.ct.cancelled() => return Ok(CallOutcome::Running),
        };
        let items = match next {
            Err(_) => return Ok(CallOutcome::Running),
            Ok(Next::Ended) => return Ok(CallOutcome::End(Box::new(turn))),
            Ok(Next::Broken(Break::Moved | Break::StoreUnavailable)) => {
                return Ok(CallOutcome::Running);
            }
            Ok(Next::Broken(why @ (Break::CredentialEnded | Break::Deleted))) => {
                return Err(Problem::new(Kind::Unavailable, why.text()));
            }
            Ok(Next::KeepAlive) => {
                progress.repeat().await;
                continue;
            }
            Ok(Next::Items(items)) => items,
        };
        for item in &items {
            if let Some(text) = turn.take(item) {
                progress.tell(text).await;
            }
        }
        if let Some(open) = turn.rest() {
            return Ok(CallOutcome::Rest(open.to_vec()));
        }
        if permit.is_none() && items.contains(&Item::CaughtUp) {
            return Ok(CallOutcome::Running);
        }
    }
}

/// What a client is told of a call that it asked to be told of.
struct Progress<'a> {
    context: &'a RequestContext<RoleServer>,
    token: Option<ProgressToken>,
    /// How often something was told.
    count: u32,
    last: String,
}

impl<'a> Progress<'a> {
    fn new(context: &'a RequestContext<RoleServer>) -> Self {
        let token = context.meta.get_progress_token();
        Self { context, token, count: 0, last: String::new() }
    }

    async fn tell(&mut self, text: String) {
        let Some(token) = self.token.clone() else { return };
        self.count = self.count.saturating_add(1);
        let progress = ProgressNotificationParam::new(token, f64::from(self.count));
        self.last.clone_from(&text);
        // A client that is gone needs none.
        let _ = self.context.peer.notify_progress(progress.with_message(text)).await;
    }

    /// Tells the client again, so that it does not give up.
    async fn repeat(&mut self) {
        self.tell(self.last.clone()).await;
    }
}
