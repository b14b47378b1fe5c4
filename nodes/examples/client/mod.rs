//! The client of the examples: sends one message over HTTP and reads the answer from the event stream.

use std::error::Error;
use std::net::SocketAddr;

use reqwest::Client;
use serde_json::{Value, json};

/// Sends a message to an agent, in a conversation that may be new, and returns what the agent said by
/// the end of the turn, one text for each message of the model.
pub(crate) async fn send(
    api: SocketAddr,
    conversation: &str,
    agent: &str,
    text: &str,
) -> Result<Vec<String>, Box<dyn Error>> {
    let base = format!("http://{api}/v1/conversations/{conversation}");
    let client = Client::new();
    let message = json!({"agent": agent, "text": text});
    let accepted = client.post(format!("{base}/messages")).json(&message).send().await?;
    let accepted: Value = accepted.error_for_status()?.json().await?;

    // The stream replays every frame after the message, and then follows the turn live.
    let events = format!("{base}/events?after={}", accepted["seq"]);
    let mut stream = client.get(events).send().await?.error_for_status()?;
    let mut received = String::new();
    let mut texts = Vec::new();
    while let Some(chunk) = stream.chunk().await? {
        received.push_str(std::str::from_utf8(&chunk)?);
        while let Some((frame, rest)) = received.split_once("\n\n") {
            let (event, data) = parse(frame);
            received = rest.to_owned();
            match event.as_str() {
                "message_completed" => texts.extend(text_of(&data["message"])),
                "turn_completed" => return Ok(texts),
                "turn_halted" | "turn_failed" | "turn_cancelled" => {
                    return Err(format!("{event}: {data}").into());
                }
                _ => {}
            }
        }
    }
    Err("the stream ended before the turn".into())
}

/// The event name and the data of a frame.
fn parse(frame: &str) -> (String, Value) {
    let line = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("");
    (line("event: ").to_owned(), serde_json::from_str(line("data: ")).unwrap_or_default())
}

/// The text of a message; `None` if it has only tool calls.
fn text_of(message: &Value) -> Option<String> {
    let blocks = message["content"].as_array()?;
    let text: String = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
    (!text.is_empty()).then_some(text)
}
