//! The wire format of OpenAI's responses, whose messages are items that go back as they came.

mod body;
mod item;
mod part;
mod reply;
#[cfg(test)]
mod tests;
mod tool;

use super::wire::{Auth, Call, Format, Reply, below};
use super::{Failure, Request};

/// Asked when a definition names no other server.
const OPENAI: &str = "https://api.openai.com/v1";

/// Its name in verbatim messages and in `provider_options`.
const PROVIDER: &str = "openai_responses";

pub(super) struct OpenaiResponses;

impl Format for OpenaiResponses {
    fn key(&self) -> Option<&'static str> {
        Some("OPENAI_API_KEY")
    }

    fn auth(&self) -> Auth {
        Auth::Bearer
    }

    fn call(&self, request: &Request) -> Result<Call, Failure> {
        let base = request.settings.base_url.as_deref().unwrap_or(OPENAI);
        let url = below(base, &["responses"])?;
        let own = url.host_str() == Some("api.openai.com");
        Ok(Call { url, headers: Vec::new(), body: body::body(request, own) })
    }

    fn reply(&self, request: &Request) -> Box<dyn Reply> {
        Box::new(reply::Reply::new(request))
    }
}
