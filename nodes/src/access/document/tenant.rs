//! The tenants, and what the operator permits each of them.

use std::collections::BTreeMap;
use std::time::Duration;

use abide_actors::agent;
use abide_actors::outbound::is_host_entry;
use abide_conversation::identity::Tenant;
use serde::Deserialize;
use serde_json::Value;

use super::reader::Reader;

/// What a tenant may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantSettings {
    /// `None`: what the node's flag says.
    pub agents_over_http: Option<AgentsOverHttp>,
    /// The hosts that the tenant's agents may reach; `None`: the public web.
    pub allowed_hosts: Option<Vec<String>>,
    /// The variables that the tenant's agents may name, such as `ACME_*`.
    pub variables: Vec<String>,
    pub quotas: Quotas,
    /// How long conversations are kept at most that nothing happens in; `None`: as their agents say.
    pub retention: Option<Duration>,
}

/// Which definitions of agents are accepted over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum AgentsOverHttp {
    Off,
    /// Those that run no command on the node and name no directory of it.
    Data,
    All,
}

/// A tenant's bounds; `None` is without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    pub requests_per_minute: Option<u64>,
    pub open_streams: Option<u64>,
    pub conversations: Option<u64>,
    pub blob_bytes: Option<u64>,
    pub tokens_per_day: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    agents_over_http: Option<AgentsOverHttp>,
    allowed_hosts: Option<Vec<String>>,
    #[serde(default)]
    variables: Vec<String>,
    #[serde(default)]
    quotas: QuotaEntry,
    #[serde(default)]
    retention: RetentionEntry,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RetentionEntry {
    idle: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct QuotaEntry {
    requests_per_minute: Option<u64>,
    open_streams: Option<u64>,
    conversations: Option<u64>,
    blob_bytes: Option<Value>,
    tokens_per_day: Option<u64>,
}

/// The tenants; without the section, there is the default tenant alone.
pub(super) fn read(
    section: Option<&Value>,
    reader: &mut Reader,
) -> BTreeMap<Tenant, TenantSettings> {
    let entries = match section {
        None => return BTreeMap::from([(Tenant::default(), TenantSettings::default())]),
        Some(Value::Object(entries)) => entries,
        Some(_) => {
            reader.mistake("tenants", "must be an object");
            return BTreeMap::new();
        }
    };
    let mut tenants = BTreeMap::new();
    for (name, entry) in entries {
        let path = format!("tenants.{name}");
        let entry = match entry {
            Value::Null => Some(Value::Object(Default::default())),
            entry => Some(entry.clone()),
        };
        let settings = entry.and_then(|entry| reader.value::<Entry>(&path, &entry));
        let settings = settings.map(|entry| settings_of(&path, entry, reader));
        match Tenant::parse(name) {
            // A tenant with a mistake is known nevertheless, so that its keys are not mistakes, too.
            Ok(tenant) => drop(tenants.insert(tenant, settings.unwrap_or_default())),
            Err(error) => reader.mistake(&path, format!("the name {error}")),
        }
    }
    tenants
}

fn settings_of(path: &str, entry: Entry, reader: &mut Reader) -> TenantSettings {
    let Entry { agents_over_http, allowed_hosts, variables, quotas, retention } = entry;
    for (index, name) in variables.iter().enumerate() {
        let stem = name.strip_suffix('*').unwrap_or(name);
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if stem.is_empty() || !stem.chars().all(legal) {
            let rule = "must be the name of a variable, which may end in *";
            reader.mistake(&format!("{path}.variables[{index}]"), rule);
        }
    }
    for (index, host) in allowed_hosts.iter().flatten().enumerate() {
        if !is_host_entry(host) {
            let rule = "must be a host, such as api.example.com, or a host with a port";
            reader.mistake(&format!("{path}.allowed_hosts[{index}]"), rule);
        }
    }
    let QuotaEntry { requests_per_minute, open_streams, conversations, blob_bytes, tokens_per_day } =
        quotas;
    let blob_bytes = blob_bytes.and_then(|size| {
        let bytes = size_bytes(&size);
        if bytes.is_none() {
            let rule = "must be a number of bytes, such as 1048576, 512MiB or 10GiB";
            reader.mistake(&format!("{path}.quotas.blob_bytes"), rule);
        }
        bytes
    });
    let quotas =
        Quotas { requests_per_minute, open_streams, conversations, blob_bytes, tokens_per_day };
    let retention = retention.idle.and_then(|idle| {
        let read = agent::idle_retention(&idle);
        read.map_err(|rule| reader.mistake(&format!("{path}.retention.idle"), rule)).ok()
    });
    TenantSettings { agents_over_http, allowed_hosts, variables, quotas, retention }
}

/// A size as a number, or as a text with a unit.
fn size_bytes(size: &Value) -> Option<u64> {
    let Value::String(text) = size else { return size.as_u64() };
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("", 0)];
    let (number, shift) =
        units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)))?;
    number.trim_end().parse::<u64>().ok()?.checked_mul(1 << shift)
}
