//! The wire format of OpenAI's responses, whose messages are items that go back as they came.

mod body;
mod item;
mod part;
mod reply;
#[cfg(test)]
mod tests;
mod tool;

use serde_json::json;

use super::wire::{Auth, Call, Format, Reply, below};
use super::{ModelError, Request};

/// Asked when a definition names no other server.
const OPENAI: &str = "https://api.openai.com/v1";

/// Its name in verbatim messages and in `provider_options`.
const PROVIDER: &str = "openai_responses";

/// What is asked for of a model that thinks, to be sent back; and how one that does not refuses it.
const SEALED: &str = "reasoning.encrypted_content";
const UNSEALED: &str = "Encrypted content is not supported";

pub(super) struct OpenaiResponses;

impl Format for OpenaiResponses {
    fn key(&self) -> Option<&'static str> {
        Some("OPENAI_API_KEY")
    }

    fn auth(&self) -> Auth {
        Auth::Bearer
    }

    fn call(&self, request: &Request) -> Result<Call, ModelError> {
        let base = request.settings.base_url.as_deref().unwrap_or(OPENAI);
        let url = below(base, &["responses"])?;
        let own = url.host_str() == Some("api.openai.com");
        Ok(Call { url, headers: Vec::new(), body: body::body(request, own) })
    }

    /// A model that does not think answers once nothing is asked for of its thinking.
    fn instead(&self, request: &Request, failure: &ModelError) -> Option<Request> {
        let mut request = request.clone();
        let include = request.settings.options.entry("include").or_insert_with(|| json!([SEALED]));
        let include = include.as_array_mut()?;
        let before = include.len();
        include.retain(|asked| *asked != SEALED);
        let less = include.len() < before;
        (less && failure.message.contains(UNSEALED)).then_some(request)
    }

    fn reply(&self, request: &Request) -> Box<dyn Reply> {
        Box::new(reply::Reply::new(request))
    }
}
