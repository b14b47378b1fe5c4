//! A webhook as clients give it and see it.

use std::collections::{BTreeMap, BTreeSet};

use abide_actors::notices::{LinkSubject, NoticeKind, Webhook};
use abide_conversation::identity::Role;
use abide_conversation::limits::is_subject;
use abide_conversation::{AgentName, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::http::conversations::agent_name;
use crate::problem::Problem;

const MAX_URL_BYTES: usize = 2_048;
const MAX_AGENTS: usize = 100;
const MAX_METADATA_KEYS: usize = 16;
const MAX_METADATA_BYTES: usize = 4_096;
const MAX_HEADERS: usize = 16;
/// Headers that are the sender's to set.
const OWN_HEADERS: [&str; 8] = [
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
    "content-type",
    "content-length",
    "transfer-encoding",
    "connection",
    "host",
];

/// A webhook to be stored.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = WebhookRequest)]
pub(in crate::http) struct WebhookBody {
    /// Where notices are posted.
    #[schema(max_length = 2048, example = "https://example.com/abide")]
    url: String,
    /// Which notices.
    events: WebhookEvents,
    /// Only of conversations of these agents.
    #[serde(default)]
    #[schema(max_items = 100)]
    agents: Vec<String>,
    /// Only of conversations whose metadata has these members.
    #[serde(default)]
    metadata: Map<String, Value>,
    /// Whether notices of approvals have links that answer.
    links: Option<Links>,
    /// The variable of the nodes that holds the signing secret.
    secret_env: Option<String>,
    /// Headers, each with the variable of the nodes that holds its value.
    #[serde(default)]
    headers_env: BTreeMap<String, String>,
}

/// Which notices a webhook is for: `all`, or a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, expecting = "must be \"all\" or a list of types")]
pub(in crate::http) enum WebhookEvents {
    /// `all`.
    All(AllEvents),
    /// The types of notices.
    Some(Vec<String>),
}

/// Every type of notice.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(in crate::http) enum AllEvents {
    #[serde(rename = "all")]
    All,
}

/// Whether there are links: `true`, or as whom they answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = WebhookLinks)]
pub(in crate::http) enum Links {
    /// As the subject `link:WEBHOOK`, with the role `approver`.
    Plain(bool),
    /// As somebody else.
    As(LinksAs),
}

/// As whom a link answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = WebhookLinkSubject)]
pub(in crate::http) struct LinksAs {
    #[schema(min_length = 1, max_length = 255)]
    subject: String,
    /// Besides `approver`.
    #[serde(default)]
    roles: BTreeSet<Role>,
}

impl WebhookBody {
    /// Checks what can be checked without the tenant's rules.
    pub(super) fn check(&self, has_reply_links: bool) -> Result<(), Problem> {
        if self.url.len() > MAX_URL_BYTES {
            return Err(Problem::field("url", format!("must be at most {MAX_URL_BYTES} bytes")));
        }
        self.check_filters()?;
        if let Some(variable) = &self.secret_env {
            check_variable("secret_env", variable)?;
        }
        if self.headers_env.len() > MAX_HEADERS {
            let rule = format!("must be at most {MAX_HEADERS} headers");
            return Err(Problem::field("headers_env", rule));
        }
        for (name, variable) in &self.headers_env {
            let field = format!("headers_env.{name}");
            if OWN_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
                return Err(Problem::field(&field, "is set by the node"));
            }
            check_variable(&field, variable)?;
        }
        self.check_links(has_reply_links)
    }

    fn check_filters(&self) -> Result<(), Problem> {
        if let WebhookEvents::Some(events) = &self.events {
            if events.is_empty() || events.len() > 50 {
                return Err(Problem::field("events", "must be \"all\", or 1 to 50 types"));
            }
            for (index, event) in events.iter().enumerate() {
                if event.parse::<NoticeKind>().is_err() {
                    let known: Vec<_> = NoticeKind::ALL.iter().map(|kind| kind.as_str()).collect();
                    let rule = format!("must be one of {}", known.join(", "));
                    return Err(Problem::field(&format!("events[{index}]"), rule));
                }
            }
        }
        if self.agents.len() > MAX_AGENTS {
            return Err(Problem::field("agents", format!("must be at most {MAX_AGENTS}")));
        }
        for (index, agent) in self.agents.iter().enumerate() {
            agent_name(agent).map_err(|_| {
                Problem::field(&format!("agents[{index}]"), "is not the name of an agent")
            })?;
        }
        let bytes = serde_json::to_string(&self.metadata).map_or(usize::MAX, |text| text.len());
        if self.metadata.len() > MAX_METADATA_KEYS || bytes > MAX_METADATA_BYTES {
            let rule =
                format!("must be at most {MAX_METADATA_KEYS} keys in {MAX_METADATA_BYTES} bytes");
            return Err(Problem::field("metadata", rule));
        }
        Ok(())
    }

    fn check_links(&self, has_reply_links: bool) -> Result<(), Problem> {
        match &self.links {
            None | Some(Links::Plain(false)) => return Ok(()),
            Some(Links::Plain(true)) => {}
            Some(Links::As(LinksAs { subject, roles })) => {
                if !is_subject(subject) {
                    let rule = "must be 1 to 255 characters without control characters, and not \"system\"";
                    return Err(Problem::field("links.subject", rule));
                }
                if roles.contains(&Role::Operator) {
                    return Err(Problem::field("links.roles", "operator is no role of a tenant"));
                }
            }
        }
        if has_reply_links {
            Ok(())
        } else {
            let rule = "need --public-url, and tokens in the file of --auth";
            Err(Problem::field("links", rule))
        }
    }

    /// Makes a webhook what the body says.
    pub(super) fn apply(&self, webhook: &mut Webhook) {
        if webhook.url != self.url {
            webhook.url.clone_from(&self.url);
            webhook.health = Default::default();
        }
        webhook.events = match &self.events {
            WebhookEvents::All(_) => None,
            WebhookEvents::Some(events) => Some(events.iter().cloned().collect()),
        };
        webhook.agents = self.agents.iter().map(|name| AgentName::new(name.as_str())).collect();
        webhook.metadata = self.metadata.clone();
        webhook.secret_env.clone_from(&self.secret_env);
        webhook.headers_env = self.headers_env.clone();
        webhook.links = match &self.links {
            None | Some(Links::Plain(false)) => None,
            Some(Links::Plain(true)) => {
                let subject = format!("link:{}", webhook.name);
                Some(LinkSubject { subject, roles: BTreeSet::new() })
            }
            Some(Links::As(LinksAs { subject, roles })) => {
                Some(LinkSubject { subject: subject.clone(), roles: roles.clone() })
            }
        };
    }

    /// What the operators' audit has of the request. The URL's query may hold a secret.
    pub(super) fn excerpt(&self) -> Value {
        let Self { url, events, agents, links, .. } = self;
        let url = url.split(['?', '#']).next().unwrap_or_default();
        json!({"url": url, "events": events, "agents": agents, "links": links})
    }
}

