//! The API keys in Redis.

use std::collections::{BTreeMap, HashMap};

use abide_actors::journal::StoreError;
use abide_conversation::{Tenant, Timestamp};
use redis::cmd;

use super::super::super::{KeyList, ScopedKeyId, StoredKey};
use super::super::Redis;
use super::super::command::keys::{self, Tag};
use super::super::rows::decode;

/// The keys, when they were last used, and how often they have changed.
pub(in crate::store::redis) const KEYS: [&str; 3] =
    ["api_keys", "api_keys_used", "api_keys_version"];

impl Redis {
    /// All keys; `None` if they are still as of this version.
    pub(in crate::store::redis) async fn read_api_keys(
        &self,
        known: Option<u64>,
    ) -> Result<Option<KeyList>, StoreError> {
        let [keys, _, version] = KEYS.map(|name| Tag::Agents.key(name));
        let mut command = cmd("GET");
        command.arg(version);
        let version: Option<u64> = self.query_confirmed(Tag::Agents, command).await?;
        let version = version.unwrap_or_default();
        if known == Some(version) {
            return Ok(None);
        }
        // Keys that change meanwhile are read again with the next version.
        let mut command = cmd("HVALS");
        command.arg(keys);
        let keys: Vec<Vec<u8>> = self.query_confirmed(Tag::Agents, command).await?;
        let keys = keys.iter().map(|json| decode::parse::<StoredKey>("api key", json));
        Ok(Some(KeyList { version, keys: keys.collect::<Result<_, _>>()? }))
    }

    /// When the keys of a tenant were last used, by their ids.
    pub(in crate::store::redis) async fn read_api_keys_used(
        &self,
        tenant: &Tenant,
    ) -> Result<BTreeMap<String, Timestamp>, StoreError> {
        let [_, used, _] = KEYS.map(|name| Tag::Agents.key(name));
        let mut command = cmd("HGETALL");
        command.arg(used);
        let used: HashMap<String, f64> = self.query(Tag::Agents, command).await?;
        let used =
            used.into_iter().filter_map(|(id, at)| Some((ScopedKeyId::parse(&id).ok()?, at)));
        let own = used.filter(|(id, _)| id.is_of(tenant));
        Ok(own.map(|(id, at)| (id.local(), keys::time(at))).collect())
    }
}
