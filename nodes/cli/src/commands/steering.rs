//! `queue`, `regenerate`, `rewind`.

use reqwest::Method;
use serde_json::json;

use super::conversations::{path, text_of};
use crate::command::steering::{QueueCommand, RegenerateCommand, RewindCommand};
use crate::error::CliError;
use crate::http::{Port, Request};
use crate::printer::cell;
use crate::session::Session;

pub(super) async fn queue(session: &Session, given: &QueueCommand) -> Result<(), CliError> {
    match given {
        QueueCommand::Ls(given) => {
            let path = path(&given.conversation, &["queue"]);
            let list = session.http.send(&Request::get(Port::Public, &path)).await?;
            session.printer.list(&list, "queued", &["TURN", "SENT", "BY", "TEXT"], |it| {
                let at = session.printer.time.show(&cell(&it["at"]));
                vec![cell(&it["turn_id"]), at, cell(&it["principal"]), text_of(&it["message"])]
            })
        }
        QueueCommand::Rm(given) => {
            let path = path(&given.conversation, &["queue", &given.turn]);
            let request = Request::change(Method::DELETE, Port::Public, &path);
            session.http.send(&request).await.map(|_| ())
        }
    }
}

pub(super) async fn regenerate(
    session: &Session,
    given: &RegenerateCommand,
) -> Result<(), CliError> {
    let path = path(&given.conversation, &["regenerate"]);
    let body = given.turn.as_ref().map_or(json!({}), |turn| json!({"turn_id": turn}));
    let request = Request::change(Method::POST, Port::Public, &path).with_body(body);
    let begun = session.http.send(&request).await?;
    session.printer.answer(&begun, || cell(&begun["turn_id"]))
}

pub(super) async fn rewind(session: &Session, given: &RewindCommand) -> Result<(), CliError> {
    let path = path(&given.conversation, &["rewind"]);
    let request = Request::change(Method::POST, Port::Public, &path);
    let request = request.with_body(json!({"to_seq": given.to_seq}));
    let rewound = session.http.send(&request).await?;
    session.printer.answer(&rewound, || cell(&rewound["seq"]))
}
