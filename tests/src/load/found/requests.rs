//! Requests that read a page: the lists of conversations, and those of operators.

use super::super::client::Client;
use super::super::node::Node;
use super::super::{LoadError, turns};
use super::work::{Probe, Work};
use super::{Rows, read};

/// How often each request is sent; the least of what it took is its own.
const REPEATS: usize = 15;
/// The rows of a page, so that a thousand conversations have a hundred pages.
const PAGE_ROWS: usize = 10;
/// How many calls wait for an approval.
const WAITING_CALLS: usize = 5;

/// A request, and how many rows of which list it must answer.
struct Request {
    name: &'static str,
    path: &'static str,
    list: &'static str,
    rows: Option<usize>,
}

const fn listed(name: &'static str, path: &'static str, rows: usize) -> Request {
    Request { name, path, list: "conversations", rows: Some(rows) }
}

/// The lists of which the hundredth page is measured, too.
const ORDERS: [(&str, &str); 4] = [
    ("by creation, latest first", "order=created"),
    ("by creation, earliest first", "order=created&dir=asc"),
    ("by activity, latest first", "order=active"),
    ("by activity, earliest first", "order=active&dir=asc"),
];

const FILTERS: [Request; 13] = [
    listed("of an agent with half of them", "agent=north", PAGE_ROWS),
    listed("of an owner with ten", "owner=owner-7", PAGE_ROWS),
    listed("of an owner and an agent", "owner=owner-7&agent=north", PAGE_ROWS / 2),
    listed("of an owner, awaiting input", "owner=owner-7&state=awaiting_input", 0),
    listed("idle", "state=idle", PAGE_ROWS),
    listed("awaiting input", "state=awaiting_input", WAITING_CALLS),
    listed("executing tools: none", "state=executing_tools", 0),
    listed("by indexed metadata, ten have it", "metadata.customer=customer-7", PAGE_ROWS),
    listed(
        "by metadata that all have, and that ten have",
        "metadata.area=one&metadata.customer=customer-7",
        PAGE_ROWS,
    ),
    listed("children of one that has none", "parent=found-1", 0),
    listed("with children", "root_only=false", PAGE_ROWS),
    listed("created after a time", "created_after=2020-01-01T00:00:00Z", PAGE_ROWS),
    listed("by creation, active before a time: none", "active_before=2020-01-01T00:00:00Z", 0),
];

const OF_OPERATORS: [Request; 4] = [
    Request { name: "live actors", path: "/admin/actors", list: "actors", rows: None },
    Request {
        name: "quarantined actors",
        path: "/admin/actors?state=quarantined",
        list: "actors",
        rows: Some(0),
    },
    Request {
        name: "alarms",
        path: "/admin/alarms?limit=10",
        list: "alarms",
        rows: Some(WAITING_CALLS),
    },
    Request { name: "the index's rebuild", path: "/admin/indexes", list: "", rows: None },
];

/// Has some calls wait for an approval.
pub(super) async fn park(node: &Node) -> Result<(), LoadError> {
    let mut client = Client::new(node.public);
    for n in 0..WAITING_CALLS {
        let id = format!("waiting-{n}");
        turns::send_message(&mut client, &id).await?;
        let mut stream = super::super::event_stream::Stream::open(&client, &id).await?;
        turns::wait_for_suspension(&mut stream).await?;
    }
    Ok(())
}

/// Measures each request.
pub(super) async fn measure(probe: &Probe<'_>, rows: &mut Rows) -> Result<(), LoadError> {
    let mut client = Client::new(probe.node.public);
    for (name, query) in ORDERS {
        let first = format!("/v1/conversations?limit={PAGE_ROWS}&{query}");
        let work = least(probe, &mut client, &first).await?;
        rows.push((format!("list {name}: first page"), work.to_string()));
        let hundredth = hundredth_page(&mut client, &first).await?;
        let work = least(probe, &mut client, &hundredth).await?;
        rows.push((format!("list {name}: hundredth page"), work.to_string()));
    }
    for request in FILTERS {
        let path = format!("/v1/conversations?limit={PAGE_ROWS}&{}", request.path);
        let work = checked(probe, &mut client, &path, &request).await?;
        rows.push((format!("list {}", request.name), work.to_string()));
    }
    for (name, path) in [
        ("inbox", "/v1/pending?limit=10"),
        ("inbox of an agent", "/v1/pending?limit=10&agent=load"),
        ("inbox of a conversation", "/v1/pending?limit=10&conversation=waiting-1"),
    ] {
        let rows_of = if name == "inbox of a conversation" { 1 } else { WAITING_CALLS };
        let request = Request { name, path, list: "pending", rows: Some(rows_of) };
        let work = checked(probe, &mut client, path, &request).await?;
        rows.push((name.to_owned(), work.to_string()));
    }
    let mut operator = Client::new(probe.node.admin);
    for request in OF_OPERATORS {
        let work = checked(probe, &mut operator, request.path, &request).await?;
        rows.push((request.name.to_owned(), work.to_string()));
    }
    Ok(())
}

/// Sends a request repeatedly, of which the answer must have the rows.
async fn checked(
    probe: &Probe<'_>,
    client: &mut Client,
    path: &str,
    request: &Request,
) -> Result<Work, LoadError> {
    let answer = read(client, path).await?;
    let found = answer[request.list].as_array().map(Vec::len);
    if request.rows.is_some_and(|wanted| found != Some(wanted)) {
        return Err(LoadError(format!("{path}: {found:?} instead of {:?} rows", request.rows)));
    }
    least(probe, client, path).await
}

/// What the request takes at the least.
pub(super) async fn least(
    probe: &Probe<'_>,
    client: &mut Client,
    path: &str,
) -> Result<Work, LoadError> {
    let mut least: Option<Work> = None;
    for _ in 0..REPEATS {
        let before = probe.reading().await?;
        read(client, path).await?;
        let work = probe.since(before).await?;
        least = Some(least.map_or(work, |least| least.least(work)));
    }
    least.ok_or_else(|| LoadError(format!("{path}: was not sent")))
}

/// The path of the hundredth page of a list, of which this is the first.
async fn hundredth_page(client: &mut Client, first: &str) -> Result<String, LoadError> {
    let mut path = first.to_owned();
    for page in 1..100 {
        let answer = read(client, &path).await?;
        let cursor = answer["cursor"].as_str();
        let cursor = cursor.ok_or_else(|| LoadError(format!("{first}: {page} pages")))?;
        path = format!("{first}&cursor={cursor}");
    }
    Ok(path)
}
