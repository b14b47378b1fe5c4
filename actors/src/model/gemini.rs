//! The wire format of Gemini, whose replies stream from `streamGenerateContent`.

mod body;
mod chunk;
mod hosted;
mod part;
mod reply;
#[cfg(test)]
mod tests;
mod tool;

use super::wire::{Auth, Call, Format, Reply, below};
use super::{ModelError, Request};

/// Asked when a definition names no other server.
const GEMINI: &str = "https://generativelanguage.googleapis.com/v1beta";

/// Whose `provider_options` and verbatim messages are heeded on this wire.
const PROVIDER: &str = "gemini";

pub(super) struct Gemini;

impl Format for Gemini {
    fn key(&self) -> Option<&'static str> {
        Some("GEMINI_API_KEY")
    }

    fn auth(&self) -> Auth {
        Auth::Header("x-goog-api-key")
    }

    fn call(&self, request: &Request) -> Result<Call, ModelError> {
        let base = request.settings.base_url.as_deref().unwrap_or(GEMINI);
        // A tuned model's name says where it stands: `tunedModels/NAME`.
        let name = &request.settings.name;
        let (place, name) = name.split_once('/').unwrap_or(("models", name));
        let mut url = below(base, &[place, &format!("{name}:streamGenerateContent")])?;
        url.query_pairs_mut().append_pair("alt", "sse");
        Ok(Call { url, headers: Vec::new(), body: body::body(request) })
    }

    fn reply(&self, request: &Request) -> Box<dyn Reply> {
        Box::new(reply::Reply::to(request))
    }
}
