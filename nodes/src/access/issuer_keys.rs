//! An issuer's keys, read from its URL when they are needed and kept while it is away.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::StreamExt;
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use url::Url;

use super::credential_error::CredentialError;
use super::document::{JwksSource, is_safe};
use super::key_set::{KeySet, VerifyingKey};

/// How often an issuer is asked for a key that it does not seem to have.
const UNKNOWN_KID_INTERVAL: Duration = Duration::from_secs(60);
/// How often an issuer that did not answer is asked again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// A key that the issuer withdrew is accepted for this long at most, and for one answer more.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// How long known keys hold while their issuer is away.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// How long an issuer may take to answer.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest answer of an issuer.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// The keys of one issuer; cheap to clone.
#[derive(Clone)]
pub(super) struct IssuerKeys(Arc<Shared>);

struct Shared {
    issuer: String,
    source: Source,
    known: RwLock<Known>,
    /// Held by the one request that asks the issuer; the others wait for its answer.
    fetching: Mutex<()>,
    client: reqwest::Client,
}

enum Source {
    Url(Url),
    Discovery(Url),
    File,
}

/// The keys that the issuer last had, and when it was last asked.
#[derive(Clone, Default)]
struct Known {
    keys: Option<Arc<KeySet>>,
    /// When the issuer last answered.
    fetched_at: Option<Instant>,
    /// When it was last asked, and whether it answered.
    attempt: Option<(Instant, bool)>,
    /// When it was last asked for a key that it did not seem to have.
    asked_for_unknown_at: Option<Instant>,
}

/// What to do for a key that is needed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Use,
    /// Use what is known, and ask the issuer meanwhile.
    UseAndRefresh,
    Fetch,
    UnknownKid,
    Unavailable,
}

impl Known {
    /// Decides without asking anybody. `is_known` says whether the key is among those that are known.
    fn plan(&self, is_known: bool, now: Instant) -> Plan {
        let age = |at: Instant| now.saturating_duration_since(at);
        let is_fresh = |max: Duration| self.fetched_at.is_some_and(|at| age(at) < max);
        let has_failed = self.attempt.is_some_and(|(_, answered)| !answered);
        let may_retry = self.attempt.is_none_or(|(at, _)| age(at) >= RETRY_INTERVAL);
        let was_asked = self.asked_for_unknown_at.is_some_and(|at| age(at) < UNKNOWN_KID_INTERVAL);
        if is_known && is_fresh(MAX_AGE) {
            let is_due = !is_fresh(REFRESH_INTERVAL) && may_retry;
            return if is_due { Plan::UseAndRefresh } else { Plan::Use };
        }
        match (has_failed, self.keys.is_some() && is_fresh(MAX_AGE)) {
            (true, _) if !may_retry => Plan::Unavailable,
            (false, true) if was_asked => Plan::UnknownKid,
            (true, true) if was_asked => Plan::Unavailable,
            (true | false, _) => Plan::Fetch,
        }
    }
}

impl IssuerKeys {
    /// The keys of an issuer, none of which is known yet unless they are in a file.
    pub(super) fn new(issuer: &str, source: &JwksSource, client: reqwest::Client) -> Self {
        let mut known = Known::default();
        let source = match source {
            JwksSource::Url(url) => Source::Url(url.clone()),
            JwksSource::Discovery(url) => Source::Discovery(url.clone()),
            JwksSource::File(keys) => {
                known.keys = Some(Arc::new(keys.clone()));
                Source::File
            }
        };
        let shared = Shared {
            issuer: issuer.to_owned(),
            source,
            known: RwLock::new(known),
            fetching: Mutex::new(()),
            client,
        };
        Self(Arc::new(shared))
    }

    /// Whether these are the keys of that source, which another file may name, too. A file was read anew.
    pub(super) fn are_from(&self, source: &JwksSource) -> bool {
        match (&self.0.source, source) {
            (Source::Url(own), JwksSource::Url(other))
            | (Source::Discovery(own), JwksSource::Discovery(other)) => own == other,
            (Source::Url(_) | Source::Discovery(_) | Source::File, _) => false,
        }
    }

    /// The key of this id.
    pub(super) async fn find(&self, kid: Option<&str>) -> Result<VerifyingKey, CredentialError> {
        let (key, plan) = self.look(kid);
        match (plan, key) {
            (Plan::Use, Some(key)) => Ok(key),
            (Plan::UseAndRefresh, Some(key)) => {
                let (keys, kid) = (self.clone(), kid.map(str::to_owned));
                tokio::spawn(async move {
                    keys.fetch_once(Plan::UseAndRefresh, kid.as_deref()).await;
                });
                Ok(key)
            }
            (Plan::Fetch, _) => {
                self.fetch_once(Plan::Fetch, kid).await;
                match self.look(kid) {
                    (Some(key), Plan::Use | Plan::UseAndRefresh) => Ok(key),
                    (_, Plan::Unavailable | Plan::Fetch) => Err(CredentialError::Unavailable),
                    _ => Err(CredentialError::UnknownKid),
                }
            }
            (Plan::Unavailable, _) => Err(CredentialError::Unavailable),
            _ => Err(CredentialError::UnknownKid),
        }
    }

