//! Decodes the parameters of A2A's methods.

use abide_conversation::command::IfBusy;
use serde_json::{Value, json};

use super::parts::{MAX_PARTS, Part};
use super::proto_json::{FieldError, Fields};

/// The longest id of a message.
const MAX_MESSAGE_ID_CHARS: usize = 255;

/// The parameters of `SendMessage` and `SendStreamingMessage`.
#[derive(Clone, Debug, PartialEq)]
pub struct SendParams {
    pub message_id: String,
    /// The conversation, if the message names one.
    pub context: Option<String>,
    /// The task that the message continues, if it does.
    pub task: Option<String>,
    pub parts: Vec<Part>,
    pub returns_immediately: bool,
    pub history_length: Option<u32>,
    /// Whether the client asks for push notifications.
    pub wants_push: bool,
    /// What to do while another task of the context goes on.
    pub if_busy: IfBusy,
}

impl SendParams {
    pub fn parse(params: &Value) -> Result<Self, FieldError> {
        let fields = Fields::of(params, "")?;
        let missing = || fields.error("message", "is missing");
        let message = fields.object("message")?.ok_or_else(missing)?;
        let message_id = message.required_text("messageId")?;
        if message_id.chars().count() > MAX_MESSAGE_ID_CHARS {
            let rule = format!("must be at most {MAX_MESSAGE_ID_CHARS} characters");
            return Err(message.error("messageId", rule));
        }
        let is_user =
            matches!(message.get("role"), Some(role) if *role == "ROLE_USER" || *role == 1);
        if !is_user {
            return Err(message.error("role", "must be ROLE_USER"));
        }
        let none = json!({});
        let configuration = fields.object("configuration")?;
        let configuration = match configuration {
            Some(configuration) => configuration,
            None => Fields::of(&none, "configuration")?,
        };
        Ok(Self {
            message_id: message_id.to_owned(),
            context: message.text("contextId")?.map(str::to_owned),
            task: message.text("taskId")?.map(str::to_owned),
            parts: parts(&message)?,
            returns_immediately: configuration.is_true("returnImmediately")?,
            history_length: configuration.count("historyLength")?,
            wants_push: configuration.get("taskPushNotificationConfig").is_some(),
            if_busy: if_busy(&fields)?,
        })
    }
}

fn parts(message: &Fields<'_>) -> Result<Vec<Part>, FieldError> {
    let given = match message.get("parts") {
        Some(Value::Array(parts)) => parts.as_slice(),
        Some(_) => return Err(message.error("parts", "must be a list")),
        None => &[],
    };
    if !(1..=MAX_PARTS).contains(&given.len()) {
        return Err(message.error("parts", format!("must be 1 to {MAX_PARTS}")));
    }
    let path = |index| format!("{}[{index}]", message.path_of("parts"));
    given.iter().enumerate().map(|(index, part)| Part::parse(part, &path(index))).collect()
}

/// `metadata.abide.if_busy`; without it, a message waits for its turn.
fn if_busy(fields: &Fields<'_>) -> Result<IfBusy, FieldError> {
    let Some(metadata) = fields.object("metadata")? else { return Ok(IfBusy::Queue) };
    let Some(abide) = metadata.object("abide")? else { return Ok(IfBusy::Queue) };
    match abide.text("if_busy")? {
        None | Some("queue") => Ok(IfBusy::Queue),
        Some("reject") => Ok(IfBusy::Reject),
        Some("interrupt") => Ok(IfBusy::Interrupt),
        Some(_) => Err(abide.error("if_busy", "must be queue, reject or interrupt")),
    }
}

/// The parameters of a method about one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskParams {
    pub id: String,
    pub history_length: Option<u32>,
}

impl TaskParams {
    pub fn parse(params: &Value) -> Result<Self, FieldError> {
        let fields = Fields::of(params, "")?;
        let id = fields.required_text("id")?.to_owned();
        Ok(Self { id, history_length: fields.count("historyLength")? })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn params(change: impl Fn(&mut Value)) -> Value {
        let mut params = json!({"message": {"messageId": "m", "role": "ROLE_USER",
            "parts": [{"text": "hi"}]}});
        change(&mut params);
        params
    }

    #[test]
    fn a_message_is_read_in_both_spellings() {
        let read = SendParams::parse(&params(|params| {
            params["message"]["context_id"] = json!("c");
            params["configuration"] = json!({"returnImmediately": true, "history_length": 0});
        }));
        let read = read.unwrap();
        assert_eq!((read.context.as_deref(), read.task), (Some("c"), None));
        assert_eq!((read.returns_immediately, read.history_length), (true, Some(0)));
        assert_eq!(read.if_busy, IfBusy::Queue);
    }

    #[test]
    fn what_is_wrong_is_named() {
        type Change = fn(&mut Value);
        let cases: [(Change, &str); 10] = [
            (|it| it["message"] = json!(null), "message"),
            (|it| it["message"]["messageId"] = json!(""), "message.messageId"),
            (|it| it["message"]["messageId"] = json!("m".repeat(256)), "message.messageId"),
            (|it| it["message"]["role"] = json!("ROLE_AGENT"), "message.role"),
            (|it| it["message"]["role"] = json!("user"), "message.role"),
            (|it| it["message"]["parts"] = json!([]), "message.parts"),
            (|it| it["message"]["parts"] = json!([{"text": "a"}, {}]), "message.parts[1]"),
            (|it| it["configuration"] = json!([]), "configuration"),
            (
                |it| it["configuration"] = json!({"historyLength": -1}),
                "configuration.historyLength",
            ),
            (|it| it["metadata"] = json!({"abide": {"if_busy": "x"}}), "metadata.abide.if_busy"),
        ];
        for (change, field) in cases {
            assert_eq!(SendParams::parse(&params(change)).unwrap_err().field, field);
        }
        assert_eq!(SendParams::parse(&json!([])).unwrap_err().field, "params");
        assert_eq!(TaskParams::parse(&json!({})).unwrap_err().field, "id");
    }
}
