//! API keys as stores keep them: never their texts.

use std::collections::BTreeSet;

use abide_conversation::identity::{Role, Tenant};
use abide_conversation::{QueueName, Scoped, Timestamp};
use serde::{Deserialize, Serialize};

/// The id of an API key, together with its tenant.
pub type ScopedKeyId = Scoped<String>;

/// An API key of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredKey {
    pub id: String,
    /// The hex SHA-256 of the whole key.
    pub sha256: String,
    pub tenant: Tenant,
    pub roles: BTreeSet<Role>,
    /// The queues of a worker's key.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub queues: BTreeSet<QueueName>,
    pub name: String,
    /// The subject who made it.
    pub owner: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

impl StoredKey {
    /// The key's id, together with its tenant.
    pub fn scoped_id(&self) -> ScopedKeyId {
        Scoped::new(&self.tenant, &self.id)
    }
}

/// All keys, as of a version that every change raises.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyList {
    pub version: u64,
    pub keys: Vec<StoredKey>,
}

/// A change of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyChange {
    Add(StoredKey),
    /// Replaces what is stored of a key, unless it was removed.
    Update(StoredKey),
    Remove(ScopedKeyId),
}

impl KeyChange {
    /// The id of the key.
    pub fn id(&self) -> ScopedKeyId {
        match self {
            Self::Add(key) | Self::Update(key) => key.scoped_id(),
            Self::Remove(id) => id.clone(),
        }
    }
}
