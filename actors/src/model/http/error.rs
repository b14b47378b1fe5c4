//! The errors of a call to a provider: a message for people, and whether a retry may help.

use std::time::Duration;

use abide_conversation::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use reqwest::StatusCode;
use serde_json::Value;

use crate::model::{ModelError, Retry};
use crate::outbound::is_blocked;

/// How many characters of a provider's own message are quoted.
const MAX_QUOTE_CHARS: usize = 300;

/// A word that contains this many of a key's first characters is redacted; providers echo keys half
/// masked.
const KEY_PREFIX_CHARS: usize = 6;

/// The provider answered with an error status. `body` is the beginning of its answer. Only the
/// message of a JSON error is quoted: any other body may reveal what is behind a proxy.
pub(crate) fn from_status(status: StatusCode, wait: Option<Duration>, body: &str) -> ModelError {
    let body = match serde_json::from_str(body) {
        // Gemini may answer with a list that contains the one error.
        Ok(Value::Array(mut list)) if list.len() == 1 => list.remove(0),
        Ok(body) => body,
        Err(_) => Value::Null,
    };
    let body = if body.is_object() { body } else { Value::Null };
    let wait = wait.or_else(|| retry_delay(&body));
    let message = provider_message(&body);
    let quoted = if message.is_empty() { message } else { format!(": {}", quote(&message)) };
    let retry = match status.as_u16() {
        _ if is_too_long(&body) => Retry::Shorter,
        status if is_transient(status) => Retry::After(wait),
        404 | 410 => Retry::Elsewhere,
        _ => Retry::Never,
    };
    ModelError { message: format!("the model's provider answered {status}{quoted}"), retry }
}

/// The delay that Gemini requests, which stands in its error and not in a header.
fn retry_delay(error: &Value) -> Option<Duration> {
    let details = error.pointer("/error/details")?.as_array()?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    Duration::try_from_secs_f64(delay.strip_suffix('s')?.parse().ok()?).ok()
}

/// The provider reported an error within the stream.
pub(crate) fn from_stream(error: &Value) -> ModelError {
    let message = format!("the model's provider failed: {}", quote(&provider_message(error)));
    let code = &error["code"];
    let number = code.as_u64().or_else(|| code.as_str()?.parse().ok());
    let text = code.as_str().or(error["type"].as_str()).unwrap_or_default();
    let kind = error["type"].as_str().unwrap_or_default();
    let lasting = |word: &str| PERMANENT_CODES.iter().any(|part| word.contains(part));
    let retry = match number.and_then(|number| u16::try_from(number).ok()) {
        _ if is_too_long(error) => Retry::Shorter,
        Some(404 | 410) => Retry::Elsewhere,
        Some(number) if !is_transient(number) => Retry::Never,
        None if lasting(text) || lasting(kind) => Retry::Never,
        Some(_) | None => Retry::After(None),
    };
    ModelError { message, retry }
}

/// The connection could not be established, or broke.
pub(crate) fn from_transport(error: reqwest::Error) -> ModelError {
    let error = error.without_url();
    if error.is_builder() {
        return ModelError::permanent(format!("the model's request is not valid: {error}"));
    }
    if is_blocked(&error) {
        return ModelError::permanent("the model's host has an address that is not public");
    }
    let what = match (error.is_connect(), error.is_timeout()) {
        (true, true) => "the model's provider did not accept a connection in time".to_owned(),
        (true, false) => {
            format!("the model's provider cannot be reached: {}", innermost_cause(&error))
        }
        (false, _) => {
            format!("the connection to the model's provider broke: {}", innermost_cause(&error))
        }
    };
    ModelError::transient(quote(&what))
}

/// No HTTP client can be built on this machine, for example for lack of certificates.
pub(crate) fn no_client(error: reqwest::Error) -> ModelError {
    ModelError::permanent(format!(
        "no model can be called from this machine: {}",
        quote(&innermost_cause(&error))
    ))
}

/// The provider sent nothing for this long.
pub(crate) fn idle_timeout(limit: Duration) -> ModelError {
    ModelError::transient(format!("the model's provider sent nothing for {limit:?}"))
}

