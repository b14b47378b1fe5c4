//! Asks Redis: one command of one tag, many at once, or a script.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::journal::StoreError;
use futures::{StreamExt, TryStreamExt, stream};
use redis::{Cmd, FromRedisValue, Pipeline, RedisError, ServerErrorKind, Value};
use tokio::sync::SemaphorePermit;
use tokio::time::timeout;

use super::Redis;
use super::keys::Tag;
use super::line::Connection;
use super::script::Call;

/// How long replicas may take to have a write: within the patience for the answer itself.
const REPLICATED_WITHIN: Duration = Duration::from_millis(1_500);
/// How long megabytes may take, and may wait for their turn: less than a conversation waits for a
/// write, and enough for the largest blob on a line of 50 Mbit/s.
pub(super) const PATIENCE_LARGE: Duration = Duration::from_secs(4);
/// Pipelines that are under way at once on a cluster: enough to hide the round trips.
const AT_ONCE: usize = 32;

impl Redis {
    /// Asks one thing of one tag.
    pub(super) async fn ask<T: FromRedisValue>(
        &self,
        tag: Tag,
        command: Cmd,
    ) -> Result<T, StoreError> {
        answered(&self.reads, tag, command).await
    }

    /// Asks all of these at once. The answers are in their order, and not of one moment.
    pub(super) async fn each(&self, asked: Vec<(Tag, Cmd)>) -> Result<Vec<Value>, StoreError> {
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let count = asked.len();
        let mut pipelines: BTreeMap<Option<Tag>, (Tag, Pipeline, Vec<usize>)> = BTreeMap::new();
        for (place, (tag, command)) in asked.into_iter().enumerate() {
            // One server answers all tags in one pipeline.
            let node = self.cluster.then_some(tag);
            let new = || (tag, Pipeline::new(), Vec::new());
            let (_, commands, places) = pipelines.entry(node).or_insert_with(new);
            commands.add_command(command);
            places.push(place);
        }
        let sent =
            stream::iter(pipelines.into_values()).map(|(tag, commands, places)| async move {
                let answers = self.reads.send(tag, &commands).await.map_err(unavailable)?;
                Ok::<_, StoreError>(places.into_iter().zip(answers))
            });
        let answered: Vec<_> = sent.buffer_unordered(AT_ONCE).try_collect().await?;
        let mut answers = vec![Value::Nil; count];
        for (place, answer) in answered.into_iter().flatten() {
            answers[place] = answer.extract_error().map_err(unavailable)?;
        }
        Ok(answers)
    }

    /// Calls a script whose answer may be long: it does not hold up commits.
    pub(super) async fn look<T: FromRedisValue>(&self, call: Call) -> Result<T, StoreError> {
        run(&self.reads, call, None).await.and_then(|value| read("script", value))
    }

    /// Calls a script that writes what may be lost with the primary.
    pub(super) async fn call<T: FromRedisValue>(&self, call: Call) -> Result<T, StoreError> {
        run(&self.writes, call, None).await.and_then(|value| read("script", value))
    }

    /// Calls a script whose effect is to be kept as well as was promised.
    pub(super) async fn commit<T: FromRedisValue>(&self, call: Call) -> Result<T, StoreError> {
        let line = match self.durable.len() {
            0 => &self.writes,
            lines => &self.durable[self.turn.fetch_add(1, Ordering::Relaxed) % lines],
        };
        run(line, call, self.replicas).await.and_then(|value| read("script", value))
    }
}

impl Redis {
    /// Calls a script that is given megabytes, on the line for those; its effect is to be kept as
    /// well as was promised.
    pub(super) async fn carry<T: FromRedisValue>(&self, call: Call) -> Result<T, StoreError> {
        let _place = self.place_to_carry().await?;
        run(&self.large, call, self.replicas).await.and_then(|value| read("script", value))
    }

    /// Asks one thing whose answer is megabytes, on the same line.
    pub(super) async fn fetch<T: FromRedisValue>(
        &self,
        tag: Tag,
        command: Cmd,
    ) -> Result<T, StoreError> {
        let _place = self.place_to_carry().await?;
        answered(&self.large, tag, command).await
    }

    async fn place_to_carry(&self) -> Result<SemaphorePermit<'_>, StoreError> {
        match timeout(PATIENCE_LARGE, self.carrying.acquire()).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => Err(refused("too many megabytes are under way".to_owned())),
        }
    }
}

/// Asks one thing.
async fn answered<T: FromRedisValue>(
    line: &Connection,
    tag: Tag,
    command: Cmd,
) -> Result<T, StoreError> {
    let answers = line.send(tag, &kept(command, None)).await.map_err(unavailable)?;
    read("answer", answers.into_iter().next().unwrap_or(Value::Nil))
}

/// Calls a script by its hash; where the server does not know it, by its text.
async fn run(line: &Connection, call: Call, replicas: Option<usize>) -> Result<Value, StoreError> {
    let (script, tag, known) = call.by_hash();
    let known = kept(known, replicas);
    let mut answers = line.send(tag, &known).await.map_err(unavailable)?;
    if answers.first().is_some_and(is_unknown)
        && let Some(call) = known.cmd_iter().next()
    {
        let whole = kept(script.by_text(call), replicas);
        answers = line.send(tag, &whole).await.map_err(unavailable)?;
    }
    let mut answers = answers.into_iter();
    let answer = answers.next().unwrap_or(Value::Nil).extract_error().map_err(unavailable)?;
    if let Some(wanted) = replicas {
        let acknowledged: usize = read("WAIT", answers.next().unwrap_or(Value::Nil))?;
        if acknowledged < wanted {
            let few = format!("{acknowledged} of {wanted} replicas acknowledged the write in time");
            return Err(refused(few));
        }
    }
    Ok(answer)
}

/// A command, and the wait for as many replicas to have what it wrote.
fn kept(command: Cmd, replicas: Option<usize>) -> Pipeline {
    let mut commands = Pipeline::with_capacity(2);
    commands.add_command(command);
    if let Some(wanted) = replicas {
        let within = u64::try_from(REPLICATED_WITHIN.as_millis()).unwrap_or(u64::MAX);
        commands.cmd("WAIT").arg(wanted).arg(within);
    }
    commands
}

fn is_unknown(answer: &Value) -> bool {
    let Value::ServerError(error) = answer else { return false };
    error.kind() == Some(ServerErrorKind::NoScript)
}

/// Reads an answer; `what` names it where it cannot be read.
pub(super) fn read<T: FromRedisValue>(what: &str, value: Value) -> Result<T, StoreError> {
    let value = value.extract_error().map_err(unavailable)?;
    redis::from_redis_value(value).map_err(|error| refused(format!("{what}: {error}")))
}

/// What a broken connection and a refusal of the server come to.
pub(super) fn unavailable(error: RedisError) -> StoreError {
    refused(error.to_string())
}

/// The store cannot do it; counted.
pub(super) fn refused(why: String) -> StoreError {
    metrics::counter!("abide_store_errors_total").increment(1);
    StoreError::Unavailable(why)
}