fn check_variable(field: &str, name: &str) -> Result<(), Problem> {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_other = |c: char| is_first(c) || c.is_ascii_digit();
    let is_name = name.len() <= 255 && name.starts_with(is_first) && name.chars().all(is_other);
    // Those of the node itself are nobody's to send.
    if name.to_ascii_uppercase().starts_with("ABIDE_") {
        return Err(Problem::field(field, "must not begin with ABIDE_"));
    }
    if is_name { Ok(()) } else { Err(Problem::field(field, "is not the name of a variable")) }
}

/// How a webhook is.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::http) enum WebhookState {
    Active,
    /// The receiver has failed for a day, and is tried once an hour.
    Failing,
    /// The receiver answered 410 and is told nothing more.
    Ended,
}

/// A webhook without its secret.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Webhook)]
pub(in crate::http) struct WebhookRow {
    name: String,
    url: String,
    events: WebhookEvents,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    agents: Vec<AgentName>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    metadata: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    links: Option<LinksAs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret_env: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers_env: BTreeMap<String, String>,
    state: WebhookState,
    created_at: Timestamp,
    updated_at: Timestamp,
    /// The subject who made it.
    by: String,
    /// Since when every attempt has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    failing_since: Option<Timestamp>,
    /// Failing webhooks only: when the receiver is tried next.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    /// Up to a minute late.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error_at: Option<Timestamp>,
}

impl WebhookRow {
    pub(super) fn of(webhook: &Webhook, now: Timestamp) -> Self {
        let state = match webhook.ended_at {
            Some(_) => WebhookState::Ended,
            None if webhook.is_failing(now) => WebhookState::Failing,
            None => WebhookState::Active,
        };
        let events = match &webhook.events {
            None => WebhookEvents::All(AllEvents::All),
            Some(events) => WebhookEvents::Some(events.iter().cloned().collect()),
        };
        let links = webhook
            .links
            .as_ref()
            .map(|links| LinksAs { subject: links.subject.clone(), roles: links.roles.clone() });
        let health = &webhook.health;
        Self {
            name: webhook.name.clone(),
            url: webhook.url.clone(),
            events,
            agents: webhook.agents.iter().cloned().collect(),
            metadata: webhook.metadata.clone(),
            links,
            secret_env: webhook.secret_env.clone(),
            headers_env: webhook.headers_env.clone(),
            state,
            created_at: webhook.created_at,
            updated_at: webhook.updated_at,
            by: webhook.by.clone(),
            failing_since: health.failing_since,
            next_attempt_at: health.next_probe_at,
            last_error: health.last_error.clone(),
            last_error_at: health.last_error_at,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}
