//! `why`: what a conversation waits for, and the commands that help.

use serde_json::Value;

use super::pending_line;
use crate::call_address::CallAddress;
use crate::error::CliError;
use crate::http::{Port, Request};
use crate::printer::{Tone, cell};
use crate::session::Session;

pub(super) async fn run(session: &Session, conversation: &str) -> Result<(), CliError> {
    let request = Request::get(Port::Admin, &["admin", "actors", conversation]);
    let actor = session.http.send(&request).await?;
    let printer = &session.printer;
    if !printer.is_for_people() {
        return printer.json(&actor);
    }
    let why = &actor["why"];
    let since = printer.time.show(&cell(&why["since"]));
    let next = match why["next_at"].as_str() {
        Some(at) => format!("{}, {}", cell(&why["next"]), printer.time.show(at)),
        None => cell(&why["next"]),
    };
    let holder = cell(&actor["node"]);
    for (name, value) in [
        ("waits for", cell(&why["waits_for"])),
        ("since", since),
        ("who", cell(&why["who_can_move_it"])),
        ("next", next),
        ("state", cell(&actor["state"])),
        ("held by", holder),
    ] {
        printer.line(&format!("{name:<10} {value}"))?;
    }
    for command in commands(&actor, conversation) {
        printer.toned_line(&format!("{:<10} {command}", "helps"), Tone::Asking)?;
    }
    Ok(())
}

/// The commands of this program that help: those that answer, then those of operators.
fn commands(actor: &Value, conversation: &str) -> Vec<String> {
    let mut commands = Vec::new();
    for call in actor["pending"].as_array().into_iter().flatten() {
        // An operator names the tenant in front of the id, a caller of the tenant does not.
        let id = conversation.rsplit('/').next().unwrap_or(conversation);
        let address = CallAddress::of(call, id).short();
        commands.extend(pending_line::commands(&cell(&call["kind"]), &address));
    }
    let requests = actor["why"]["operators_can"].as_array().into_iter().flatten();
    commands.extend(requests.filter_map(Value::as_str).map(command));
    commands
}

/// A request to the operators' port as the command for it; a request without one stays as it is.
fn command(request: &str) -> String {
    let known = || {
        let path = request.strip_prefix("POST /admin/actors/")?;
        let (conversation, verb) = path.split_once('/')?;
        let conversation = conversation.replace("%2F", "/").replace("%2f", "/");
        match verb.split('/').collect::<Vec<_>>().as_slice() {
            ["calls", call, "fail"] if !conversation.contains('/') => {
                Some(format!("abide fail {conversation}/{call}"))
            }
            [verb @ ("retry" | "move" | "release" | "kill")] => {
                Some(format!("abide {verb} {conversation}"))
            }
            ["cancel"] if !conversation.contains('/') => {
                Some(format!("abide cancel {conversation}"))
            }
            _ => None,
        }
    };
    known().unwrap_or_else(|| request.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_that_helps_is_shown_as_its_command() {
        for (request, expected) in [
            ("POST /admin/actors/c/calls/call_1/fail", "abide fail c/call_1"),
            ("POST /admin/actors/c/retry", "abide retry c"),
            ("POST /admin/actors/acme%2Fc/move", "abide move acme/c"),
            ("POST /admin/actors/c/cancel", "abide cancel c"),
            ("POST /admin/actors/acme%2Fc/cancel", "POST /admin/actors/acme%2Fc/cancel"),
            ("GET /metrics", "GET /metrics"),
        ] {
            assert_eq!(command(request), expected);
        }
    }
}
