//! A webhook of a tenant, as stores keep it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use abide_conversation::identity::{Role, Tenant};
use abide_conversation::{AgentName, Scoped, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::NoticeKind;

/// The longest name of a webhook.
const MAX_NAME_BYTES: usize = 64;
/// A receiver that failed for this long is failing.
const FAILING_AFTER: Duration = Duration::from_secs(86_400);

/// One life of a webhook, with its tenant: `NAME.GENERATION`. A webhook that is made anew under an
/// old name owes nothing of what the old one owed.
pub type WebhookKey = Scoped<String>;

/// The webhooks of one tenant.
pub type WebhookSet = Arc<[Arc<Webhook>]>;

/// Where a tenant wants to be told of what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Webhook {
    pub tenant: Tenant,
    pub name: String,
    pub generation: String,
    pub url: String,
    /// The types of notices; `None` for all. Names that only newer programs know are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<BTreeSet<String>>,
    /// The agents whose conversations it is about; empty for all.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub agents: BTreeSet<AgentName>,
    /// What the metadata of a conversation must have.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Whether notices of approvals have links that answer, and as whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<LinkSubject>,
    /// The variable that holds the signing secret, instead of `secrets`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_env: Option<String>,
    /// Headers whose values are in variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers_env: BTreeMap<String, String>,
    /// The signing secrets, the newest first. Both sign while one is rotated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<WebhookSecret>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// The subject who made it.
    pub by: String,
    #[serde(default)]
    pub health: WebhookHealth,
    /// When the receiver answered 410: it is told nothing more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// When it was deleted: nobody sees it, and what it owes is being dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_at: Option<Timestamp>,
    /// Whether what an ended webhook owed is dropped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub swept: bool,
}

/// As whom a reply link answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkSubject {
    pub subject: String,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub roles: BTreeSet<Role>,
}

/// A signing secret, `whsec_…`. It is never shown by `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookSecret {
    pub secret: String,
    /// When it stops signing; `None` for the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The request that made it, if that had an `Idempotency-Key`: a repeat makes no other secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<KeyedRequest>,
}

/// A request with an `Idempotency-Key`, whose repeats are recognised for a day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyedRequest {
    /// A fingerprint of its key and its body.
    pub fingerprint: String,
    pub until: Timestamp,
}

/// How the receiver answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookHealth {
    /// Since when every attempt has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Timestamp>,
    /// Failing webhooks only: when the next attempt is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_probe_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error_at: Option<Timestamp>,
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookSecret").field("until", &self.until).finish_non_exhaustive()
    }
}

impl Webhook {
    /// The key of this life of the webhook.
    pub fn key(&self) -> WebhookKey {
        Scoped::new(&self.tenant, &format!("{}.{}", self.name, self.generation))
    }

    /// Whether notices are owed to it.
    pub fn is_active(&self) -> bool {
        self.ended_at.is_none() && self.removed_at.is_none()
    }

    /// Whether it is for notices of this type.
    pub fn wants_kind(&self, kind: NoticeKind) -> bool {
        self.events.as_ref().is_none_or(|events| events.contains(kind.as_str()))
    }

    /// Whether it wants to be told of this.
    pub fn wants(
        &self,
        kind: NoticeKind,
        agent: Option<&AgentName>,
        metadata: &Map<String, Value>,
    ) -> bool {
        let is_agent = |agent: &AgentName| self.agents.contains(agent);
        self.is_active()
            && self.wants_kind(kind)
            && (self.agents.is_empty() || agent.is_some_and(is_agent))
            && self.metadata.iter().all(|(key, value)| metadata.get(key) == Some(value))
    }

    /// Whether the receiver has failed for a day, so that it is tried once an hour.
    pub fn is_failing(&self, now: Timestamp) -> bool {
        self.health.failing_since.is_some_and(|since| {
            let age = Duration::try_from(now.duration_since(since)).unwrap_or_default();
            age >= FAILING_AFTER
        })
    }

    /// The secrets that sign now, the newest first.
    pub fn signing_secrets(&self, now: Timestamp) -> impl Iterator<Item = &str> {
        let valid = self.secrets.iter().filter(move |it| it.until.is_none_or(|until| now < until));
        valid.map(|secret| secret.secret.as_str())
    }
}

/// Whether a text can be the name of a webhook.
pub fn is_webhook_name(text: &str) -> bool {
    let is_first = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_other = |byte: &u8| is_first(byte) || matches!(byte, b'-' | b'_');
    let bytes = text.as_bytes();
    bytes.len() <= MAX_NAME_BYTES
        && bytes.first().is_some_and(is_first)
        && bytes.iter().skip(1).all(is_other)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn webhook() -> Webhook {
        serde_json::from_value(serde_json::json!({
            "tenant": "acme", "name": "ops", "generation": "g1", "url": "https://example.com/",
            "created_at": "2026-01-01T00:00:00.000Z", "updated_at": "2026-01-01T00:00:00.000Z",
            "by": "ann", "secrets": [{"secret": "whsec_c2VjcmV0"}],
        }))
        .unwrap()
    }

    #[test]
    fn a_webhook_wants_what_all_of_its_filters_admit() {
        let kind = NoticeKind::TurnCompleted;
        let (demo, none) = (AgentName::new("demo"), Map::new());
        assert!(webhook().wants(kind, Some(&demo), &none));
        let events = Some(BTreeSet::from(["turn.completed".to_owned(), "later".to_owned()]));
        let some = Webhook { events, ..webhook() };
        assert!(some.wants(kind, Some(&demo), &none));
        assert!(!some.wants(NoticeKind::TurnFailed, Some(&demo), &none));
        let of_agent = Webhook { agents: BTreeSet::from([demo.clone()]), ..webhook() };
        assert!(of_agent.wants(kind, Some(&demo), &none));
        assert!(!of_agent.wants(kind, Some(&AgentName::new("other")), &none));
        let metadata = Map::from_iter([("team".to_owned(), Value::from("blue"))]);
        let of_team = Webhook { metadata: metadata.clone(), ..webhook() };
        assert!(of_team.wants(kind, Some(&demo), &metadata));
        assert!(!of_team.wants(kind, Some(&demo), &none));
        let ended = Webhook { ended_at: Some(Timestamp::UNIX_EPOCH), ..webhook() };
        assert!(!ended.wants(kind, Some(&demo), &none));
    }

    #[test]
    fn an_old_secret_signs_until_its_time_and_none_is_shown() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut webhook = webhook();
        let old =
            WebhookSecret { secret: "whsec_b2xk".to_owned(), until: Some(at(10)), made_by: None };
        webhook.secrets.push(old);
        assert_eq!(webhook.signing_secrets(at(9)).count(), 2);
        assert_eq!(webhook.signing_secrets(at(10)).collect::<Vec<_>>(), ["whsec_c2VjcmV0"]);
        assert!(!format!("{webhook:?}").contains("whsec"));
    }

    #[test]
    fn a_name_is_lower_case_and_has_no_dot() {
        assert!(is_webhook_name("ops-1_b"));
        for wrong in ["", "-a", "A", "a.b", "a/b", "a b", &"a".repeat(65)] {
            assert!(!is_webhook_name(wrong), "{wrong}");
        }
    }
}
