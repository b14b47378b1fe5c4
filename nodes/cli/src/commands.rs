//! What each command does.

mod agents;
mod chat;
mod completion;
mod contexts;
mod conversations;
mod dev;
mod erasures;
mod expire;
mod found_by;
mod frame_line;
mod inbox;
mod operators;
mod outcome;
mod pages;
mod pending_line;
mod resolve;
mod revisions;
mod say;
mod scheduled;
mod schedules;
mod spinner;
mod steering;
mod tail;
mod tokens;
mod transfer;
mod webhooks;
mod why;

use crate::arguments::Client;
use crate::command::Verb;
use crate::error::CliError;
use crate::host::Host;
use crate::printer;
use crate::session::Session;

/// Carries a command out.
pub(crate) async fn run(client: Client, host: Host) -> Result<(), CliError> {
    let Client { verb, options } = client;
    // Those that need no node read no context either.
    match verb {
        Verb::Completion(given) => completion::script(&given, host),
        Verb::Man(given) => completion::manual(&given, host),
        Verb::Login(given) => contexts::login(&given, options).await,
        Verb::Context(given) => contexts::run(&given, &options),
        verb => {
            let is_watching = is_watching(&verb);
            let session = Session::new(options)?;
            tokio::select! {
                outcome = on_nodes(verb, &session, host) => outcome,
                () = printer::closed(), if is_watching => Err(CliError::Closed),
            }
        }
    }
}

/// Whether a command prints what happens until it is ended: nobody waits for what it does otherwise.
fn is_watching(verb: &Verb) -> bool {
    match verb {
        Verb::Tail(_) => true,
        Verb::Inbox(given) => given.watch,
        Verb::Nodes(given) => given.watch,
        Verb::Actors(given) => given.watch,
        _ => false,
    }
}

async fn on_nodes(verb: Verb, session: &Session, host: Host) -> Result<(), CliError> {
    match verb {
        Verb::New(given) => conversations::new(session, given).await,
        Verb::Chat(given) => chat::run(session, given).await,
        Verb::Say(given) => say::run(session, given).await,
        Verb::Inbox(given) => inbox::run(session, &given).await,
        Verb::Approve(given) => resolve::approve(session, &given).await,
        Verb::Deny(given) => resolve::deny(session, &given).await,
        Verb::Answer(given) => resolve::answer(session, &given).await,
        Verb::Extend(given) => resolve::extend(session, &given).await,
        Verb::Tail(given) => tail::run(session, &given).await,
        Verb::Why(given) => why::run(session, &given.conversation).await,
        Verb::Journal(given) => conversations::journal(session, &given).await,
        Verb::Messages(given) => conversations::messages(session, &given).await,
        Verb::Show(given) => conversations::show(session, &given.conversation).await,
        Verb::Ls(given) => conversations::list(session, &given).await,
        Verb::Cancel(given) => conversations::cancel(session, &given.conversation).await,
        Verb::Queue(given) => steering::queue(session, &given).await,
        Verb::Regenerate(given) => steering::regenerate(session, &given).await,
        Verb::Rewind(given) => steering::rewind(session, &given).await,
        Verb::Fork(given) => conversations::fork(session, &given).await,
        Verb::Expire(given) => expire::run(session, &given).await,
        Verb::Rm(given) => conversations::remove(session, &given.conversation).await,
        Verb::Export(given) => transfer::export(session, &given, host).await,
        Verb::Import(given) => transfer::import(session, &given, host).await,
        Verb::Agents(given) => agents::run(session, &given, host).await,
        Verb::Scheduled(given) => scheduled::run(session, &given).await,
        Verb::Schedules(given) => schedules::run(session, &given).await,
        Verb::Webhooks(given) => webhooks::run(session, &given).await,
        Verb::Erasures(given) => erasures::run(session, &given).await,
        Verb::Queues => operators::queues(session).await,
        Verb::Nodes(given) => operators::nodes(session, &given).await,
        Verb::Drain(given) => operators::drain(session, &given.node).await,
        Verb::Actors(given) => operators::actors(session, &given).await,
        Verb::Move(given) => operators::move_away(session, &given).await,
        Verb::Release(given) => operators::release(session, &given).await,
        Verb::Kill(given) => operators::kill(session, &given).await,
        Verb::Retry(given) => operators::retry(session, &given).await,
        Verb::Fail(given) => operators::fail(session, &given).await,
        Verb::Alarms(given) => operators::alarms(session, given.limit).await,
        Verb::Audit(given) => operators::audit(session, &given).await,
        Verb::Tokens(given) => tokens::run(session, &given).await,
        Verb::Whoami => contexts::whoami(session).await,
        Verb::Dev(given) => dev::run(session, &given, host).await,
        Verb::Completion(_) | Verb::Man(_) | Verb::Login(_) | Verb::Context(_) => Ok(()),
    }
}
