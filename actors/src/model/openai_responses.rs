//! The wire format of OpenAI's Responses API, whose messages are items that are sent back
//! unchanged.

mod body;
mod item;
mod part;
mod reply;
#[cfg(test)]
mod tests;
mod tool;

use serde_json::json;

use super::http::{HttpCall, KeyHeader, ProviderFormat, ReplyDecoder, endpoint};
use super::{ModelError, ModelRequest};

/// The server, unless the definition names another one.
const DEFAULT_BASE_URL: &str = "https://api.openai.com/v1";

/// The provider's name in verbatim messages and in `provider_options`.
const PROVIDER: &str = "openai_responses";

/// The field that a thinking model is asked for, to be sent back, and the phrase with which other
/// models refuse to provide it.
const ENCRYPTED_REASONING: &str = "reasoning.encrypted_content";
const NO_ENCRYPTED_REASONING: &str = "Encrypted content is not supported";

pub(super) struct ResponsesFormat;

impl ProviderFormat for ResponsesFormat {
    fn default_key_env(&self) -> Option<&'static str> {
        Some("OPENAI_API_KEY")
    }

    fn auth(&self) -> KeyHeader {
        KeyHeader::Bearer
    }

    fn http_call(&self, request: &ModelRequest) -> Result<HttpCall, ModelError> {
        let base = request.settings.base_url.as_deref().unwrap_or(DEFAULT_BASE_URL);
        let url = endpoint(base, &["responses"])?;
        let own = url.host_str() == Some("api.openai.com");
        Ok(HttpCall { url, headers: Vec::new(), body: body::render(request, own) })
    }

    /// A model that does not think answers once its reasoning is no longer asked for.
    fn fallback(&self, request: &ModelRequest, error: &ModelError) -> Option<ModelRequest> {
        let mut request = request.clone();
        let include = request
            .settings
            .options
            .entry("include")
            .or_insert_with(|| json!([ENCRYPTED_REASONING]));
        let include = include.as_array_mut()?;
        let count = include.len();
        include.retain(|field| *field != ENCRYPTED_REASONING);
        let is_changed = include.len() < count;
        (is_changed && error.message.contains(NO_ENCRYPTED_REASONING)).then_some(request)
    }

    fn decoder(&self, request: &ModelRequest) -> Box<dyn ReplyDecoder> {
        Box::new(reply::ResponsesDecoder::new(request))
    }
}