/// The reply took longer than a call may take.
pub(crate) fn total_timeout(limit: Duration) -> ModelError {
    ModelError::permanent(format!("the model's reply took longer than {limit:?}"))
}

/// The stream ended before the message was complete.
pub(crate) fn stream_cut() -> ModelError {
    ModelError::transient("the model's reply ended before it was complete")
}

/// A frame of the stream is not a chunk of the provider's format.
pub(crate) fn unreadable() -> ModelError {
    ModelError::transient("the model's provider sent something unreadable")
}

/// The reply exceeds [`super::MAX_REPLY_BYTES`].
pub(crate) fn too_large() -> ModelError {
    ModelError::permanent(format!(
        "the model's reply has more than {} bytes",
        super::MAX_REPLY_BYTES
    ))
}

/// The reply makes more calls than `limit`.
pub(crate) fn too_many_calls(limit: usize) -> ModelError {
    ModelError::permanent(format!("the model's reply has more than {limit} calls"))
}

/// The provider refused to answer, and the model wrote nothing; `why` is the provider's
/// explanation.
pub(crate) fn refused(why: &str) -> ModelError {
    let why = if why.is_empty() { String::new() } else { format!(": {}", quote(why)) };
    ModelError::permanent(format!("the model's provider refused to answer{why}"))
}

/// The error with every word that contains the beginning of the key replaced in its message.
pub(crate) fn redact_key(error: ModelError, key: Option<&str>) -> ModelError {
    let Some(key) = key else { return error };
    let key_prefix: String = key.chars().take(KEY_PREFIX_CHARS).collect();
    let word = |word| if str::contains(word, &key_prefix) { "[key]" } else { word };
    let words: Vec<&str> = error.message.split(' ').map(word).collect();
    ModelError { message: words.join(" "), retry: error.retry }
}

/// The delay requested by a `Retry-After` header, which gives seconds or a date.
pub(crate) fn retry_after(header: &str, now: Timestamp) -> Option<Duration> {
    let header = header.trim();
    if let Ok(seconds) = header.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = DateTimeParser::new().parse_timestamp(header).ok()?;
    let wait = date.as_millisecond().saturating_sub(now.as_millisecond());
    Some(Duration::from_millis(u64::try_from(wait).unwrap_or(0)))
}

/// Parts of the error codes that mean the same request would be refused again.
const PERMANENT_CODES: [&str; 10] = [
    "invalid",
    "authentication",
    "permission",
    "billing",
    "quota",
    "not_found",
    "context_length",
    "policy",
    "image_",
    "unsupported",
];

/// The phrases, in lower case, by which providers say that a request exceeds what they or their
/// model read.
const TOO_LONG_PHRASES: [&str; 12] = [
    "request_too_large",
    "payload size exceeds",
    "context_length_exceeded",
    "prompt is too long",
    "maximum context length",
    "input token count",
    "exceeds the context window",
    "exceeds the available context size",
    "exceeds the context length",
    "exceeded max context length",
    "longer than the context length",
    "input length and `max_tokens` exceed context limit",
];

/// Whether the error says that the request was too long for the model.
fn is_too_long(error: &Value) -> bool {
    let code = ["/error/code", "/error/type", "/code", "/type"];
    let code = code.iter().filter_map(|place| error.pointer(place)?.as_str());
    let message = provider_message(error).to_lowercase();
    code.chain([message.as_str()])
        .any(|text| TOO_LONG_PHRASES.iter().any(|phrase| text.contains(phrase)))
}

/// Some providers answer 409 if a lock was not acquired in time.
fn is_transient(status: u16) -> bool {
    matches!(status, 408 | 409 | 429 | 500..)
}

/// The message in an error's JSON, in any of the places where servers put it.
fn provider_message(error: &Value) -> String {
    ["/error/message", "/message", "/detail", "/error", ""]
        .iter()
        .find_map(|place| error.pointer(place)?.as_str())
        .unwrap_or_default()
        .to_owned()
}

