//! Lists that come in pages.

use serde_json::{Value, json};

use crate::error::CliError;
use crate::http::Request;
use crate::session::Session;

/// The most rows of one page.
const MAX_PAGE_ROWS: u32 = 1_000;

/// Where the next page begins, and how many rows it has.
pub(super) struct PageBounds<'a> {
    pub cursor: Option<&'a str>,
    pub rows: u32,
}

/// Reads pages until `limit` rows are there, as one page. Its cursor is that of the rest.
pub(super) async fn read(
    session: &Session,
    member: &str,
    limit: u32,
    request: impl Fn(PageBounds) -> Request,
) -> Result<Value, CliError> {
    let mut rows: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    let mut is_incomplete = false;
    loop {
        let wanted = limit.saturating_sub(rows.len() as u32).min(MAX_PAGE_ROWS);
        let bounds = PageBounds { cursor: cursor.as_deref(), rows: wanted };
        let mut page = session.http.send(&request(bounds)).await?;
        if let Value::Array(more) = page[member].take() {
            rows.extend(more);
        }
        is_incomplete |= page["incomplete"] == true;
        cursor = page["cursor"].as_str().map(str::to_owned);
        if cursor.is_none() || rows.len() as u32 >= limit {
            break;
        }
    }
    if cursor.is_some() && session.printer.is_for_people() {
        session.printer.note(&format!("There are more than {}: --limit N", rows.len()));
    }
    let mut list = json!({member: rows, "cursor": cursor});
    if is_incomplete {
        list["incomplete"] = json!(true);
        session.printer.note("An agent's index is being extended: older ones may be missing");
    }
    Ok(list)
}
