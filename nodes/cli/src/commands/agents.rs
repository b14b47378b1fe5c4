//! `agents`: definitions of a directory, and those that the nodes have.

use std::collections::BTreeSet;
use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};

use super::revisions;
use crate::command::{AgentsCommand, ApplyCommand};
use crate::error::CliError;
use crate::host::{AgentFile, Host};
use crate::http::{Port, Request};
use crate::printer::{Tone, cell};
use crate::session::Session;

pub(super) async fn run(
    session: &Session,
    given: &AgentsCommand,
    host: Host,
) -> Result<(), CliError> {
    match given {
        AgentsCommand::Ls => list(session).await,
        AgentsCommand::Get(given) => {
            let definition = match &given.revision {
                Some(revision) => revisions::get(session, &given.agent, revision).await?,
                None => get(session, &given.agent).await?,
            };
            session.printer.json(&definition)
        }
        AgentsCommand::Revisions(agent) => revisions::list(session, &agent.agent).await,
        AgentsCommand::Diff(given) => revisions::diff(session, given).await,
        AgentsCommand::Rollback(given) => revisions::roll_back(session, given).await,
        AgentsCommand::Rollout(given) => revisions::roll_out(session, given).await,
        AgentsCommand::Apply(given) => apply_all(session, given, host).await,
        AgentsCommand::Validate(given) => validate(session, &given.files, host),
        AgentsCommand::Rm(agent) => {
            session.confirm(&format!("Delete the agent {}?", agent.agent))?;
            remove(session, &agent.agent).await
        }
    }
}

async fn list(session: &Session) -> Result<(), CliError> {
    let page = session.http.send(&Request::get(Port::Public, &["v1", "agents"])).await?;
    let columns = ["AGENT", "REVISION", "DESCRIPTION"];
    session.printer.list(&page, "agents", &columns, |agent| {
        ["name", "revision", "description"].map(|name| cell(&agent[name])).into()
    })
}

async fn get(session: &Session, name: &str) -> Result<Value, CliError> {
    session.http.send(&Request::get(Port::Public, &["v1", "agents", name])).await
}

async fn remove(session: &Session, name: &str) -> Result<(), CliError> {
    let path = ["v1", "agents", name];
    session.http.send(&Request::change(Method::DELETE, Port::Public, &path)).await.map(|_| ())
}

fn validate(session: &Session, files: &Path, host: Host) -> Result<(), CliError> {
    let loaded = load(files, host)?;
    let agents: Vec<Value> =
        loaded.iter().map(|file| json!({"name": file.name, "warnings": file.warnings})).collect();
    let columns = ["AGENT", "WARNINGS"];
    session.printer.list(&json!({"agents": agents}), "agents", &columns, |agent| {
        let warnings = agent["warnings"].as_array().into_iter().flatten();
        let warnings: Vec<String> = warnings.map(cell).collect();
        vec![cell(&agent["name"]), warnings.join("; ")]
    })
}

fn load(files: &Path, host: Host) -> Result<Vec<AgentFile>, CliError> {
    (host.load_agents)(files).map_err(|mistakes| CliError::Usage(mistakes.join("\n")))
}

async fn apply_all(session: &Session, given: &ApplyCommand, host: Host) -> Result<(), CliError> {
    let loaded = load(&given.files.files, host)?;
    let mut changes: Vec<Value> = Vec::new();
    for file in &loaded {
        let change = apply(session, file, given.dry_run).await?;
        changes.push(change);
    }
    if given.prune {
        let names: BTreeSet<&str> = loaded.iter().map(|file| file.name.as_str()).collect();
        changes.extend(prune(session, &names, given.dry_run).await?);
    }
    let printer = &session.printer;
    if !printer.is_for_people() {
        return printer.list(&json!({"agents": changes}), "agents", &[], |_| Vec::new());
    }
    changes.iter().try_for_each(|change| print_change(session, change))
}

/// Prints what became of one agent.
pub(super) fn print_change(session: &Session, change: &Value) -> Result<(), CliError> {
    let tone = match change["change"].as_str() {
        Some("created" | "changed") => Tone::Good,
        Some("deleted") => Tone::Bad,
        _ => Tone::Dim,
    };
    let [name, what] = ["name", "change"].map(|it| cell(&change[it]));
    let revision = change["revision"].as_str().map(|it| format!(" {it}")).unwrap_or_default();
    let fields = change["fields"].as_array().into_iter().flatten().map(cell);
    let fields: Vec<String> = fields.collect();
    let fields =
        if fields.is_empty() { String::new() } else { format!(" ({})", fields.join(", ")) };
    session.printer.toned_line(&format!("{what:<9} {name}{revision}{fields}"), tone)?;
    for warning in change["warnings"].as_array().into_iter().flatten() {
        session.printer.note(&format!("          warning: {}", cell(warning)));
    }
    Ok(())
}

/// Defines an agent unless the nodes have this very definition. Says what was done, or would be.
pub(super) async fn apply(
    session: &Session,
    file: &AgentFile,
    is_dry: bool,
) -> Result<Value, CliError> {
    let present = match get(session, &file.name).await {
        Ok(definition) => Some(definition),
        Err(CliError::Refused(problem)) if problem.status == 404 => None,
        Err(error) => return Err(error),
    };
    let change = match &present {
        Some(present) if *present == file.source => "unchanged",
        Some(_) => "changed",
        None => "created",
    };
    let fields = present.as_ref().map(|present| fields_that_differ(present, &file.source));
    let fields = fields.unwrap_or_default();
    if is_dry || change == "unchanged" {
        return Ok(json!({"name": file.name, "change": change, "fields": fields}));
    }
    let path = ["v1", "agents", file.name.as_str()];
    let request = Request::change(Method::PUT, Port::Public, &path);
    let mut defined = session.http.send(&request.with_body(file.source.clone())).await?;
    defined["change"] = json!(change);
    defined["fields"] = json!(fields);
    Ok(defined)
}

/// The top-level keys in which two definitions differ.
fn fields_that_differ(one: &Value, other: &Value) -> Vec<String> {
    let keys = [one, other].map(|it| it.as_object());
    let keys: BTreeSet<&String> =
        keys.into_iter().flatten().flat_map(|object| object.keys()).collect();
    let differs = |key: &&&String| one.get(key.as_str()) != other.get(key.as_str());
    keys.iter().filter(differs).map(|key| key.to_string()).collect()
}

/// Deletes the agents that have no file.
async fn prune(
    session: &Session,
    names: &BTreeSet<&str>,
    is_dry: bool,
) -> Result<Vec<Value>, CliError> {
    let page = session.http.send(&Request::get(Port::Public, &["v1", "agents"])).await?;
    let present = page["agents"].as_array().into_iter().flatten();
    let present = present.filter_map(|agent| agent["name"].as_str());
    let gone: Vec<&str> = present.filter(|name| !names.contains(name)).collect();
    if gone.is_empty() {
        return Ok(Vec::new());
    }
    if !is_dry {
        session.confirm(&format!("Delete the agents {}?", gone.join(", ")))?;
    }
    let mut changes = Vec::new();
    for name in gone {
        if !is_dry {
            remove(session, name).await?;
        }
        changes.push(json!({"name": name, "change": "deleted"}));
    }
    Ok(changes)
}
