//! The signing secrets of webhooks. A repeat of the request that made one makes no other.

use abide_actors::journal::RESPONSE_TTL;
use abide_actors::notices::{KeyedRequest, Webhook, WebhookSecret};
use abide_actors::request::IdempotencyKey;
use abide_conversation::Timestamp;
use aws_lc_rs::rand;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::http::extract;
use crate::http::problem::{Kind, Problem};

/// Standard Webhooks asks for 24 to 64.
const SECRET_BYTES: usize = 32;

/// A request with these keys, of now.
fn keyed_request(keys: &[IdempotencyKey], now: Timestamp) -> Option<KeyedRequest> {
    let key = keys.first()?;
    let fingerprint = extract::fingerprint(&[&key.key, &key.fingerprint]);
    let until = now.checked_add(RESPONSE_TTL).unwrap_or(Timestamp::MAX);
    Some(KeyedRequest { fingerprint, until })
}

/// The secret that the first request with these keys has made, although its answer was not kept: the
/// node died in between, or is about to answer.
pub(super) fn made_by(
    webhook: &Webhook,
    keys: &[IdempotencyKey],
    now: Timestamp,
) -> Option<String> {
    let KeyedRequest { fingerprint, .. } = keyed_request(keys, now)?;
    let is_it = |first: &KeyedRequest| first.fingerprint == fingerprint && now < first.until;
    let made = webhook.secrets.iter().find(|secret| secret.made_by.as_ref().is_some_and(is_it))?;
    Some(made.secret.clone())
}

/// Makes a secret for a webhook that has none. Returns it, to be shown.
pub(super) fn ensure(
    webhook: &mut Webhook,
    keys: &[IdempotencyKey],
    now: Timestamp,
) -> Result<Option<String>, Problem> {
    if webhook.secret_env.is_some() {
        webhook.secrets.clear();
        return Ok(None);
    }
    if !webhook.secrets.is_empty() {
        return Ok(None);
    }
    let newest = generate(keys, now)?;
    let secret = newest.secret.clone();
    webhook.secrets.push(newest);
    Ok(Some(secret))
}

pub(super) fn generate(keys: &[IdempotencyKey], now: Timestamp) -> Result<WebhookSecret, Problem> {
    let mut bytes = [0; SECRET_BYTES];
    rand::fill(&mut bytes)
        .map_err(|_| Problem::new(Kind::Internal, "the system has no randomness"))?;
    let secret = format!("whsec_{}", BASE64_STANDARD.encode(bytes));
    Ok(WebhookSecret { secret, until: None, made_by: keyed_request(keys, now) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_request_that_made_a_secret_is_known_for_a_day() {
        let at = |hour: i64| Timestamp::from_second(hour * 3_600).unwrap();
        let key = |fingerprint: &str| IdempotencyKey {
            key: "key:r".to_owned(),
            fingerprint: fingerprint.to_owned(),
            field: "Idempotency-Key".into(),
        };
        let mut webhook: Webhook = serde_json::from_value(json!({
            "tenant": "default", "name": "ops", "generation": "w_1", "url": "https://example.com",
            "created_at": at(0), "updated_at": at(0), "by": "key:a",
        }))
        .unwrap();
        let secret = ensure(&mut webhook, &[key("a")], at(0)).unwrap();
        assert!(secret.is_some());
        assert_eq!(made_by(&webhook, &[key("a")], at(23)), secret);
        assert_eq!(made_by(&webhook, &[key("a")], at(25)), None);
        assert_eq!(made_by(&webhook, &[key("b")], at(1)), None);
        assert_eq!(made_by(&webhook, &[], at(1)), None);
    }
}
