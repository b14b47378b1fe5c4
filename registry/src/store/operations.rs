//! The operators' audit as a port: what operators and administrators did, in chains of entries of
//! which each has the hash of the one before it (`reference/admin.md`).

use std::str::FromStr;

use abide_actors::journal::{StoreError, StoredResponse};
use abide_conversation::identity::{Identity, Tenant};
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{AgentName, BlobId, ErasureId, Principal, Revision, Scoped, Timestamp};
use async_trait::async_trait;
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{KeyChange, RolloutChange, StoredAgent, WebhookChange};

/// How many entries a chain keeps; the oldest are dropped, and the first that is left is the anchor
/// of the rest. The tests of this crate fill a chain.
pub const MAX_OPERATIONS: u64 = if cfg!(test) { 40 } else { 100_000 };

/// How much an entry has of the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditLevel {
    /// Who did what to what, and when.
    #[default]
    Metadata,
    /// The body of the request, too, without its secrets.
    Request,
}

impl FromStr for AuditLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "metadata" => Ok(Self::Metadata),
            "request" => Ok(Self::Request),
            _ => Err("must be metadata or request".to_owned()),
        }
    }
}

/// What somebody does, before it has its place in the chains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    pub at: Timestamp,
    /// The tenant whose things the operation is about; absent if it is about the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Tenant>,
    pub by: Principal,
    /// Who does it; absent if nobody was authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// What is done, such as `agent.put`.
    pub operation: String,
    /// What it is done to, as its tenant calls it.
    pub target: String,
    pub level: AuditLevel,
    /// The beginning of the body of the request as JSON, if the level asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// What is carried out together with an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// The caller carries it out, after the entry is written.
    Follows,
    /// As [`Store::put_agent_if`](super::Store::put_agent_if).
    PutAgent {
        tenant: Tenant,
        agent: StoredAgent,
        response: Option<StoredResponse>,
        /// The newest revision of the name until then; `None` if the name has none.
        newest: Option<Revision>,
    },
    /// As [`Store::delete_agent`](super::Store::delete_agent).
    DeleteAgent { name: Scoped<AgentName>, response: Option<StoredResponse> },
    /// Begins, changes or ends the rollout of an agent. Nothing is done if there is none to end, or
    /// if the agent or the revision is not there, or the revision is the newest.
    ChangeRollout(RolloutChange),
    /// As [`Store::set_decision`](super::Store::set_decision), of a decision that is there.
    ReplaceDecision { agent: Scoped<AgentName>, decision: RememberedDecision },
    /// As [`Store::change_key`](super::Store::change_key).
    ChangeKey(KeyChange),
    /// As [`Blobs::delete_blob`](abide_actors::blobs::Blobs::delete_blob). A store that has the blob
    /// elsewhere than the chains writes the entry first.
    DeleteBlob(Scoped<BlobId>),
    /// As [`Outbox::change_webhooks`](super::Outbox::change_webhooks).
    ChangeWebhooks(WebhookChange),
}

impl Effect {
    /// Whether there is nothing to do, and so nothing to write down, where the thing is missing or
    /// another one.
    pub(super) fn needs_target(&self) -> bool {
        match self {
            Self::PutAgent { .. }
            | Self::DeleteAgent { .. }
            | Self::ChangeRollout(_)
            | Self::ReplaceDecision { .. }
            | Self::ChangeKey(KeyChange::Update(_) | KeyChange::Remove(_))
            | Self::DeleteBlob(_)
            | Self::ChangeWebhooks(_) => true,
            Self::Follows | Self::ChangeKey(KeyChange::Add(_)) => false,
        }
    }
}

/// What became of an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationOutcome {
    /// As the call of the effect answers: whether the thing was there, or the newest revision was the
    /// expected one; `true` if the effect follows.
    pub answer: bool,
    /// The entry in the chain of the cluster; `None` if there was nothing to do.
    pub entry: Option<ChainEntry>,
}

/// An entry as it is stored. Members that a later version adds stay, so that the hash still fits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChainEntry(Map<String, Value>);

impl ChainEntry {
    /// The entry of an operation that follows the end of a chain.
    pub fn after(end: &ChainEnd, operation: &Operation) -> Result<Self, StoreError> {
        let refused = |error: serde_json::Error| StoreError::Unavailable(error.to_string());
        let Value::Object(mut members) = serde_json::to_value(operation).map_err(refused)? else {
            return Err(StoreError::Unavailable("an operation is no object".to_owned()));
        };
        members.insert("seq".to_owned(), Value::from(end.seq.saturating_add(1)));
        members.insert("previous".to_owned(), Value::from(end.hash.clone()));
        let hash = digest(&members)?;
        members.insert("hash".to_owned(), Value::from(hash));
        Ok(Self(members))
    }

