//! `agents revisions`, `agents diff`, `agents rollback` and `agents rollout`.

use reqwest::Method;
use serde_json::{Value, json};

use crate::command::revisions::{DiffAgentCommand, RollbackAgentCommand, RolloutAgentCommand};
use crate::error::CliError;
use crate::http::{Port, Request};
use crate::printer::{Tone, cell};
use crate::session::Session;

pub(super) async fn list(session: &Session, agent: &str) -> Result<(), CliError> {
    let columns = ["REVISION", "PUT", "SHARE"];
    session.printer.list(&revisions(session, agent).await?, "revisions", &columns, |row| {
        let share = match row["rollout_percent"].as_u64() {
            Some(percent) => format!("{percent} %"),
            None if row["newest"] == true => "newest".to_owned(),
            None => String::new(),
        };
        vec![cell(&row["revision"]), cell(&row["put_at"]), share]
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

/// Begins, changes, ends or shows a rollout.
pub(super) async fn roll_out(
    session: &Session,
    given: &RolloutAgentCommand,
) -> Result<(), CliError> {
    let RolloutAgentCommand { agent, revision, percent, end } = given;
    let path = ["v1", "agents", agent, "rollout"];
    if *end {
        let request = Request::change(Method::DELETE, Port::Public, &path);
        return session.http.send(&request).await.map(drop);
    }
    let request = match (revision, percent) {
        (Some(revision), Some(percent)) => Request::change(Method::PUT, Port::Public, &path)
            .with_body(json!({"revision": revision, "percent": percent})),
        (Some(_) | None, Some(_) | None) => Request::get(Port::Public, &path),
    };
    let rollout = session.http.send(&request).await?;
    if !session.printer.is_for_people() {
        return session.printer.json(&rollout);
    }
    let [revision, percent, newest] =
        ["revision", "percent", "newest"].map(|member| cell(&rollout[member]));
    session.printer.line(&format!("{percent} % on {revision}, the others on {newest}"))
}
