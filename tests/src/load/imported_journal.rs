//! An import of a journal of many megabytes: how long it takes, the memory that it takes, and how much it
//! delays others; and one that is too large.

use std::path::Path;
use std::time::{Duration, Instant};

use abide_conversation::{Event, State, replay};
use futures::stream;
use serde_json::{Value, json};

use super::client::Client;
use super::long_journal::{self, AGENT, LONG, OtherMessages, Stored};
use super::node::{Node, Start};
use super::report::{Report, spread};
use super::{Load, LoadError, load_error};

const PASSIVATE_AFTER: &str = "30s";
/// How long the others are measured alone.
const QUIET: Duration = Duration::from_secs(3);
/// How long an import may take.
const TIMEOUT: Duration = Duration::from_secs(1_800);

/// Imports a journal of `megabytes`, and one that is longer than a body may be.
pub(super) async fn run(load: &Load, megabytes: u32, dir: &Path) -> Result<Report, LoadError> {
    let stored = Stored::start(load, dir).await?;
    let start =
        Start { store: &stored.url, passivate: PASSIVATE_AFTER, dir, name: "load", otlp: None };
    let node = Node::start_as(load, &start).await?;
    let mut client = Client::new(node.public);
    let words = json!({"provider": "scripted", "script": [{"text": "Done."}]});
    client.define(AGENT, json!({"name": AGENT, "model": words, "tools": []})).await?;
    let workers = OtherMessages::start(&node);
    tokio::time::sleep(QUIET).await;
    let quiet = workers.stop().await?;
    let store = if load.nodes.is_some() { "Redis" } else { "embedded" };
    let mut rows = vec![
        ("store", store.to_owned()),
        ("message to another, alone, p50 / p99 / longest", spread(&quiet)),
    ];
    let before = node.peak_kb()?;
    let workers = OtherMessages::start(&node);
    let begun = Instant::now();
    let (status, answer) = import(&node, megabytes, u32::MAX).await?;
    let took = begun.elapsed();
    let meanwhile = workers.stop().await?;
    if status != 201 {
        return Err(LoadError(format!("the import: {status} {answer}")));
    }
    rows.extend([
        ("imported", format!("{megabytes} MB in {:.1} s", took.as_secs_f64())),
        ("the node's peak memory before / after", peaks(before, &node)?),
        ("message to another, meanwhile, p50 / p99 / longest", spread(&meanwhile)),
    ]);
    let before = node.peak_kb()?;
    let workers = OtherMessages::start(&node);
    let begun = Instant::now();
    let (status, answer) = import(&node, 2_000, 2_000).await?;
    let took = begun.elapsed();
    let meanwhile = workers.stop().await?;
    let refused = format!("{status} {} after {:.1} s", answer["detail"], took.as_secs_f64());
    rows.extend([
        ("one of 2,000 MB", refused),
        ("the node's peak memory before / after it", peaks(before, &node)?),
        ("message to another, meanwhile, p50 / p99 / longest", spread(&meanwhile)),
        ("what it left aside", left(&stored).await?),
    ]);
    node.stop().await?;
    Ok(Report::of_rows(rows))
}

fn peaks(before_kb: u64, node: &Node) -> Result<String, LoadError> {
    Ok(format!("{} / {} MB", before_kb >> 10, node.peak_kb()? >> 10))
}

/// Imports a conversation of this many turns of a megabyte. Returns the answer.
async fn import(node: &Node, turns: u32, number: u32) -> Result<(u16, Value), LoadError> {
    let last_seq = 1 + 4 * u64::from(turns);
    let id = format!("{LONG}-{number}");
    let head = json!({"abide": "conversation", "format": 1, "tenant": "default", "id": id,
        "agent": AGENT, "last_seq": last_seq});
    let end = json!({"abide": "end", "last_seq": last_seq});
    let lines = stream::iter((0..turns + 2).scan(State::default(), move |state, number| {
        let line = match number {
            0 => Ok(format!("{head}\n")),
            _ if number == turns + 1 => Ok(format!("{end}\n")),
            number => lines_of(state, number - 1),
        };
        Some(line.map_err(|LoadError(why)| std::io::Error::other(why)))
    }));
    let url = format!("http://{}/v1/conversations/import?keep_id=true", node.public);
    let request = reqwest::Client::new().post(url).timeout(TIMEOUT);
    let request = request.header("Content-Type", "application/x-ndjson");
    let answer = request.body(reqwest::Body::wrap_stream(lines)).send().await;
    let answer = answer.map_err(|error| load_error("the import", error))?;
    let status = answer.status().as_u16();
    let document = answer.json().await.map_err(|error| load_error("the import", error))?;
    Ok((status, document))
}

/// The lines of the next turn.
fn lines_of(state: &mut State, number: u32) -> Result<String, LoadError> {
    let events: Vec<Event> = long_journal::turn(state.seq.get(), number)?;
    *state = replay(std::mem::take(state), &events);
    let mut lines = String::new();
    for event in events {
        let line = serde_json::to_string(&event).map_err(|error| load_error("a line", error))?;
        lines.push_str(&line);
        lines.push('\n');
    }
    Ok(lines)
}

/// What imports have left aside in Redis.
async fn left(stored: &Stored) -> Result<String, LoadError> {
    let Some(redis) = &stored.redis else { return Ok("not known".to_owned()) };
    let staged = redis.keys("*staged*").await?;
    Ok(format!("{} keys", staged.len()))
}
