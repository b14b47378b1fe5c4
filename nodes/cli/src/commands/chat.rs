//! `chat`: a conversation on the terminal.

mod ask;
mod input;
mod turn;

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use uuid::Uuid;

use super::conversations;
use crate::command::ChatCommand;
use crate::error::CliError;
use crate::http::{Port, Request};
use crate::printer::{Tone, cell};
use crate::session::Session;

use input::{Input, Typed};

const HELP: &str = "/help, /show, /quit; an empty line goes on with what waits; \
    ^C cancels a turn, ^D leaves";

/// A conversation and whoever types.
pub(super) struct Chat<'a> {
    session: &'a Session,
    conversation: String,
    /// The agent of a conversation that may be new.
    agent: Option<String>,
    input: Input,
    interrupts: Signal,
    /// The suspensions that were asked for, answered or not.
    asked_for: BTreeSet<String>,
}

pub(super) async fn run(session: &Session, given: ChatCommand) -> Result<(), CliError> {
    if !session.printer.is_for_people() {
        return Err(CliError::Usage("--output: a chat is for people; use say or tail".to_owned()));
    }
    let interrupts = signal(SignalKind::interrupt())?;
    let (conversation, agent) = beginning(session, given).await?;
    let input = Input::new()?;
    let asked_for = BTreeSet::new();
    let mut chat = Chat { session, conversation, agent, input, interrupts, asked_for };
    let outcome = chat.talk().await;
    session.printer.note(&format!("To go on: abide chat {}", chat.conversation));
    outcome
}

/// The conversation, and the agent if the conversation may not exist yet.
async fn beginning(
    session: &Session,
    given: ChatCommand,
) -> Result<(String, Option<String>), CliError> {
    if let Some(conversation) = given.conversation {
        let path = conversations::path(&conversation, &[]);
        return match session.http.send(&Request::get(Port::Public, &path)).await {
            Ok(snapshot) => {
                greet(session, &conversation, &cell(&snapshot["agent"]));
                Ok((conversation, given.agent))
            }
            Err(CliError::Refused(problem)) if problem.status == 404 && given.agent.is_some() => {
                greet(session, &conversation, given.agent.as_deref().unwrap_or_default());
                Ok((conversation, given.agent))
            }
            Err(error) => Err(error),
        };
    }
    let agent = match given.agent {
        Some(agent) => agent,
        None => only_agent(session).await?,
    };
    let request = Request::change(Method::POST, Port::Public, &["v1", "conversations"]);
    let created = session.http.send(&request.with_body(json!({"agent": agent}))).await?;
    let conversation = cell(&created["id"]);
    greet(session, &conversation, &agent);
    Ok((conversation, None))
}

fn greet(session: &Session, conversation: &str, agent: &str) {
    session.printer.note(&format!("{conversation} with {agent}. {HELP}"));
}

async fn only_agent(session: &Session) -> Result<String, CliError> {
    let page = session.http.send(&Request::get(Port::Public, &["v1", "agents"])).await?;
    let agents = page["agents"].as_array().into_iter().flatten();
    let names: Vec<String> = agents.map(|agent| cell(&agent["name"])).collect();
    match names.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(CliError::NotFound("there is no agent: abide agents apply -f DIR".to_owned())),
        several => Err(CliError::Usage(format!("--agent: one of {}", several.join(", ")))),
    }
}

impl Chat<'_> {
    /// Reads and answers until whoever types leaves.
    async fn talk(&mut self) -> Result<(), CliError> {
        // What waits already is asked for first.
        if self.agent.is_none() && !self.resume().await? {
            return Ok(());
        }
        let mut is_leaving = false;
        loop {
            let typed = self.input.line("> ", &mut self.interrupts).await?;
            let text = match typed {
                Typed::Line(text) => text,
                Typed::Interrupt if is_leaving => return Ok(()),
                Typed::Interrupt => {
                    is_leaving = true;
                    self.session.printer.note("^C again leaves");
                    continue;
                }
                Typed::End => return Ok(()),
            };
            is_leaving = false;
            let goes_on = match text.trim() {
                "/quit" | "/exit" => false,
                "/help" => {
                    self.session.printer.note(HELP);
                    true
                }
                "/show" => {
                    self.tell(conversations::show(self.session, &self.conversation).await)?;
                    true
                }
                "" => self.resume().await?,
                text => self.say(text).await?,
            };
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// Sends a message and follows its turn. False if whoever types has left.
    async fn say(&mut self, text: &str) -> Result<bool, CliError> {
        let id = format!("cli-{}", Uuid::new_v4());
        let mut body = json!({"text": text, "message_id": id, "if_busy": "queue"});
        if let Some(agent) = &self.agent {
            body["agent"] = json!(agent);
        }
        let path = conversations::path(&self.conversation, &["messages"]);
        let request = Request::repeatable(Method::POST, Port::Public, &path).with_body(body);
        let sent = match self.session.http.send(&request).await {
            Ok(sent) => sent,
            Err(error) => {
                self.tell(Err(error))?;
                return Ok(true);
            }
        };
        self.agent = None;
        let turn = cell(&sent["turn_id"]);
        self.follow(&turn, sent["seq"].as_u64().unwrap_or_default()).await
    }

    /// Goes on with the open turn, if there is one. False if whoever types has left.
    async fn resume(&mut self) -> Result<bool, CliError> {
        let path = conversations::path(&self.conversation, &[]);
        let snapshot = self.session.http.send(&Request::get(Port::Public, &path)).await?;
        let Value::String(turn) = &snapshot["turn"]["id"] else { return Ok(true) };
        self.asked_for.clear();
        self.go_on(turn, snapshot["last_seq"].as_u64().unwrap_or_default()).await
    }

    /// Shows what a node refused, and goes on: the next line may be a better one.
    fn tell(&self, outcome: Result<(), CliError>) -> Result<(), CliError> {
        match outcome {
            Err(error @ (CliError::Refused(_) | CliError::Away(_) | CliError::Usage(_))) => {
                self.session.printer.toned_line(&error.to_string(), Tone::Bad)
            }
            outcome => outcome,
        }
    }
}
