//! `scheduled`: the messages of a conversation that wait for their time.

use reqwest::Method;

use super::conversations::path;
use crate::command::time::ScheduledCommand;
use crate::error::CliError;
use crate::http::{Port, Request};
use crate::printer::cell;
use crate::session::Session;

pub(super) async fn run(session: &Session, given: &ScheduledCommand) -> Result<(), CliError> {
    match given {
        ScheduledCommand::Ls(given) => {
            let path = path(&given.conversation, &["scheduled"]);
            let list = session.http.send(&Request::get(Port::Public, &path)).await?;
            let columns = ["SCHEDULED", "DELIVERED", "BY", "TEXT"];
            session.printer.list(&list, "scheduled", &columns, |it| {
                let at = session.printer.time.show(&cell(&it["deliver_at"]));
                let blocks = it["message"]["content"].as_array().into_iter().flatten();
                let texts: Vec<String> = blocks.map(|block| cell(&block["text"])).collect();
                vec![cell(&it["scheduled_id"]), at, cell(&it["principal"]), texts.join(" ")]
            })
        }
        ScheduledCommand::Rm(given) => {
            let path = path(&given.conversation, &["scheduled", &given.scheduled]);
            let request = Request::change(Method::DELETE, Port::Public, &path);
            session.http.send(&request).await.map(|_| ())
        }
    }
}
