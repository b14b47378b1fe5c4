//! Ollama's own wire format, which streams one line of JSON after another.

mod body;
mod reply;
#[cfg(test)]
mod tests;

use super::http::{Framing, HttpCall, KeyHeader, ProviderFormat, ReplyDecoder, endpoint};
use super::{ModelError, ModelRequest};

/// The server, unless the definition names another one.
pub(super) const DEFAULT_BASE_URL: &str = "http://127.0.0.1:11434";

/// The provider's name in verbatim messages and in `provider_options`.
const PROVIDER: &str = "ollama";

pub(super) struct OllamaFormat;

impl ProviderFormat for OllamaFormat {
    fn default_key_env(&self) -> Option<&'static str> {
        None
    }

    fn auth(&self) -> KeyHeader {
        KeyHeader::Bearer
    }

    fn framing(&self) -> Framing {
        Framing::Ndjson
    }

    fn http_call(&self, request: &ModelRequest) -> Result<HttpCall, ModelError> {
        let base = request.settings.base_url.as_deref().unwrap_or(DEFAULT_BASE_URL);
        let url = endpoint(base, &["api", "chat"])?;
        Ok(HttpCall { url, headers: Vec::new(), body: body::render(request) })
    }

    fn decoder(&self, request: &ModelRequest) -> Box<dyn ReplyDecoder> {
        Box::new(reply::OllamaDecoder::new(request))
    }
}
