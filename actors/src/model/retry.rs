//! Asks again, as long as nothing of the reply has come.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, StreamExt};

use super::{Model, ModelError, ReplyChunk, ReplyStream, Request, Retry};
use crate::backoff;
use crate::clock::Clock;

/// How long a provider's `Retry-After` is honoured; a turn that waits longer looks hung.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// How often a model is asked for one step, and how long to wait in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// With the first; 0 counts as 1.
    pub max_attempts: u32,
    /// The wait after the first attempt; every further one is twice as long.
    pub base: Duration,
    /// No wait of ours is longer.
    pub max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max_attempts: 3, base: Duration::from_millis(500), max: Duration::from_secs(8) }
    }
}

impl RetryPolicy {
    /// How long to wait after a failed attempt, the first being 1: between half of the back-off and
    /// all of it, by `chance`, and not less than the provider asked for.
    fn wait(&self, attempt: u32, asked: Option<Duration>, chance: f64) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
        let backoff = self.base.saturating_mul(1 << doublings).min(self.max);
        let share = 0.5 + chance.clamp(0.0, 1.0) / 2.0;
        let jittered = Duration::try_from_secs_f64(backoff.as_secs_f64() * share);
        jittered.unwrap_or(backoff).max(asked.unwrap_or_default().min(RETRY_AFTER))
    }
}

/// A model that is asked again after a failure that may pass. After the first part of a reply
/// every failure passes through. Dropping the future gives up.
pub struct Retrying<M> {
    model: M,
    policy: RetryPolicy,
    clock: Arc<dyn Clock>,
}

impl<M: Model> Retrying<M> {
    /// Wraps a model.
    pub fn new(model: M, policy: RetryPolicy, clock: Arc<dyn Clock>) -> Self {
        Self { model, policy, clock }
    }

    async fn attempt(&self, request: &Request) -> Result<ReplyStream, ModelError> {
        let mut parts = self.model.ask(request).await?;
        match parts.next().await {
            Some(Ok(first)) => {
                Ok(stream::iter([Ok::<ReplyChunk, ModelError>(first)]).chain(parts).boxed())
            }
            Some(Err(failure)) => Err(failure),
            None => Err(ModelError::transient("the model's reply was empty")),
        }
    }
}

#[async_trait]
impl<M: Model> Model for Retrying<M> {
    async fn ask(&self, request: &Request) -> Result<ReplyStream, ModelError> {
        for attempt in 1..self.policy.max_attempts {
            let failure = match self.attempt(request).await {
                Ok(parts) => return Ok(parts),
                Err(failure) => failure,
            };
            let Retry::After(asked) = failure.retry else { return Err(failure) };
            let wait = self.policy.wait(attempt, asked, self.clock.chance());
            tracing::debug!(attempt, ?wait, said = %failure, "the model is asked again");
            backoff::wait(&failure.message, wait).await;
        }
        self.attempt(request).await
    }
}
