//! `login`, `whoami`, `context`: where the nodes are, and who asks them.

use std::io::{self, IsTerminal};

use inquire::{Password, PasswordDisplayMode};
use serde_json::{Value, json};

use crate::command::setup::{ContextCommand, LoginCommand};
use crate::context::{self, Context, Contexts};
use crate::error::CliError;
use crate::given;
use crate::http::{Http, Nodes, Port, Request};
use crate::options::Options;
use crate::printer::{Printer, cell};
use crate::session::Session;

/// Stores a context once a node has accepted its credential.
pub(super) async fn login(given: &LoginCommand, mut options: Options) -> Result<(), CliError> {
    context::check_name(&given.name)?;
    let path = context::path()?;
    let mut contexts = Contexts::read(&path)?;
    let stored = contexts.contexts.get(&given.name).cloned().unwrap_or_default();
    if options.url.is_empty() {
        options.url = stored.url;
    }
    if options.url.is_empty() {
        options.url = vec!["http://127.0.0.1:8080".to_owned()];
    }
    if options.admin_url.is_empty() {
        options.admin_url = stored.admin_url;
    }
    if options.token.is_none() {
        options.token = Some(ask_for_token()?).filter(|token| !token.is_empty());
    }
    let http = Http::new(Nodes::new(&options, None)?, options.verbose)?;
    let me = http.send(&Request::get(Port::Public, &["v1", "me"])).await?;
    let Options { url, admin_url, token, .. } = options.clone();
    contexts.contexts.insert(given.name.clone(), Context { url, admin_url, token });
    contexts.current = Some(given.name.clone());
    contexts.write(&path)?;
    let printer = Printer::new(&options);
    printer.answer(&me, || format!("{}: {}", given.name, describe(&me)))
}

fn ask_for_token() -> Result<String, CliError> {
    if !io::stdin().is_terminal() {
        return Ok(given::text("-", "the token")?.trim().to_owned());
    }
    let prompt = Password::new("Token (empty if the nodes ask for none)")
        .with_display_mode(PasswordDisplayMode::Hidden)
        .without_confirmation();
    let token = prompt.prompt().map_err(|error| CliError::Failed(error.to_string()))?;
    Ok(token.trim().to_owned())
}

pub(super) async fn whoami(session: &Session) -> Result<(), CliError> {
    let me = session.http.send(&Request::get(Port::Public, &["v1", "me"])).await?;
    session.printer.answer(&me, || describe(&me))
}

fn describe(me: &Value) -> String {
    let roles = me["roles"].as_array().into_iter().flatten();
    let roles: Vec<String> = roles.map(cell).collect();
    let tenant = me["tenant"].as_str().map(|tenant| format!(" of {tenant}")).unwrap_or_default();
    let roles = if roles.is_empty() { String::new() } else { format!(" ({})", roles.join(", ")) };
    format!("{}{tenant}{roles}, by {}", cell(&me["subject"]), cell(&me["auth"]))
}

pub(super) fn run(given: &ContextCommand, options: &Options) -> Result<(), CliError> {
    let path = context::path()?;
    let mut contexts = Contexts::read(&path)?;
    let missing = |name: &str| CliError::NotFound(format!("there is no context {name:?}"));
    match given {
        ContextCommand::Ls => return list(&contexts, options),
        ContextCommand::Use(given) => {
            if !contexts.contexts.contains_key(&given.name) {
                return Err(missing(&given.name));
            }
            contexts.current = Some(given.name.clone());
        }
        ContextCommand::Set(given) => {
            context::check_name(&given.name)?;
            // Refused here already: whoever uses the context later would not know why.
            Nodes::new(options, None)?;
            let stored = contexts.contexts.entry(given.name.clone()).or_default();
            set(stored, options)?;
            contexts.current.get_or_insert(given.name.clone());
        }
        ContextCommand::Rm(given) => {
            contexts.contexts.remove(&given.name).ok_or_else(|| missing(&given.name))?;
            contexts.current = contexts.current.filter(|current| *current != given.name);
        }
    }
    contexts.write(&path)
}

/// Changes what the options say. A credential stays with the addresses that it was given for.
fn set(stored: &mut Context, options: &Options) -> Result<(), CliError> {
    if !options.url.is_empty() && options.url != stored.url {
        stored.url.clone_from(&options.url);
        stored.token = None;
    }
    if !options.admin_url.is_empty() && options.admin_url != stored.admin_url {
        stored.admin_url.clone_from(&options.admin_url);
        stored.token = None;
    }
    if let Some(token) = &options.token {
        stored.token = Some(token.clone()).filter(|token| !token.is_empty());
    }
    if stored.url.is_empty() {
        return Err(CliError::Usage("--url: a new context needs one".to_owned()));
    }
    Ok(())
}

fn list(contexts: &Contexts, options: &Options) -> Result<(), CliError> {
    let row = |(name, context): (&String, &Context)| {
        json!({
            "name": name,
            "current": contexts.current.as_ref() == Some(name),
            "url": context.url,
            "admin_url": context.admin_url,
            "has_token": context.token.is_some(),
        })
    };
    let rows: Vec<Value> = contexts.contexts.iter().map(row).collect();
    let columns = ["", "CONTEXT", "URL", "TOKEN"];
    let printer = Printer::new(options);
    printer.list(&json!({"contexts": rows}), "contexts", &columns, |row| {
        let mark = |name: &str, yes: &str| if row[name] == true { yes } else { "" }.to_owned();
        let urls = row["url"].as_array().into_iter().flatten();
        let urls: Vec<String> = urls.map(cell).collect();
        vec![mark("current", "*"), cell(&row["name"]), urls.join(","), mark("has_token", "yes")]
    })
}
