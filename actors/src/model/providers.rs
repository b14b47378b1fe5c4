//! The set of all providers, and the validation of a definition's `model`.

#[cfg(test)]
mod tests;

use async_trait::async_trait;
use reqwest::Url;
use serde_json::Value;

use super::anthropic::AnthropicFormat;
use super::gemini::GeminiFormat;
use super::http::{HttpModel, ProviderFormat};
use super::ollama::{self, OllamaFormat};
use super::openai::OpenaiFormat;
use super::openai_responses::ResponsesFormat;
use super::scripted::{self, ScriptedModel};
use super::{Model, ModelError, ModelRequest, ModelSettings, Prices, Provider, ReplyStream};
use crate::outbound::{OutboundError, Route};

/// The fields of a request that only this program sets; `options` must not contain them.
const RESERVED_OPTIONS: [&str; 14] = [
    "model",
    "messages",
    "input",
    "contents",
    "stream",
    "tools",
    "system",
    "instructions",
    "systemInstruction",
    "system_instruction",
    "store",
    "previous_response_id",
    "conversation",
    "background",
];

/// The models that may stand in for one.
const MAX_FALLBACK_MODELS: usize = 4;

/// Every provider that this version supports. Share one value, so that connections are shared.
pub struct ProviderSet {
    scripted: ScriptedModel,
    http: HttpModel,
}

impl ProviderSet {
    /// Opens no connection yet.
    pub fn new(wire: HttpModel) -> Self {
        Self { scripted: ScriptedModel::default(), http: wire }
    }
}

#[async_trait]
impl Model for HttpModel {
    async fn call(&self, request: &ModelRequest) -> Result<ReplyStream, ModelError> {
        self.stream(format_of(request.settings.provider)?, request).await
    }

    fn request_body(&self, request: &ModelRequest) -> Value {
        let call =
            format_of(request.settings.provider).and_then(|format| format.http_call(request));
        call.map(|call| call.body).unwrap_or_default()
    }
}

/// The wire format of a provider that is called over HTTP.
fn format_of(provider: Provider) -> Result<&'static dyn ProviderFormat, ModelError> {
    match provider {
        Provider::Openai => Ok(&OpenaiFormat),
        Provider::OpenaiResponses => Ok(&ResponsesFormat),
        Provider::Anthropic => Ok(&AnthropicFormat),
        Provider::Gemini => Ok(&GeminiFormat),
        Provider::Ollama => Ok(&OllamaFormat),
        Provider::Scripted => {
            Err(ModelError::permanent("provider scripted is not called over HTTP"))
        }
    }
}

#[async_trait]
impl Model for ProviderSet {
    async fn call(&self, request: &ModelRequest) -> Result<ReplyStream, ModelError> {
        match request.settings.provider {
            Provider::Scripted => self.scripted.call(request).await,
            _ => self.http.call(request).await,
        }
    }

    fn request_body(&self, request: &ModelRequest) -> Value {
        match request.settings.provider {
            Provider::Scripted => Value::Null,
            _ => self.http.request_body(request),
        }
    }
}

/// A mistake in a definition's `model`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct ModelSettingsError {
    /// The path of the field, such as `model.base_url`, or `model.script[2].text`.
    pub field: String,
    pub message: String,
}

impl ModelSettings {
    /// The variable of its key, if it needs one: the definition's, or that of the provider's own
    /// server.
    pub(crate) fn key_variable<'a>(&'a self, default_env: Option<&'a str>) -> Option<&'a str> {
        match (&self.api_key_env, &self.base_url, default_env) {
            (Some(name), _, _) => Some(name),
            (None, None, default_env) => default_env,
            (None, Some(_), _) => None,
        }
    }

    /// The variable of its key, whichever provider it has.
    pub(crate) fn variable(&self) -> Option<&str> {
        let default_env = format_of(self.provider).ok().and_then(|it| it.default_key_env());
        self.key_variable(default_env)
    }

    /// The server that needs the tenant's permission: the definition's, or the one beside the node
    /// that a provider without a public server has. A provider's own public server needs none.
    pub(crate) fn server_needing_permission(&self) -> Option<Url> {
        let default = (self.provider == Provider::Ollama).then_some(ollama::DEFAULT_BASE_URL);
        Url::parse(self.base_url.as_deref().or(default)?).ok()
    }

    /// The route to its server, if the tenant's rules permit the server and the variable of its key
    /// now.
    pub(crate) fn route(&self) -> Result<Route, OutboundError> {
        self.outbound.check_variables(self.variable().into_iter())?;
        match self.server_needing_permission() {
            Some(server) => self.outbound.route(&server),
            None => Ok(Route::AnyAddress),
        }
    }

