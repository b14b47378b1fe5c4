//! The wire format of chat completions, as spoken by OpenAI and compatible servers.

mod body;
mod part;
mod reply;
#[cfg(test)]
mod tests;
pub(super) mod tool;

use super::http::{HttpCall, KeyHeader, ProviderFormat, ReplyDecoder, endpoint};
use super::{ModelError, ModelRequest};

/// The server, unless the definition names another one.
const DEFAULT_BASE_URL: &str = "https://api.openai.com/v1";

pub(super) struct OpenaiFormat;

impl ProviderFormat for OpenaiFormat {
    fn default_key_env(&self) -> Option<&'static str> {
        Some("OPENAI_API_KEY")
    }

    fn auth(&self) -> KeyHeader {
        KeyHeader::Bearer
    }

    fn http_call(&self, request: &ModelRequest) -> Result<HttpCall, ModelError> {
        let base = request.settings.base_url.as_deref().unwrap_or(DEFAULT_BASE_URL);
        let url = endpoint(base, &["chat", "completions"])?;
        let own = url.host_str() == Some("api.openai.com");
        Ok(HttpCall { url, headers: Vec::new(), body: body::render(request, own) })
    }

    fn decoder(&self, _: &ModelRequest) -> Box<dyn ReplyDecoder> {
        Box::new(reply::ChatDecoder::default())
    }
}
