//! The signing secrets of webhooks. A repeat of the request that made one makes no other.

use abide_actors::notices::{Webhook, WebhookSecret};
use abide_actors::request::IdempotencyKey;
use aws_lc_rs::rand;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::http::extract;
use crate::http::problem::{Kind, Problem};

/// Standard Webhooks asks for 24 to 64.
const SECRET_BYTES: usize = 32;

/// What a secret is marked with that a request with these keys makes.
fn mark(keys: &[IdempotencyKey]) -> Option<String> {
    keys.first().map(|key| extract::fingerprint(&[&key.key, &key.fingerprint]))
}

/// The secret that the first request with these keys has made, although its answer was not kept: the
/// node died in between, or is about to answer.
pub(super) fn made_by(webhook: &Webhook, keys: &[IdempotencyKey]) -> Option<String> {
    let mark = mark(keys)?;
    let made = webhook.secrets.iter().find(|secret| secret.made_by.as_ref() == Some(&mark))?;
    Some(made.secret.clone())
}

/// Makes a secret for a webhook that has none. Returns it, to be shown.
pub(super) fn ensure(
    webhook: &mut Webhook,
    keys: &[IdempotencyKey],
) -> Result<Option<String>, Problem> {
    if webhook.secret_env.is_some() {
        webhook.secrets.clear();
        return Ok(None);
    }
    if !webhook.secrets.is_empty() {
        return Ok(None);
    }
    let newest = generate(keys)?;
    let secret = newest.secret.clone();
    webhook.secrets.push(newest);
    Ok(Some(secret))
}

pub(super) fn generate(keys: &[IdempotencyKey]) -> Result<WebhookSecret, Problem> {
    let mut bytes = [0; SECRET_BYTES];
    rand::fill(&mut bytes)
        .map_err(|_| Problem::new(Kind::Internal, "the system has no randomness"))?;
    let secret = format!("whsec_{}", BASE64_STANDARD.encode(bytes));
    Ok(WebhookSecret { secret, until: None, made_by: mark(keys) })
}
