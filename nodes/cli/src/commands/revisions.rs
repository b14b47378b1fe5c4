//! `agents revisions`, `agents diff` and `agents rollback`.

use reqwest::Method;
use serde_json::{Value, json};

use crate::command::revisions::{DiffAgentCommand, RollbackAgentCommand};
use crate::error::CliError;
use crate::http::{Port, Request};
use crate::printer::{Tone, cell};
use crate::session::Session;

pub(super) async fn list(session: &Session, agent: &str) -> Result<(), CliError> {
    let columns = ["REVISION", "PUT", "NEWEST"];
    session.printer.list(&revisions(session, agent).await?, "revisions", &columns, |row| {
        let newest = if row["newest"] == true { "newest" } else { "" };
        vec![cell(&row["revision"]), cell(&row["put_at"]), newest.to_owned()]
    })
}

async fn revisions(session: &Session, agent: &str) -> Result<Value, CliError> {
    session.http.send(&Request::get(Port::Public, &["v1", "agents", agent, "revisions"])).await
}

/// One revision of a definition.
pub(super) async fn get(session: &Session, agent: &str, revision: &str) -> Result<Value, CliError> {
    let path = ["v1", "agents", agent, "revisions", revision];
    session.http.send(&Request::get(Port::Public, &path)).await
}

pub(super) async fn diff(session: &Session, given: &DiffAgentCommand) -> Result<(), CliError> {
    let DiffAgentCommand { agent, from, to } = given;
    let to = match to {
        Some(to) => to.clone(),
        None => newest(session, agent).await?,
    };
    let path = ["v1", "agents", agent, "revisions", from, "diff", &to];
    let found = session.http.send(&Request::get(Port::Public, &path)).await?;
    let printer = &session.printer;
    if !printer.is_for_people() {
        return printer.list(&found, "changes", &[], |_| Vec::new());
    }
    for change in found["changes"].as_array().into_iter().flatten() {
        let path: Vec<String> = change["path"].as_array().into_iter().flatten().map(cell).collect();
        printer.line(&format!("{} {}", path.join("."), cell(&change["change"])))?;
        for (member, sign, tone) in [("from", '-', Tone::Bad), ("to", '+', Tone::Good)] {
            for line in change.get(member).map(text).iter().flat_map(|text| text.lines()) {
                printer.toned_line(&format!("  {sign} {line}"), tone)?;
            }
        }
    }
    Ok(())
}

/// A value as people read it: texts as they are, all else as JSON.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| format!("{value:#}"), str::to_owned)
}

async fn newest(session: &Session, agent: &str) -> Result<String, CliError> {
    let list = revisions(session, agent).await?;
    let newest = list["revisions"].as_array().into_iter().flatten();
    let mut newest = newest.filter(|row| row["newest"] == true);
    let newest = newest.next().and_then(|row| row["revision"].as_str());
    newest.map(str::to_owned).ok_or_else(|| {
        CliError::Usage(format!("the agent {agent} was deleted: name the other revision, too"))
    })
}

pub(super) async fn roll_back(
    session: &Session,
    given: &RollbackAgentCommand,
) -> Result<(), CliError> {
    let RollbackAgentCommand { agent, revision } = given;
    let path = ["v1", "agents", agent, "rollback"];
    let request = Request::change(Method::POST, Port::Public, &path);
    let mut defined = session.http.send(&request.with_body(json!({"revision": revision}))).await?;
    if !session.printer.is_for_people() {
        return session.printer.json(&defined);
    }
    defined["change"] = json!("back at");
    super::agents::print_change(session, &defined)
}