    /// Validates the settings when their agent is defined; the error names the first mistake.
    pub fn check(&self) -> Result<(), ModelSettingsError> {
        self.check_prices()?;
        if self.window == Some(0) {
            return Err(invalid("window", "must be at least 1"));
        }
        match self.provider {
            Provider::Scripted => self.check_scripted(),
            Provider::Openai | Provider::OpenaiResponses | Provider::Gemini | Provider::Ollama => {
                self.check_http(2.0)
            }
            Provider::Anthropic => self.check_http(1.0),
        }
    }

    /// Validates the models that are called when this one is not there.
    pub fn check_fallbacks(&self) -> Result<(), ModelSettingsError> {
        if self.fallback.len() > MAX_FALLBACK_MODELS {
            let message = format!("must be at most {MAX_FALLBACK_MODELS}");
            return Err(invalid("fallback", &message));
        }
        for (at, model) in self.fallback.iter().enumerate() {
            let at = format!("fallback[{at}]");
            if !model.fallback.is_empty() {
                let message = "is only for the definition's first model";
                return Err(invalid(&format!("{at}.fallback"), message));
            }
            model.check().map_err(|ModelSettingsError { field, message }| {
                let field = field.strip_prefix("model.").unwrap_or(&field);
                invalid(&format!("{at}.{field}"), &message)
            })?;
        }
        Ok(())
    }

    fn check_scripted(&self) -> Result<(), ModelSettingsError> {
        let script = self.script.as_ref();
        let script = script.ok_or_else(|| invalid("script", "is required by provider scripted"))?;
        let unsupported = [
            ("base_url", self.base_url.is_some()),
            ("api_key_env", self.api_key_env.is_some()),
            ("temperature", self.temperature.is_some()),
            ("max_tokens", self.max_tokens.is_some()),
            ("options", !self.options.is_empty()),
        ];
        if let Some((field, _)) = unsupported.iter().find(|(_, is_set)| *is_set) {
            return Err(invalid(field, "is not supported by provider scripted"));
        }
        scripted::check(script).map_err(|error| {
            let (field, message) = error.split_once(": ").unwrap_or(("script", &error));
            invalid(field, message)
        })
    }

    fn check_prices(&self) -> Result<(), ModelSettingsError> {
        let Prices { input, output, cached_input, cache_write } = self.prices;
        let prices = [
            ("input", Some(input)),
            ("output", Some(output)),
            ("cached_input", cached_input),
            ("cache_write", cache_write),
        ];
        let is_legal = |price: f64| (0.0..=1e6).contains(&price);
        match prices.iter().find(|(_, price)| price.is_some_and(|price| !is_legal(price))) {
            Some((name, _)) => {
                let message = "must be dollars for a million tokens, from 0 to 1000000";
                Err(invalid(&format!("prices.{name}"), message))
            }
            None => Ok(()),
        }
    }

    fn check_http(&self, max_temperature: f64) -> Result<(), ModelSettingsError> {
        let provider = self.provider.name();
        if self.name.trim().is_empty() {
            return Err(invalid("name", &format!("is required by provider {provider}")));
        }
        if self.script.is_some() {
            return Err(invalid("script", &format!("is not supported by provider {provider}")));
        }
        if let Some(reserved) =
            RESERVED_OPTIONS.iter().find(|reserved| self.options.contains_key(**reserved))
        {
            return Err(invalid(&format!("options.{reserved}"), "is set by this program"));
        }
        if let Some(base) = &self.base_url {
            check_base_url(base)?;
        }
        if self.api_key_env.as_deref().is_some_and(|name| !is_env_name(name)) {
            let message = "must be the name of an environment variable, never a key";
            return Err(invalid("api_key_env", message));
        }
        if self.api_key_env.as_deref().is_some_and(|name| name.starts_with("ABIDE_")) {
            return Err(invalid("api_key_env", "must not be one of this program's own variables"));
        }
        if self
            .temperature
            .is_some_and(|temperature| !(0.0..=max_temperature).contains(&temperature))
        {
            return Err(invalid(
                "temperature",
                &format!("must be between 0 and {max_temperature}"),
            ));
        }
        if self.max_tokens == Some(0) {
            return Err(invalid("max_tokens", "must be at least 1"));
        }
        Ok(())
    }
}

fn invalid(field: &str, message: &str) -> ModelSettingsError {
    ModelSettingsError { field: format!("model.{field}"), message: message.to_owned() }
}

fn check_base_url(base: &str) -> Result<(), ModelSettingsError> {
    let url = Url::parse(base).map_err(|_| invalid("base_url", "must be a URL"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid("base_url", "must be an http or https URL"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("base_url", "must not hold credentials; use api_key_env"));
    }
    Ok(())
}

/// Whether this can be the name of an environment variable. A pasted key often cannot, and is
/// refused here.
fn is_env_name(name: &str) -> bool {
    let starts_legally = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts_legally
        && name.len() <= 128
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
