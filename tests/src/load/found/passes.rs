//! What goes through many conversations: the sweep of a retention, a rebuild of the index, an
//! erasure; and messages beside them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::json;
use tokio::task::JoinHandle;

use super::super::client::Client;
use super::super::report::quantile_ms;
use super::super::{LoadError, load_error};
use super::work::{Probe, Work};
use super::{AGENTS, BRIEF, INDEXED, POLL_INTERVAL, Rows, definition, read, requests};

/// How long a pass may take.
const TIMEOUT: Duration = Duration::from_secs(3_600);
/// How long a node at rest is watched: longer than its sweeps are apart.
const REST_TIME: Duration = Duration::from_secs(30);
/// Between two messages beside a pass, and how many conversations get them in turn.
const MESSAGE_INTERVAL: Duration = Duration::from_millis(50);
const OTHERS: usize = 50;

/// Measures each of them.
pub(super) async fn measure(
    probe: &Probe<'_>,
    count: u32,
    rows: &mut Rows,
) -> Result<(), LoadError> {
    let mut client = Client::new(probe.node.public);
    let mut operator = Client::new(probe.node.admin);
    let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));

    let before = probe.reading().await?;
    tokio::time::sleep(REST_TIME).await;
    let work = probe.since(before).await?;
    row("node at rest, a second", work.of_each(u32::try_from(REST_TIME.as_secs()).unwrap_or(1)));
    row(
        "retention of an agent with ten that are due",
        sweep(probe, &mut client).await?.to_string(),
    );

    row("messages alone, p50 / p99", Messages::start(probe).stop_after(REST_TIME / 3).await?);
    let begun = probe.reading().await?;
    for name in AGENTS {
        let index = [INDEXED.as_slice(), &["ticket"]].concat();
        client.define(name, definition(name, &index, "3650d")).await?;
    }
    row("two agents name another key of the index", probe.since(begun).await?.to_string());
    let (begun, beside) = (probe.reading().await?, Messages::start(probe));
    operator.send(Method::POST, "/admin/indexes/rebuild", json!({})).await?;
    wait_for_rebuild(&mut operator).await?;
    let work = probe.since(begun).await?;
    row("rebuild of the index, of each conversation", work.of_each(count));
    row("— messages beside it, p50 / p99", beside.stop().await?);
    let ticket = "/v1/conversations?metadata.ticket=ticket-5&limit=10";
    let found = read(&mut client, ticket).await?["conversations"].as_array().map(Vec::len);
    if found != Some(1) {
        return Err(LoadError(format!("{ticket}: {found:?} instead of one")));
    }
    row("list by that key", requests::least(probe, &mut client, ticket).await?.to_string());

    let (begun, beside) = (probe.reading().await?, Messages::start(probe));
    erase(&mut client).await?;
    let work = probe.since(begun).await?;
    row("erasure of an owner with ten", work.to_string());
    row("— of each conversation of the tenant", work.of_each(count));
    row("— messages beside it, p50 / p99", beside.stop().await?);
    Ok(())
}

/// Has an agent keep its conversations for a day, and waits until they are gone.
async fn sweep(probe: &Probe<'_>, client: &mut Client) -> Result<Work, LoadError> {
    let begun = probe.reading().await?;
    client.define(BRIEF, definition(BRIEF, &[], "1d")).await?;
    let path = format!("/v1/conversations?agent={BRIEF}&limit=1");
    until(async || {
        let page = read(client, &path).await?;
        Ok(page["conversations"].as_array().is_some_and(Vec::is_empty))
    })
    .await?;
    probe.since(begun).await
}

/// Waits until the index of lists is whole.
pub(super) async fn wait_for_rebuild(operator: &mut Client) -> Result<(), LoadError> {
    until(async || {
        let answer = read(operator, "/admin/indexes").await?;
        Ok(answer["rebuild"]["state"] == "done")
    })
    .await
}

/// Erases an owner, and waits until that is done.
async fn erase(client: &mut Client) -> Result<(), LoadError> {
    let path = "/v1/erasures";
    let (status, begun) = client.ask(Method::POST, path, Some(json!({"owner": "owner-7"}))).await?;
    let id = begun["id"].as_str();
    let id = id.ok_or_else(|| LoadError(format!("{path}: {status} {begun}")))?;
    let path = format!("{path}/{id}");
    until(async || {
        let erasure = read(client, &path).await?;
        Ok(erasure["state"] == "done" && erasure["conversations"] == 10)
    })
    .await
}

/// Waits until this is so.
async fn until(mut is_so: impl AsyncFnMut() -> Result<bool, LoadError>) -> Result<(), LoadError> {
    let begun = Instant::now();
    while !is_so().await? {
        if begun.elapsed() > TIMEOUT {
            return Err(LoadError(format!("a pass took longer than {TIMEOUT:?}")));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Messages to other conversations, one after the other, until they are stopped.
struct Messages {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<Result<Vec<Duration>, LoadError>>,
}

impl Messages {
    fn start(probe: &Probe<'_>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut client, stopped) = (Client::new(probe.node.public), stop.clone());
        let sender = tokio::spawn(async move {
            let mut took = Vec::new();
            for other in (0..OTHERS).cycle().take_while(|_| !stopped.load(Ordering::Relaxed)) {
                let path = format!("/v1/conversations/other-{other}/messages");
                let message = json!({"agent": AGENTS[0], "text": "go", "if_busy": "queue"});
                let begun = Instant::now();
                client.send(Method::POST, &path, message).await?;
                took.push(begun.elapsed());
                tokio::time::sleep(MESSAGE_INTERVAL).await;
            }
            Ok(took)
        });
        Self { stop, sender }
    }

    async fn stop_after(self, time: Duration) -> Result<String, LoadError> {
        tokio::time::sleep(time).await;
        self.stop().await
    }

    /// Returns how long the messages took to be accepted.
    async fn stop(self) -> Result<String, LoadError> {
        self.stop.store(true, Ordering::Relaxed);
        let took = self.sender.await.map_err(|error| load_error("the messages", error))?;
        let mut took = took?;
        took.sort_unstable();
        let [median, p99] = [50, 99].map(|percent| quantile_ms(&took, percent));
        Ok(format!("{median:.1} / {p99:.1} ms of {}", took.len()))
    }
}
