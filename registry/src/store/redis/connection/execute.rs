//! Executes on Redis: one command, many commands at once, or a script.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use abide_actors::journal::StoreError;
use futures::{StreamExt, TryStreamExt, stream};
use redis::{Cmd, FromRedisValue, Pipeline, ServerErrorKind, Value};
use tokio::sync::SemaphorePermit;
use tokio::time::timeout;

use super::super::Redis;
use super::super::command::error::{refused, unavailable};
use super::super::command::keys::Tag;
use super::super::command::script::ScriptCall;
use super::Connection;

/// How long replicas may take to acknowledge a write; shorter than the timeout of the answer
/// itself.
const REPLICATION_TIMEOUT: Duration = Duration::from_millis(1_500);
/// The script is sent as text, which every server understands, and needs no free memory.
const BARRIER: &str =
    concat!(include_str!("../lua/lib/allow_oom.lua"), include_str!("../lua/barrier.lua"));
/// How long a transfer of megabytes may take, and how long it may wait for its turn: less than a
/// conversation waits for a write, and enough for the largest blob at 50 Mbit/s.
pub(in crate::store::redis) const LARGE_TIMEOUT: Duration = Duration::from_secs(4);
/// Pipelines in flight at once on a cluster: enough to hide the round trips.
const MAX_CONCURRENT_PIPELINES: usize = 32;

/// What a read of a journal promises.
#[derive(Clone, Copy)]
pub(in crate::store::redis) enum Guarantee {
    /// What was read survives what the store's durability promises.
    Confirmed,
    /// What was read may be lost with the primary.
    Unconfirmed,
}

/// What an answer waits for before it is given.
#[derive(Clone, Copy)]
enum WaitFor {
    /// Nothing: what is answered may be lost with the primary.
    Nothing,
    /// The store's durability of what the command wrote: that this many replicas have it, or that
    /// the server answers at all.
    Write(Option<usize>),
    /// This many replicas that have all that anyone has written up to and by the command; and what it
    /// is called that they have not.
    All { replicas: usize, what: &'static str },
}

impl WaitFor {
    fn read(replicas: usize) -> Self {
        Self::All { replicas, what: "what was read" }
    }
}

impl Redis {
    /// Reads by one command of one tag. What it reads may be lost with the primary: enough for
    /// hints, and for what is confirmed before anybody is answered.
    pub(in crate::store::redis) async fn query<T: FromRedisValue>(
        &self,
        tag: Tag,
        command: Cmd,
    ) -> Result<T, StoreError> {
        query_on(&self.reads, tag, command, WaitFor::Nothing).await
    }

    /// Reads by one command of one tag what no fail-over takes back: as durable as if this store
    /// had written it.
    pub(in crate::store::redis) async fn query_confirmed<T: FromRedisValue>(
        &self,
        tag: Tag,
        command: Cmd,
    ) -> Result<T, StoreError> {
        let (connection, wait) = self.confirming();
        query_on(connection, tag, command, wait).await
    }

    /// Reads by all of these commands at once. The answers are in their order, but not from one
    /// moment.
    pub(in crate::store::redis) async fn query_all(
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

    /// Calls a script whose answer may be long, on a connection that no commit waits for. What it
    /// reads is confirmed, as by [`Self::query_confirmed`].
    pub(in crate::store::redis) async fn call_confirmed<T: FromRedisValue>(
        &self,
        call: ScriptCall,
    ) -> Result<T, StoreError> {
        let (connection, wait) = self.confirming();
        run(connection, call, wait).await.and_then(|value| read("script", value))
    }

    /// The connection for a confirmed read, and what it waits for. The wait is on the connection of
    /// the read, so that both see the same primary.
    fn confirming(&self) -> (&Connection, WaitFor) {
        match self.replicas {
            Some(replicas) => {
                (next_of(&self.confirmed, &self.next_confirmed), WaitFor::read(replicas))
            }
            None => (&self.reads, WaitFor::Nothing),
        }
    }

    fn wait_for_write(&self) -> WaitFor {
        WaitFor::Write(self.replicas)
    }

    /// Calls a script by which a node is a member, on the connection for that: a renewal that is held
    /// up stops all conversations of the node. What it answers is confirmed, as by
    /// [`Self::query_confirmed`], and so is what it wrote; it is not refused while settings of the
    /// servers contradict the durability.
    pub(in crate::store::redis) async fn call_as_member<T: FromRedisValue>(
        &self,
        call: ScriptCall,
    ) -> Result<T, StoreError> {
        let (connection, wait) = match self.replicas {
            Some(replicas) => (&self.membership, WaitFor::All { replicas, what: "the membership" }),
            None => (&self.writes, WaitFor::Nothing),
        };
        run(connection, call, wait).await.and_then(|value| read("script", value))
    }

    /// Calls a script that reads what may be lost with the primary.
    pub(in crate::store::redis) async fn call_reading<T: FromRedisValue>(
        &self,
        call: ScriptCall,
    ) -> Result<T, StoreError> {
        let answer = run(&self.reads, call, WaitFor::Nothing).await?;
        read("script", answer)
    }

    /// Calls a script that reads a page of a journal, on the connection for those.
    pub(in crate::store::redis) async fn call_paging<T: FromRedisValue>(
        &self,
        call: ScriptCall,
        guarantee: Guarantee,
    ) -> Result<T, StoreError> {
        // The semaphore is never closed.
        let _permit = self.page_transfers.acquire().await;
        let wait = match (guarantee, self.replicas) {
            (Guarantee::Confirmed, Some(replicas)) => WaitFor::read(replicas),
            (Guarantee::Confirmed, None) | (Guarantee::Unconfirmed, _) => WaitFor::Nothing,
        };
        run(&self.pages, call, wait).await.and_then(|value| read("script", value))
    }

    /// Calls a script whose effect may be lost with the primary.
    pub(in crate::store::redis) async fn call<T: FromRedisValue>(
        &self,
        call: ScriptCall,
    ) -> Result<T, StoreError> {
        let answer = run(&self.writes, call, WaitFor::Nothing).await?;
        read("script", answer)
    }

    /// Calls a script whose effect is kept with the store's durability. The script must write
    /// something whenever its answer is a promise, also as it recognises a repeat.
    pub(in crate::store::redis) async fn call_durably<T: FromRedisValue>(
        &self,
        call: ScriptCall,
    ) -> Result<T, StoreError> {
        let connection = match self.replicas {
            Some(_) => next_of(&self.durable, &self.next_durable),
            None => &self.writes,
        };
        let answer = run(connection, call, self.wait_for_write()).await?;
        read("script", answer)
    }
}

impl Redis {
    /// Calls a script with megabytes of arguments, on the connection for those; its effect is kept
    /// with the store's durability.
    pub(in crate::store::redis) async fn call_large<T: FromRedisValue>(
        &self,
        call: ScriptCall,
    ) -> Result<T, StoreError> {
        let _permit = self.large_permit().await?;
        let answer = run(&self.large, call, self.wait_for_write()).await?;
        read("script", answer)
    }

