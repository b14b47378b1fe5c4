//! The wire format of Gemini, whose replies stream from `streamGenerateContent`.

mod body;
mod chunk;
mod part;
mod provider_tools;
mod reply;
#[cfg(test)]
mod tests;
mod tool;

use super::http::{HttpCall, KeyHeader, ProviderFormat, ReplyDecoder, endpoint};
use super::{ModelError, ModelRequest};

/// The server, unless the definition names another one.
const DEFAULT_BASE_URL: &str = "https://generativelanguage.googleapis.com/v1beta";

/// The provider's name in verbatim messages and in `provider_options`.
const PROVIDER: &str = "gemini";

pub(super) struct GeminiFormat;

impl ProviderFormat for GeminiFormat {
    fn default_key_env(&self) -> Option<&'static str> {
        Some("GEMINI_API_KEY")
    }

    fn auth(&self) -> KeyHeader {
        KeyHeader::Named("x-goog-api-key")
    }

    fn http_call(&self, request: &ModelRequest) -> Result<HttpCall, ModelError> {
        let base = request.settings.base_url.as_deref().unwrap_or(DEFAULT_BASE_URL);
        // A tuned model's name includes its collection: `tunedModels/NAME`.
        let name = &request.settings.name;
        let (place, name) = name.split_once('/').unwrap_or(("models", name));
        let mut url = endpoint(base, &[place, &format!("{name}:streamGenerateContent")])?;
        url.query_pairs_mut().append_pair("alt", "sse");
        Ok(HttpCall { url, headers: Vec::new(), body: body::render(request) })
    }

    fn decoder(&self, request: &ModelRequest) -> Box<dyn ReplyDecoder> {
        Box::new(reply::GeminiDecoder::new(request))
    }
}
