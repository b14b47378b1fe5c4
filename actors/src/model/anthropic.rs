//! The wire format of Anthropic's Messages API.

mod body;
mod message;
mod part;
mod reply;
mod schema;
#[cfg(test)]
mod tests;
mod tool;

use reqwest::header::{HeaderName, HeaderValue};
use serde_json::Value;

use super::http::{HttpCall, KeyHeader, ProviderFormat, ReplyDecoder, endpoint};
use super::{ModelError, ModelRequest};

/// The server, unless the definition names another one.
const DEFAULT_BASE_URL: &str = "https://api.anthropic.com/v1";

/// The API version, which every request must name.
const API_VERSION: &str = "2023-06-01";

/// The beta that a request must name if it configures what happens to thinking whose context has
/// changed.
const THINKING_BINDING_BETA: &str = "thinking-binding-controls-2026-08-01";

/// Phrases with which the provider refuses thinking that it will not read again: newer models
/// refuse it once anything before it has changed, for example because results have expired.
const STALE_THINKING_PHRASES: [&str; 2] =
    ["bound to a different", "`signature` in `thinking` block"];

pub(super) struct AnthropicFormat;

impl ProviderFormat for AnthropicFormat {
    fn default_key_env(&self) -> Option<&'static str> {
        Some("ANTHROPIC_API_KEY")
    }

    fn auth(&self) -> KeyHeader {
        KeyHeader::Named("x-api-key")
    }

    fn http_call(&self, request: &ModelRequest) -> Result<HttpCall, ModelError> {
        let base = request.settings.base_url.as_deref().unwrap_or(DEFAULT_BASE_URL);
        let url = endpoint(base, &["messages"])?;
        let mut headers = vec![header("anthropic-version", API_VERSION)?];
        let betas = betas(request);
        if !betas.is_empty() {
            headers.push(header("anthropic-beta", &betas.join(","))?);
        }
        Ok(HttpCall { url, headers, body: body::render(request) })
    }

    /// Without its thinking the request can be answered, and the conversation continues.
    fn fallback(&self, request: &ModelRequest, error: &ModelError) -> Option<ModelRequest> {
        let is_stale = STALE_THINKING_PHRASES.iter().any(|phrase| error.message.contains(phrase));
        let has_thinking =
            request.verbatim.values().flat_map(|it| &it.items).any(message::is_thinking);
        (is_stale && has_thinking).then(|| {
            let mut request = request.clone();
            for verbatim in request.verbatim.values_mut() {
                verbatim.items.retain(|item| !message::is_thinking(item));
            }
            request
        })
    }

    fn decoder(&self, request: &ModelRequest) -> Box<dyn ReplyDecoder> {
        Box::new(reply::AnthropicDecoder::new(request))
    }
}

/// The betas in `options.betas`, and those that the other options require.
fn betas(request: &ModelRequest) -> Vec<&str> {
    let options = &request.settings.options;
    let configured = options.get("betas").and_then(Value::as_array).into_iter().flatten();
    let needs_binding = options.get("thinking").is_some_and(|it| it.get("block_binding").is_some());
    let mut betas: Vec<&str> = configured.filter_map(Value::as_str).collect();
    if needs_binding && !betas.contains(&THINKING_BINDING_BETA) {
        betas.push(THINKING_BINDING_BETA);
    }
    betas
}

fn header(name: &'static str, value: &str) -> Result<(HeaderName, HeaderValue), ModelError> {
    let illegal = |_| ModelError::permanent("options.betas has a name that is illegal in a header");
    Ok((HeaderName::from_static(name), HeaderValue::from_str(value).map_err(illegal)?))
}