    fn look(&self, kid: Option<&str>) -> (Option<VerifyingKey>, Plan) {
        let known = self.0.known.read().unwrap_or_else(PoisonError::into_inner);
        let key = known.keys.as_ref().and_then(|keys| keys.find(kid).cloned());
        let plan = match (&self.0.source, &key) {
            (Source::File, Some(_)) => Plan::Use,
            (Source::File, None) => Plan::UnknownKid,
            (Source::Url(_) | Source::Discovery(_), key) => {
                known.plan(key.is_some(), Instant::now())
            }
        };
        (key, plan)
    }

    /// Asks the issuer, unless somebody else has asked meanwhile so that the plan is another now.
    async fn fetch_once(&self, plan: Plan, kid: Option<&str>) {
        let _fetching = self.0.fetching.lock().await;
        if self.look(kid).1 != plan {
            return;
        }
        let fetched = timeout(FETCH_TIMEOUT, self.fetch()).await;
        let fetched = fetched.unwrap_or_else(|_| Err("it did not answer in time".to_owned()));
        let now = Instant::now();
        let mut known = self.0.known.write().unwrap_or_else(PoisonError::into_inner);
        known.attempt = Some((now, fetched.is_ok()));
        if plan == Plan::Fetch && known.keys.is_some() {
            known.asked_for_unknown_at = Some(now);
        }
        match fetched {
            Ok(keys) => {
                known.keys = Some(Arc::new(keys));
                known.fetched_at = Some(now);
            }
            Err(reason) => {
                tracing::warn!(issuer = self.0.issuer, reason, "issuer's keys not read");
            }
        }
        metrics::counter!("abide_auth_key_fetches_total",
            "result" => if known.attempt.is_some_and(|(_, ok)| ok) { "ok" } else { "failed" })
        .increment(1);
    }

    async fn fetch(&self) -> Result<KeySet, String> {
        let url = match &self.0.source {
            Source::File => return Err("its keys are in a file".to_owned()),
            Source::Url(url) => url.clone(),
            Source::Discovery(url) => self.discover(url.clone()).await?,
        };
        KeySet::parse(&self.get(url).await?).map_err(|error| error.to_string())
    }

    /// The URL of the keys, as the issuer's OpenID configuration names it.
    async fn discover(&self, url: Url) -> Result<Url, String> {
        #[derive(Deserialize)]
        struct Configuration {
            issuer: String,
            jwks_uri: String,
        }
        let json = self.get(url).await?;
        let found: Configuration = serde_json::from_slice(&json)
            .map_err(|error| format!("its OpenID configuration cannot be read: {error}"))?;
        if found.issuer != self.0.issuer {
            return Err("its OpenID configuration is that of another issuer".to_owned());
        }
        let url = Url::parse(&found.jwks_uri).ok().filter(is_safe);
        url.ok_or_else(|| "its jwks_uri has neither https nor a loopback host".to_owned())
    }

    async fn get(&self, url: Url) -> Result<Vec<u8>, String> {
        let answer = self.0.client.get(url).send().await;
        let answer = answer.and_then(reqwest::Response::error_for_status);
        let answer = answer.map_err(|error| error.without_url().to_string())?;
        if !answer.status().is_success() {
            return Err(format!("it answered {}", answer.status()));
        }
        let mut body = Vec::new();
        let mut pieces = answer.bytes_stream();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| error.without_url().to_string())?;
            if body.len() + piece.len() > MAX_ANSWER_BYTES {
                return Err("its answer is too large".to_owned());
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn an_issuer_is_asked_seldom_and_its_keys_hold_for_a_day() {
        let second = Duration::from_secs(1);
        let now = Instant::now() + 2 * MAX_AGE;
        let before = |age: Duration| now - age;
        for (what, fetched, attempt, asked, is_known, plan) in [
            ("never asked", None, None, None, false, Plan::Fetch),
            ("known", Some(second), Some((second, true)), None, true, Plan::Use),
            ("old", Some(6 * MINUTE), Some((6 * MINUTE, true)), None, true, Plan::UseAndRefresh),
            ("away", Some(6 * MINUTE), Some((second, false)), None, true, Plan::Use),
            ("away", Some(MAX_AGE / 2), Some((MINUTE, false)), None, true, Plan::UseAndRefresh),
            ("away for a day", Some(MAX_AGE), Some((second, false)), None, true, Plan::Unavailable),
            ("away, never known", None, Some((second, false)), None, false, Plan::Unavailable),
            ("away, later", None, Some((RETRY_INTERVAL, false)), None, false, Plan::Fetch),
            ("unknown", Some(second), Some((second, true)), None, false, Plan::Fetch),
            (
                "unknown, asked",
                Some(second),
                Some((second, true)),
                Some(second),
                false,
                Plan::UnknownKid,
            ),
            (
                "unknown, asked long ago",
                Some(MINUTE),
                Some((MINUTE, true)),
                Some(MINUTE),
                false,
                Plan::Fetch,
            ),
            (
                "unknown and away",
                Some(MINUTE),
                Some((second, false)),
                Some(second),
                false,
                Plan::Unavailable,
            ),
        ] {
            let known = Known {
                keys: fetched.map(|_| Arc::default()),
                fetched_at: fetched.map(before),
                attempt: attempt.map(|(age, answered)| (before(age), answered)),
                asked_for_unknown_at: asked.map(before),
            };
            assert_eq!(known.plan(is_known, now), plan, "{what}");
        }
    }
}