    /// The number of the entry in its chain, which counts from 1 without gaps.
    pub fn seq(&self) -> u64 {
        self.0.get("seq").and_then(Value::as_u64).unwrap_or_default()
    }

    /// The hash of the entry before it.
    pub fn previous(&self) -> &str {
        self.text("previous")
    }

    /// The hash of the entry.
    pub fn hash(&self) -> &str {
        self.text("hash")
    }

    /// The chain up to this entry.
    pub fn end(&self) -> ChainEnd {
        ChainEnd { seq: self.seq(), hash: self.hash().to_owned() }
    }

    fn text(&self, member: &str) -> &str {
        self.0.get(member).and_then(Value::as_str).unwrap_or_default()
    }

    /// The tenant that the entry is about, if any.
    pub fn tenant(&self) -> Option<Tenant> {
        Tenant::parse(self.text("tenant")).ok()
    }

    /// Whether the entry is about something of the tenant.
    pub fn is_of(&self, tenant: &Tenant) -> bool {
        self.text("tenant") == tenant.as_str()
    }

    /// The entry without what names the subject, for which the erasure stands; `None` if nothing
    /// does. Its hash stays that of the whole entry.
    pub fn redacted(&self, subject: &str, erasure: &ErasureId) -> Option<Self> {
        let mut members = self.0.clone();
        let mut removed = Vec::new();
        for member in ["by", "target"] {
            if self.text(member) == subject {
                members.insert(member.to_owned(), Value::from(format!("erasure:{erasure}")));
                removed.push(member);
            }
        }
        let is_named = |value: &Value| names(value, subject);
        let has_identity = self.0.get("identity").is_some_and(is_named);
        for (member, is_there) in
            [("identity", has_identity), ("request", self.text("request").contains(subject))]
        {
            if is_there {
                members.shift_remove(member);
                removed.push(member);
            }
        }
        if removed.is_empty() {
            return None;
        }
        // A second erasure adds to the first.
        let before = self.0.get(REDACTED).and_then(|it| it.get("members")?.as_array().cloned());
        let removed = before.into_iter().flatten().chain(removed.into_iter().map(Value::from));
        let mark = json!({"erasure": erasure, "members": removed.collect::<Vec<_>>()});
        members.insert(REDACTED.to_owned(), mark);
        Some(Self(members))
    }

    /// Whether an erasure has removed something: the hash can no longer be computed.
    pub fn is_redacted(&self) -> bool {
        self.0.get(REDACTED).is_some_and(Value::is_object)
    }

    /// Whether the hash is that of the other members, as far as it can be computed.
    fn is_whole(&self) -> bool {
        let mut members = self.0.clone();
        members.shift_remove("hash");
        self.is_redacted() || digest(&members).is_ok_and(|hash| hash == self.hash())
    }
}

/// The member that marks an entry of which an erasure has removed something.
const REDACTED: &str = "redacted";

