//! The API keys that stand in the file, as digests.

use std::collections::{BTreeMap, BTreeSet};

use abide_conversation::QueueName;
use abide_conversation::identity::{Role, Tenant};
use serde::Deserialize;
use serde_json::Value;

use super::reader::Reader;
use crate::access::api_key::{KeyDigest, is_key_id};

/// A key of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticKey {
    pub digest: KeyDigest,
    /// `None` for a key that has the role of an operator alone.
    pub tenant: Option<Tenant>,
    pub roles: BTreeSet<Role>,
    /// The queues of a worker's key.
    pub queues: BTreeSet<QueueName>,
    pub name: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    sha256: String,
    tenant: Option<String>,
    roles: Vec<String>,
    #[serde(default)]
    queues: Vec<String>,
    name: Option<String>,
}

pub(super) fn read(
    section: Option<&Value>,
    tenants: &BTreeSet<&Tenant>,
    reader: &mut Reader,
) -> BTreeMap<String, StaticKey> {
    let mut keys = BTreeMap::new();
    for (path, entry) in reader.list::<Entry>("keys", section) {
        let Entry { id, sha256, tenant, roles, queues, name } = entry;
        if !is_key_id(&id) {
            reader.mistake(&format!("{path}.id"), "must be 1 to 64 of A-Z a-z 0-9 -");
        }
        let digest = KeyDigest::parse(&sha256).unwrap_or_else(|| {
            reader.mistake(&format!("{path}.sha256"), "must be 64 hex digits");
            KeyDigest::default()
        });
        let roles = read_roles(&format!("{path}.roles"), &roles, reader);
        let tenant = read_tenant(&format!("{path}.tenant"), tenant.as_deref(), tenants, reader);
        let is_operator = roles.iter().eq([&Role::Operator]);
        if tenant.is_none() && !is_operator && !roles.is_empty() {
            let rule = "is required unless the only role is operator";
            reader.mistake(&format!("{path}.tenant"), rule);
        }
        let queues = read_queues(&path, &queues, &roles, reader);
        let key = StaticKey { digest, tenant, roles, queues, name };
        if keys.insert(id, key).is_some() {
            reader.mistake(&format!("{path}.id"), "is the id of another key");
        }
    }
    keys
}

/// The queues of a worker's key, which has no other role.
fn read_queues(
    path: &str,
    names: &[String],
    roles: &BTreeSet<Role>,
    reader: &mut Reader,
) -> BTreeSet<QueueName> {
    if let Err((field, rule)) = check_worker(roles, !names.is_empty()) {
        reader.mistake(&format!("{path}.{field}"), rule);
    }
    let mut queues = BTreeSet::new();
    for (index, name) in names.iter().enumerate() {
        match QueueName::parse(name) {
            Some(queue) => drop(queues.insert(queue)),
            None => reader.mistake(&format!("{path}.queues[{index}]"), QUEUE_RULE),
        }
    }
    queues
}

/// What the name of a queue must be.
pub(crate) const QUEUE_RULE: &str = "must be [a-z0-9][a-z0-9_-]{0,63}";

/// A worker's key names its queues and does nothing else; no other key names any. The error names the
/// field.
pub(crate) fn check_worker(
    roles: &BTreeSet<Role>,
    has_queues: bool,
) -> Result<(), (&'static str, &'static str)> {
    match (roles.contains(&Role::Worker), has_queues) {
        (true, false) => Err(("queues", "must name the queues of a worker")),
        (false, true) => Err(("queues", "is for the role worker only")),
        (true, true) if roles.len() > 1 => Err(("roles", "a worker has no other role")),
        (true, true) | (false, false) => Ok(()),
    }
}

/// Our roles; at least one.
pub(super) fn read_roles(path: &str, names: &[String], reader: &mut Reader) -> BTreeSet<Role> {
    let mut roles = BTreeSet::new();
    if names.is_empty() {
        reader.mistake(path, "must name at least one role");
    }
    for (index, name) in names.iter().enumerate() {
        match Role::parse(name) {
            Some(role) => drop(roles.insert(role)),
            None => {
                let known = Role::ALL.map(Role::as_str).join(", ");
                reader.mistake(&format!("{path}[{index}]"), format!("must be one of {known}"));
            }
        }
    }
    roles
}

/// A tenant of the section `tenants`.
pub(super) fn read_tenant(
    path: &str,
    name: Option<&str>,
    tenants: &BTreeSet<&Tenant>,
    reader: &mut Reader,
) -> Option<Tenant> {
    match Tenant::parse(name?) {
        Ok(tenant) if tenants.contains(&tenant) => return Some(tenant),
        Ok(_) => reader.mistake(path, "is not named under tenants"),
        Err(error) => reader.mistake(path, error.to_string()),
    }
    None
}
