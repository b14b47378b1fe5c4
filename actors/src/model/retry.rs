//! Retries a model call as long as no chunk of the reply has arrived.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, StreamExt};

use super::{Model, ModelError, ModelRequest, ReplyChunk, ReplyStream, Retry};
use crate::backoff;
use crate::clock::Clock;

/// The longest `Retry-After` that is honoured; a turn that waits longer looks hung.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// How often a model is called for one step, and how long to wait in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Includes the first attempt; 0 counts as 1.
    pub max_attempts: u32,
    /// The delay after the first attempt; it doubles after each further one.
    pub base_delay: Duration,
    /// The longest delay, unless the provider asks for a longer one.
    pub max_delay: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            base_delay: Duration::from_millis(500),
            max_delay: Duration::from_secs(8),
        }
    }
}

impl RetryPolicy {
    /// The delay after a failed attempt, where the first one is 1: between half of the backoff and
    /// all of it, by `chance`, and at least what the provider requested.
    fn delay(&self, attempt: u32, requested: Option<Duration>, chance: f64) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
        let backoff = self.base_delay.saturating_mul(1 << doublings).min(self.max_delay);
        let share = 0.5 + chance.clamp(0.0, 1.0) / 2.0;
        let jittered = Duration::try_from_secs_f64(backoff.as_secs_f64() * share);
        jittered.unwrap_or(backoff).max(requested.unwrap_or_default().min(MAX_RETRY_AFTER))
    }
}

/// Retries the calls of a model after errors that may not occur again. Once the first chunk of a
/// reply has arrived, every error is passed through. Dropping the future stops the retries.
pub struct RetryingModel<M> {
    model: M,
    policy: RetryPolicy,
    clock: Arc<dyn Clock>,
}

impl<M: Model> RetryingModel<M> {
    /// Wraps a model.
    pub fn new(model: M, policy: RetryPolicy, clock: Arc<dyn Clock>) -> Self {
        Self { model, policy, clock }
    }

    async fn first_chunk(&self, request: &ModelRequest) -> Result<ReplyStream, ModelError> {
        let mut chunks = self.model.call(request).await?;
        match chunks.next().await {
            Some(Ok(first)) => {
                Ok(stream::iter([Ok::<ReplyChunk, ModelError>(first)]).chain(chunks).boxed())
            }
            Some(Err(error)) => Err(error),
            None => Err(ModelError::transient("the model's reply was empty")),
        }
    }
}

#[async_trait]
impl<M: Model> Model for RetryingModel<M> {
    async fn call(&self, request: &ModelRequest) -> Result<ReplyStream, ModelError> {
        for attempt in 1..self.policy.max_attempts {
            let error = match self.first_chunk(request).await {
                Ok(chunks) => return Ok(chunks),
                Err(error) => error,
            };
            let Retry::After(requested) = error.retry else { return Err(error) };
            let delay = self.policy.delay(attempt, requested, self.clock.chance());
            tracing::debug!(attempt, ?delay, content = %error, "retrying model call");
            backoff::wait(&error.message, delay).await;
        }
        self.first_chunk(request).await
    }
}
