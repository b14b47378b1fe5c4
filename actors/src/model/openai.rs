//! The wire format of chat completions, as OpenAI and every compatible server speak it.

mod body;
mod part;
mod reply;
#[cfg(test)]
mod tests;
pub(super) mod tool;

use super::wire::{Auth, Call, Format, Reply, below};
use super::{ModelError, Request};

/// Asked when a definition names no other server.
const OPENAI: &str = "https://api.openai.com/v1";

pub(super) struct Openai;

impl Format for Openai {
    fn key(&self) -> Option<&'static str> {
        Some("OPENAI_API_KEY")
    }

    fn auth(&self) -> Auth {
        Auth::Bearer
    }

    fn call(&self, request: &Request) -> Result<Call, ModelError> {
        let base = request.settings.base_url.as_deref().unwrap_or(OPENAI);
        let url = below(base, &["chat", "completions"])?;
        let own = url.host_str() == Some("api.openai.com");
        Ok(Call { url, headers: Vec::new(), body: body::body(request, own) })
    }

    fn reply(&self, _: &Request) -> Box<dyn Reply> {
        Box::new(reply::Reply::default())
    }
}