/// Whether a text of this value is the subject.
fn names(value: &Value, subject: &str) -> bool {
    match value {
        Value::String(text) => text == subject,
        Value::Array(values) => values.iter().any(|value| names(value, subject)),
        Value::Object(members) => members.values().any(|value| names(value, subject)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The last entry of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainEnd {
    pub seq: u64,
    pub hash: String,
}

impl Default for ChainEnd {
    fn default() -> Self {
        Self { seq: 0, hash: "0".repeat(64) }
    }
}

/// Why entries are not a chain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    #[error("entry {0} was changed: its hash does not fit")]
    Changed(u64),
    #[error("entry {found} does not follow entry {last}")]
    Broken { last: u64, found: u64 },
}

/// Checks that nothing was changed, added or removed between the first and the last of these
/// entries. What the first one follows is for the caller to know.
///
/// An entry that is [redacted](ChainEntry::is_redacted) is checked for its place in the chain alone.
pub fn verify_chain(entries: &[ChainEntry]) -> Result<(), ChainError> {
    if let Some(changed) = entries.iter().find(|entry| !entry.is_whole()) {
        return Err(ChainError::Changed(changed.seq()));
    }
    for pair in entries.windows(2) {
        let [last, found] = pair else { continue };
        if found.seq() != last.seq().saturating_add(1) || found.previous() != last.hash() {
            return Err(ChainError::Broken { last: last.seq(), found: found.seq() });
        }
    }
    Ok(())
}

/// The chains of the operators' audit: one of the cluster, which has every entry, and one of each
/// tenant, which has those about the tenant's things.
#[async_trait]
pub trait OperationLog: Send + Sync + 'static {
    /// Writes the entry of an operation into its chains and carries the effect out. Both happen or
    /// neither, in one step, except as [`Effect`] says. After `Unavailable` the outcome is unknown.
    async fn operate(
        &self,
        operation: &Operation,
        effect: Effect,
    ) -> Result<OperationOutcome, StoreError>;

    /// At most `limit` entries with `seq > after`, oldest first, of the chain of a tenant, or of the
    /// cluster's.
    async fn operations(
        &self,
        tenant: Option<&Tenant>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<ChainEntry>, StoreError>;
}

/// The hex SHA-256 of the canonical JSON (RFC 8785) of these members.
fn digest(members: &Map<String, Value>) -> Result<String, StoreError> {
    let text = serde_json_canonicalizer::to_vec(members);
    let text = text.map_err(|error| StoreError::Unavailable(error.to_string()))?;
    Ok(HEXLOWER.encode(&Sha256::digest(text)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn operation(target: &str) -> Operation {
        Operation {
            at: Timestamp::from_second(1_900_000_000).unwrap(),
            tenant: Some(Tenant::default()),
            by: Principal::new("operator"),
            identity: None,
            operation: "agent.put".to_owned(),
            target: target.to_owned(),
            level: AuditLevel::Metadata,
            request: None,
        }
    }

    fn chain() -> Vec<ChainEntry> {
        let mut end = ChainEnd::default();
        let entry = |target: &str| {
            let entry = ChainEntry::after(&end, &operation(target)).unwrap();
            end = entry.end();
            entry
        };
        ["a", "b", "c"].map(entry).to_vec()
    }

    /// The procedure in the book gives this hash, too.
    #[test]
    fn the_hash_of_an_entry_never_changes() {
        let first = &chain()[0];
        let json = r#"{"at":"2030-03-17T17:46:40.000Z","by":"operator","level":"metadata","operation":"agent.put","previous":"0000000000000000000000000000000000000000000000000000000000000000","seq":1,"target":"a","tenant":"default"}"#;
        let digest = Sha256::digest(json);
        assert_eq!(first.hash(), HEXLOWER.encode(&digest));
    }

    #[test]
    fn a_changed_a_removed_and_an_exchanged_entry_break_the_chain() {
        let whole = chain();
        assert_eq!(verify_chain(&whole), Ok(()));
        assert_eq!(verify_chain(&whole[1..]), Ok(()), "the oldest may be dropped");
        let mut changed = whole.clone();
        changed[1].0.insert("by".to_owned(), Value::from("eve"));
        assert_eq!(verify_chain(&changed), Err(ChainError::Changed(2)));
        let removed = [whole[0].clone(), whole[2].clone()];
        assert_eq!(verify_chain(&removed), Err(ChainError::Broken { last: 1, found: 3 }));
        let mut forged = operation("b");
        forged.by = Principal::new("eve");
        let forged = ChainEntry::after(&whole[0].end(), &forged).unwrap();
        let exchanged = [whole[0].clone(), forged, whole[2].clone()];
        assert_eq!(verify_chain(&exchanged), Err(ChainError::Broken { last: 2, found: 3 }));
    }

    #[test]
    fn a_redacted_entry_names_the_erasure_and_keeps_its_place_in_the_chain() {
        let erasure = ErasureId::new("er_1");
        let mut end = ChainEnd::default();
        let chain = ["zora", "bob", "zora"].map(|name| {
            let mut operation = operation("demo");
            operation.by = Principal::new(name);
            operation.request = Some(format!("{{\"owner\":\"{name}\"}}"));
            let entry = ChainEntry::after(&end, &operation).unwrap();
            end = entry.end();
            entry
        });
        let redact = |entry: &ChainEntry| entry.redacted("zora", &erasure);
        assert_eq!(redact(&chain[1]), None);
        let redacted = [redact(&chain[0]).unwrap(), chain[1].clone(), redact(&chain[2]).unwrap()];
        assert_eq!(verify_chain(&redacted), Ok(()));
        let text = serde_json::to_string(&redacted).unwrap();
        assert!(!text.contains("zora") && text.contains("\"by\":\"erasure:er_1\""), "{text}");
        assert_eq!(redact(&redacted[0]), None, "a repeat changes nothing");
        let removed = [redacted[0].clone(), redacted[2].clone()];
        assert_eq!(verify_chain(&removed), Err(ChainError::Broken { last: 1, found: 3 }));
    }

    #[test]
    fn members_of_a_later_version_are_kept_and_part_of_the_hash() {
        let mut members = chain()[0].0.clone();
        members.shift_remove("hash");
        members.insert("later".to_owned(), Value::from(1));
        let hash = digest(&members).unwrap();
        members.insert("hash".to_owned(), Value::from(hash));
        let text = serde_json::to_string(&members).unwrap();
        let read: ChainEntry = serde_json::from_str(&text).unwrap();
        assert_eq!(verify_chain(std::slice::from_ref(&read)), Ok(()));
        assert_eq!(serde_json::to_value(&read).unwrap()["later"], 1);
    }
}