    /// Reads by one command whose answer is megabytes, on the same connection.
    pub(in crate::store::redis) async fn query_large<T: FromRedisValue>(
        &self,
        tag: Tag,
        command: Cmd,
    ) -> Result<T, StoreError> {
        let _permit = self.large_permit().await?;
        query_on(&self.large, tag, command, WaitFor::Nothing).await
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

fn next_of<'a>(connections: &'a [Connection], next: &AtomicUsize) -> &'a Connection {
    &connections[next.fetch_add(1, Ordering::Relaxed) % connections.len()]
}

async fn query_on<T: FromRedisValue>(
    connection: &Connection,
    tag: Tag,
    command: Cmd,
    wait: WaitFor,
) -> Result<T, StoreError> {
    let answers = send(connection, tag, &with_wait(tag, command, wait), wait).await?;
    read("answer", acknowledged(answers, wait)?)
}

/// Calls a script by its hash, and if the server does not know it, by its text.
async fn run(
    connection: &Connection,
    call: ScriptCall,
    wait: WaitFor,
) -> Result<Value, StoreError> {
    let (script, tag, by_hash) = call.into_parts();
    let by_hash = with_wait(tag, by_hash, wait);
    let mut answers = send(connection, tag, &by_hash, wait).await?;
    if answers.first().is_some_and(is_unknown_script)
        && let Some(call) = by_hash.cmd_iter().next()
    {
        let by_text = with_wait(tag, script.by_text(call), wait);
        answers = send(connection, tag, &by_text, wait).await?;
    }
    acknowledged(answers, wait)
}

async fn send(
    connection: &Connection,
    tag: Tag,
    commands: &Pipeline,
    wait: WaitFor,
) -> Result<Vec<Value>, StoreError> {
    let answers = match wait {
        WaitFor::Nothing | WaitFor::All { .. } => connection.send(tag, commands).await,
        WaitFor::Write(_) => connection.send_durably(tag, commands).await,
    };
    answers.map_err(unavailable)
}

/// The answer to the command of a pipeline, once enough replicas have what it rests on. Every answer
/// of the store passes here.
fn acknowledged(answers: Vec<Value>, wait: WaitFor) -> Result<Value, StoreError> {
    let mut answers = answers.into_iter();
    let answer = answers.next().unwrap_or(Value::Nil).extract_error().map_err(unavailable)?;
    let (wanted, what) = match wait {
        WaitFor::Nothing | WaitFor::Write(None) => return Ok(answer),
        WaitFor::Write(Some(wanted)) => (wanted, "the write"),
        WaitFor::All { replicas, what } => {
            read::<Value>("barrier", answers.next().unwrap_or(Value::Nil))?;
            (replicas, what)
        }
    };
    let found: usize = read("WAIT", answers.next().unwrap_or(Value::Nil))?;
    if found < wanted {
        let reason = format!("{found} of {wanted} replicas acknowledged {what} in time");
        return Err(refused(reason));
    }
    Ok(answer)
}

/// A command, and the wait for replicas to acknowledge what its answer rests on.
fn with_wait(tag: Tag, command: Cmd, wait: WaitFor) -> Pipeline {
    let mut commands = Pipeline::with_capacity(3);
    commands.add_command(command);
    let wanted = match wait {
        WaitFor::Nothing | WaitFor::Write(None) => return commands,
        WaitFor::Write(Some(wanted)) => wanted,
        WaitFor::All { replicas, .. } => {
            commands.cmd("EVAL").arg(BARRIER).arg(1).arg(tag.key("barrier"));
            replicas
        }
    };
    let timeout_ms = u64::try_from(REPLICATION_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
    commands.cmd("WAIT").arg(wanted).arg(timeout_ms);
    commands
}

fn is_unknown_script(answer: &Value) -> bool {
    let Value::ServerError(error) = answer else { return false };
    error.kind() == Some(ServerErrorKind::NoScript)
}

/// Decodes an answer; `what` names it in the error.
pub(in crate::store::redis) fn read<T: FromRedisValue>(
    what: &str,
    value: Value,
) -> Result<T, StoreError> {
    let value = value.extract_error().map_err(unavailable)?;
    redis::from_redis_value(value).map_err(|error| refused(format!("{what}: {error}")))
}
