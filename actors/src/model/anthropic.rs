//! The wire format of Anthropic's messages.

mod body;
mod part;
mod reply;
mod said;
mod schema;
#[cfg(test)]
mod tests;
mod tool;

use reqwest::header::{HeaderName, HeaderValue};
use serde_json::Value;

use super::wire::{Auth, Call, Format, Reply, below};
use super::{ModelError, Request};

/// Asked when a definition names no other server.
const ANTHROPIC: &str = "https://api.anthropic.com/v1";

/// The version of the format, which every request must name.
const VERSION: &str = "2023-06-01";

/// What must be named by a request that says what becomes of thinking whose context has changed.
const BINDING: &str = "thinking-binding-controls-2026-08-01";

/// What the provider says of thinking that it will not read again: newer models refuse it once
/// anything before it has changed, as results that expire do.
const UNREADABLE: [&str; 2] = ["bound to a different", "`signature` in `thinking` block"];

pub(super) struct Anthropic;

impl Format for Anthropic {
    fn key(&self) -> Option<&'static str> {
        Some("ANTHROPIC_API_KEY")
    }

    fn auth(&self) -> Auth {
        Auth::Header("x-api-key")
    }

    fn call(&self, request: &Request) -> Result<Call, ModelError> {
        let base = request.settings.base_url.as_deref().unwrap_or(ANTHROPIC);
        let url = below(base, &["messages"])?;
        let mut headers = vec![header("anthropic-version", VERSION)?];
        let betas = betas(request);
        if !betas.is_empty() {
            headers.push(header("anthropic-beta", &betas.join(","))?);
        }
        Ok(Call { url, headers, body: body::body(request) })
    }

    /// Without its thinking the request can be answered, and the conversation goes on.
    fn instead(&self, request: &Request, failure: &ModelError) -> Option<Request> {
        let unreadable = UNREADABLE.iter().any(|phrase| failure.message.contains(phrase));
        let thought = request.verbatim.values().flat_map(|it| &it.items).any(said::is_thinking);
        (unreadable && thought).then(|| {
            let mut request = request.clone();
            for verbatim in request.verbatim.values_mut() {
                verbatim.items.retain(|item| !said::is_thinking(item));
            }
            request
        })
    }

    fn reply(&self, request: &Request) -> Box<dyn Reply> {
        Box::new(reply::Reply::new(request))
    }
}

/// The names in `options.betas`, and of what the other options need.
fn betas(request: &Request) -> Vec<&str> {
    let options = &request.settings.options;
    let named = options.get("betas").and_then(Value::as_array).into_iter().flatten();
    let binds = options.get("thinking").is_some_and(|it| it.get("block_binding").is_some());
    let mut betas: Vec<&str> = named.filter_map(Value::as_str).collect();
    if binds && !betas.contains(&BINDING) {
        betas.push(BINDING);
    }
    betas
}

fn header(name: &'static str, value: &str) -> Result<(HeaderName, HeaderValue), ModelError> {
    let illegal = |_| ModelError::permanent("options.betas has a name that no header can have");
    Ok((HeaderName::from_static(name), HeaderValue::from_str(value).map_err(illegal)?))
}
