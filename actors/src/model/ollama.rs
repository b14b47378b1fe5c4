//! Ollama's own wire format, a line of JSON after the other.

mod body;
mod reply;
#[cfg(test)]
mod tests;

use super::wire::{Auth, Call, Format, Framing, Reply, below};
use super::{ModelError, Request};

/// Asked when a definition names no other server.
const HERE: &str = "http://127.0.0.1:11434";

/// Its name in verbatim messages and in `provider_options`.
const PROVIDER: &str = "ollama";

pub(super) struct Ollama;

impl Format for Ollama {
    fn key(&self) -> Option<&'static str> {
        None
    }

    fn auth(&self) -> Auth {
        Auth::Bearer
    }

    fn framing(&self) -> Framing {
        Framing::Lines
    }

    fn call(&self, request: &Request) -> Result<Call, ModelError> {
        let base = request.settings.base_url.as_deref().unwrap_or(HERE);
        let url = below(base, &["api", "chat"])?;
        Ok(Call { url, headers: Vec::new(), body: body::body(request) })
    }

    fn reply(&self, request: &Request) -> Box<dyn Reply> {
        Box::new(reply::Reply::new(request))
    }
}