/// The text on one line, cut to [`MAX_QUOTE_CHARS`].
pub(crate) fn quote(text: &str) -> String {
    let line = text.split(|c: char| c.is_control() || c.is_whitespace());
    let line = line.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_QUOTE_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// The innermost cause, which says what happened.
fn innermost_cause(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_retry_after_is_seconds_or_a_date() {
        let now: Timestamp = "2026-11-21T08:00:00Z".parse().unwrap();
        let wait = |header| retry_after(header, now);
        assert_eq!(wait(" 7"), Some(Duration::from_secs(7)));
        assert_eq!(wait("Sat, 21 Nov 2026 08:01:30 GMT"), Some(Duration::from_secs(90)));
        assert_eq!(wait("Sat, 21 Nov 2026 07:00:00 GMT"), Some(Duration::ZERO));
        let retry_of = |delay: &str| {
            let details = json!([{"@type": "x"}, {"retryDelay": delay}]);
            let body = json!([{"error": {"code": 429, "details": details}}]).to_string();
            from_status(StatusCode::TOO_MANY_REQUESTS, None, &body).retry
        };
        assert_eq!(retry_of("34.5s"), Retry::After(Some(Duration::from_millis(34_500))));
        for nonsense in ["s", "-1s", "NaNs", "1e99s", "7"] {
            assert_eq!(retry_of(nonsense), Retry::After(None), "{nonsense}");
        }
        for nonsense in ["soon", "-1", "", "99999999999999999999999"] {
            assert_eq!(wait(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn only_transient_errors_are_retried() {
        for code in 300..=599 {
            let error = from_status(StatusCode::from_u16(code).unwrap(), None, "");
            let passes = matches!(code, 408 | 409 | 429) || code >= 500;
            let expected = match code {
                404 | 410 => Retry::Elsewhere,
                _ if passes => Retry::After(None),
                _ => Retry::Never,
            };
            assert_eq!(error.retry, expected, "{code}");
            assert_eq!(error.is_unavailable(), expected != Retry::Never, "{code}");
        }
        let retry = |error| from_stream(&error).retry;
        assert_eq!(retry(json!({"code": "429"})), Retry::After(None));
        assert_eq!(retry(json!({"code": 400})), Retry::Never);
        assert_eq!(retry(json!({"code": 404})), Retry::Elsewhere);
        assert_eq!(retry(json!({"type": "invalid_request_error", "code": null})), Retry::Never);
        assert_eq!(retry(json!({"type": "x", "code": "insufficient_quota"})), Retry::Never);
        assert_eq!(retry(json!({"type": "server_error"})), Retry::After(None));
        assert_eq!(retry(json!("overloaded")), Retry::After(None));
    }

    #[test]
    fn an_answer_that_is_no_json_error_is_not_quoted() {
        for body in [
            "<html>proxy</html>",
            "upstream 10.0.0.7 refused",
            "\"upstream 10.0.0.7 refused\"",
            "[\"10.0.0.7\"]",
            "{\"upstream\": \"10.0.0.7\"}",
            "{\"message\": \"cut in the mid",
        ] {
            let error = from_status(StatusCode::BAD_GATEWAY, None, body);
            assert_eq!(error.message, "the model's provider answered 502 Bad Gateway", "{body}");
        }
        for body in
            [json!({"error": {"message": "no"}}), json!({"error": "no"}), json!([{"error": "no"}])]
        {
            let error = from_status(StatusCode::BAD_REQUEST, None, &body.to_string());
            assert_eq!(error.message, "the model's provider answered 400 Bad Request: no");
        }
    }

    #[test]
    fn messages_are_short_single_lines_without_the_key() {
        let long = json!({"error": {"message": format!("bad\n\tkey{}", " ä".repeat(500))}});
        let error = from_status(StatusCode::BAD_REQUEST, None, &long.to_string());
        assert!(error.message.starts_with("the model's provider answered 400 Bad Request: bad"));
        assert!(
            error.message.chars().count() < MAX_QUOTE_CHARS + 60 && !error.message.contains('\n')
        );
        let echo = ModelError::permanent("no such key: sk-abcdef***xyz, sorry");
        let redacted = redact_key(echo, Some("sk-abcdefghijkl"));
        assert_eq!(redacted.message, "no such key: [key] sorry");
    }
}
