//! Executes on Redis: one command, many commands at once, or a script.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::journal::StoreError;
use futures::{StreamExt, TryStreamExt, stream};
use redis::{Cmd, FromRedisValue, Pipeline, ServerErrorKind, Value};
use tokio::sync::SemaphorePermit;
use tokio::time::timeout;

use super::Redis;
use super::connection::Connection;
use super::error::{refused, unavailable};
use super::keys::Tag;
use super::script::ScriptCall;

/// How long replicas may take to acknowledge a write; shorter than the timeout of the answer
/// itself.
const REPLICATION_TIMEOUT: Duration = Duration::from_millis(1_500);
/// How long a transfer of megabytes may take, and how long it may wait for its turn: less than a
/// conversation waits for a write, and enough for the largest blob at 50 Mbit/s.
pub(super) const LARGE_TIMEOUT: Duration = Duration::from_secs(4);
/// Pipelines in flight at once on a cluster: enough to hide the round trips.
const MAX_CONCURRENT_PIPELINES: usize = 32;

impl Redis {
    /// Reads by one command of one tag.
    pub(super) async fn query<T: FromRedisValue>(
        &self,
        tag: Tag,
        command: Cmd,
    ) -> Result<T, StoreError> {
        query_on(&self.reads, tag, command).await
    }

    /// Reads by all of these commands at once. The answers are in their order, but not from one
    /// moment.
    pub(super) async fn query_all(
        &self,
        queries: Vec<(Tag, Cmd)>,
    ) -> Result<Vec<Value>, StoreError> {
        if queries.is_empty() {
            return Ok(Vec::new());
        }
        let count = queries.len();
        let mut pipelines: BTreeMap<Option<Tag>, (Tag, Pipeline, Vec<usize>)> = BTreeMap::new();
        for (position, (tag, command)) in queries.into_iter().enumerate() {
            // Without a cluster, one server answers all tags in one pipeline.
            let node = self.cluster.then_some(tag);
            let new = || (tag, Pipeline::new(), Vec::new());
            let (_, commands, positions) = pipelines.entry(node).or_insert_with(new);
            commands.add_command(command);
            positions.push(position);
        }
        let sent =
            stream::iter(pipelines.into_values()).map(|(tag, commands, positions)| async move {
                let answers = self.reads.send(tag, &commands).await.map_err(unavailable)?;
                Ok::<_, StoreError>(positions.into_iter().zip(answers))
            });
        let batches: Vec<_> = sent.buffer_unordered(MAX_CONCURRENT_PIPELINES).try_collect().await?;
        let mut answers = vec![Value::Nil; count];
        for (position, answer) in batches.into_iter().flatten() {
            answers[position] = answer.extract_error().map_err(unavailable)?;
        }
        Ok(answers)
    }

    /// Calls a script whose answer may be long, on the connection that no commit waits for.
    pub(super) async fn call_reading<T: FromRedisValue>(
        &self,
        call: ScriptCall,
    ) -> Result<T, StoreError> {
        run(&self.reads, call, None).await.and_then(|value| read("script", value))
    }

    /// Calls a script that reads a page of a journal, on the connection for those.
    pub(super) async fn call_paging<T: FromRedisValue>(
        &self,
        call: ScriptCall,
    ) -> Result<T, StoreError> {
        // The semaphore is never closed.
        let _permit = self.page_transfers.acquire().await;
        run(&self.pages, call, None).await.and_then(|value| read("script", value))
    }

    /// Calls a script whose effect may be lost with the primary.
    pub(super) async fn call<T: FromRedisValue>(&self, call: ScriptCall) -> Result<T, StoreError> {
        run(&self.writes, call, None).await.and_then(|value| read("script", value))
    }

    /// Calls a script whose effect is kept with the store's durability.
    pub(super) async fn call_durably<T: FromRedisValue>(
        &self,
        call: ScriptCall,
    ) -> Result<T, StoreError> {
        let connection = match self.durable.len() {
            0 => &self.writes,
            count => &self.durable[self.next_durable.fetch_add(1, Ordering::Relaxed) % count],
        };
        run(connection, call, self.replicas).await.and_then(|value| read("script", value))
    }
}

impl Redis {
    /// Calls a script with megabytes of arguments, on the connection for those; its effect is kept
    /// with the store's durability.
    pub(super) async fn call_large<T: FromRedisValue>(
        &self,
        call: ScriptCall,
    ) -> Result<T, StoreError> {
        let _permit = self.large_permit().await?;
        run(&self.large, call, self.replicas).await.and_then(|value| read("script", value))
    }

    /// Reads by one command whose answer is megabytes, on the same connection.
    pub(super) async fn query_large<T: FromRedisValue>(
        &self,
        tag: Tag,
        command: Cmd,
    ) -> Result<T, StoreError> {
        let _permit = self.large_permit().await?;
        query_on(&self.large, tag, command).await
    }

    async fn large_permit(&self) -> Result<SemaphorePermit<'_>, StoreError> {
        match timeout(LARGE_TIMEOUT, self.large_transfers.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => {
                Err(refused("too many large transfers are in flight".to_owned()))
            }
        }
    }
}

async fn query_on<T: FromRedisValue>(
    connection: &Connection,
    tag: Tag,
    command: Cmd,
) -> Result<T, StoreError> {
    let answers = connection.send(tag, &with_wait(command, None)).await.map_err(unavailable)?;
    read("answer", answers.into_iter().next().unwrap_or(Value::Nil))
}

/// Calls a script by its hash, and if the server does not know it, by its text.
async fn run(
    connection: &Connection,
    call: ScriptCall,
    replicas: Option<usize>,
) -> Result<Value, StoreError> {
    let (script, tag, by_hash) = call.into_parts();
    let by_hash = with_wait(by_hash, replicas);
    let mut answers = connection.send(tag, &by_hash).await.map_err(unavailable)?;
    if answers.first().is_some_and(is_unknown_script)
        && let Some(call) = by_hash.cmd_iter().next()
    {
        let by_text = with_wait(script.by_text(call), replicas);
        answers = connection.send(tag, &by_text).await.map_err(unavailable)?;
    }
    let mut answers = answers.into_iter();
    let answer = answers.next().unwrap_or(Value::Nil).extract_error().map_err(unavailable)?;
    if let Some(wanted) = replicas {
        let acknowledged: usize = read("WAIT", answers.next().unwrap_or(Value::Nil))?;
        if acknowledged < wanted {
            let reason =
                format!("{acknowledged} of {wanted} replicas acknowledged the write in time");
            return Err(refused(reason));
        }
    }
    Ok(answer)
}

/// A command, and the wait for replicas to acknowledge what it wrote.
fn with_wait(command: Cmd, replicas: Option<usize>) -> Pipeline {
    let mut commands = Pipeline::with_capacity(2);
    commands.add_command(command);
    if let Some(wanted) = replicas {
        let timeout_ms = u64::try_from(REPLICATION_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
        commands.cmd("WAIT").arg(wanted).arg(timeout_ms);
    }
    commands
}

fn is_unknown_script(answer: &Value) -> bool {
    let Value::ServerError(error) = answer else { return false };
    error.kind() == Some(ServerErrorKind::NoScript)
}

/// Decodes an answer; `what` names it in the error.
pub(super) fn read<T: FromRedisValue>(what: &str, value: Value) -> Result<T, StoreError> {
    let value = value.extract_error().map_err(unavailable)?;
    redis::from_redis_value(value).map_err(|error| refused(format!("{what}: {error}")))
}
