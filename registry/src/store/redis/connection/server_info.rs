//! What a server reports about itself, and which durability that allows.

use std::collections::HashMap;
use std::fmt;

use redis::aio::ConnectionLike;
use redis::{Pipeline, RedisResult, Value};

use super::dial::ServerConnection;
use super::durability::Durability;

/// The first version in which a script says that it may run on a full server.
const MIN_MAJOR_VERSION: u32 = 7;
/// The settings that decide what a server can promise.
const CONFIG_NAMES: [&str; 4] = ["appendonly", "appendfsync", "maxmemory", "maxmemory-policy"];

/// The settings and state of one server, from INFO and CONFIG.
pub(super) struct ServerInfo {
    settings: HashMap<String, String>,
    config_allowed: bool,
}

impl ServerInfo {
    pub(super) async fn read(server: &mut ServerConnection) -> RedisResult<Self> {
        let mut commands = Pipeline::new();
        commands.cmd("INFO");
        for name in CONFIG_NAMES {
            commands.cmd("CONFIG").arg("GET").arg(name);
        }
        let answers = server.req_packed_commands(&commands, 0, commands.len()).await?;
        let mut answers = answers.into_iter();
        let info = answers.next().unwrap_or(Value::Nil).extract_error()?;
        let info: String = redis::from_redis_value(info)?;
        let lines = info.lines().filter_map(|line| line.split_once(':'));
        let mut settings: HashMap<_, _> =
            lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let mut config_allowed = true;
        for answer in answers {
            match answer.extract_error() {
                Ok(found) => {
                    settings.extend(redis::from_redis_value::<HashMap<String, String>>(found)?);
                }
                Err(_) => config_allowed = false,
            }
        }
        if let (false, Some(enabled)) = (config_allowed, settings.get("aof_enabled")) {
            let appendonly = if enabled == "1" { "yes" } else { "no" };
            settings.insert("appendonly".to_owned(), appendonly.to_owned());
        }
        if let (false, Some(policy)) = (config_allowed, settings.get("maxmemory_policy")) {
            settings.insert("maxmemory-policy".to_owned(), policy.clone());
        }
        Ok(Self { settings, config_allowed })
    }

    pub(super) fn get(&self, name: &str) -> &str {
        self.settings.get(name).map_or("unknown", String::as_str)
    }

    /// Whether the server allowed CONFIG.
    pub(super) fn is_config_allowed(&self) -> bool {
        self.config_allowed
    }

    /// Refuses a durability that this server cannot keep, naming the setting or what is missing.
    pub(super) fn require(&self, durability: Durability) -> Result<(), String> {
        self.require_settings(durability)?;
        self.require_replicas(durability)
    }

    /// Refuses a durability that the server's version or its settings cannot keep.
    pub(super) fn require_settings(&self, durability: Durability) -> Result<(), String> {
        let version = self.get("redis_version");
        let major = version.split('.').next().and_then(|major| major.parse().ok());
        if major < Some(MIN_MAJOR_VERSION) {
            return Err(format!("it is redis {version}, and {MIN_MAJOR_VERSION}.0 is needed"));
        }
        if durability == Durability::Nothing {
            return Ok(());
        }
        let (memory, policy) = (self.get("maxmemory"), self.get("maxmemory-policy"));
        if memory != "0" && policy != "noeviction" {
            return Err(format!("maxmemory-policy is {policy}, and must be noeviction"));
        }
        let must_be = |name, wanted| match self.get(name) {
            found if found == wanted => Ok(()),
            // The server does not show the setting, so it cannot be checked.
            "unknown" if !self.config_allowed => Ok(()),
            found => Err(format!("{name} is {found}, and must be {wanted}")),
        };
        match durability {
            Durability::Fsync => {
                must_be("appendonly", "yes")?;
                must_be("appendfsync", "always")
            }
            Durability::Os => must_be("appendonly", "yes"),
            Durability::Replicas(_) | Durability::Nothing => Ok(()),
        }
    }

    /// Refuses a durability for which replicas are missing.
    pub(super) fn require_replicas(&self, durability: Durability) -> Result<(), String> {
        match durability {
            Durability::Fsync | Durability::Os | Durability::Nothing => Ok(()),
            Durability::Replicas(wanted) => match self.replicas() {
                found if found >= usize::from(wanted.get()) => Ok(()),
                found => Err(format!("{found} replicas are connected, and {wanted} are needed")),
            },
        }
    }

    /// How many replicas are in step with it.
    fn replicas(&self) -> usize {
        let replicas = self.settings.iter().filter(|(name, _)| name.starts_with("slave"));
        replicas.filter(|(_, value)| value.contains("state=online")).count()
    }
}

impl fmt::Display for ServerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in ["appendonly", "appendfsync", "maxmemory-policy"] {
            write!(f, "{name} {}, ", self.get(name))?;
        }
        write!(f, "connected replicas {}", self.replicas())?;
        if self.config_allowed { Ok(()) } else { f.write_str(", CONFIG is forbidden") }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A server of version 7 that keeps every write of `fsync` and has two replicas, one of them in
    /// step, with these other settings.
    fn server(changed: &[(&str, &str)]) -> ServerInfo {
        let settings = [
            ("redis_version", "7.4.1"),
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("maxmemory", "0"),
            ("maxmemory-policy", "allkeys-lru"),
            ("slave0", "ip=10.0.0.2,port=6379,state=online,offset=7,lag=0"),
            ("slave1", "ip=10.0.0.3,port=6379,state=wait_bgsave,offset=0,lag=0"),
        ];
        let settings = settings.iter().chain(changed);
        let settings = settings.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        ServerInfo { settings: settings.collect(), config_allowed: true }
    }

    fn replicas(count: u8) -> Durability {
        Durability::Replicas(count.try_into().unwrap())
    }

    #[test]
    fn a_durability_is_refused_with_the_setting_that_cannot_keep_it() {
        let every = [Durability::Fsync, Durability::Os, replicas(1)];
        for (changed, refused) in [
            ([].as_slice(), [None; 3]),
            (&[("redis_version", "6.2.14")], [Some("it is redis 6.2.14, and 7.0 is needed"); 3]),
            (&[("redis_version", "10.0.0")], [None; 3]),
            (
                &[("maxmemory", "100")],
                [Some("maxmemory-policy is allkeys-lru, and must be noeviction"); 3],
            ),
            (&[("maxmemory", "100"), ("maxmemory-policy", "noeviction")], [None; 3]),
            (
                &[("appendfsync", "everysec")],
                [Some("appendfsync is everysec, and must be always"), None, None],
            ),
            (
                &[("appendonly", "no")],
                [
                    Some("appendonly is no, and must be yes"),
                    Some("appendonly is no, and must be yes"),
                    None,
                ],
            ),
            (
                &[("slave0", "state=wait_bgsave")],
                [None, None, Some("0 replicas are connected, and 1 are needed")],
            ),
            (&[("slave1", "state=online")], [None; 3]),
        ] {
            let refusals = every.map(|durability| server(changed).require(durability).err());
            assert_eq!(refusals.each_ref().map(Option::as_deref), refused, "{changed:?}");
        }
        assert!(server(&[]).require(replicas(2)).is_err());
    }

    #[test]
    fn a_setting_that_is_not_shown_is_refused_unless_config_is_forbidden() {
        let mut hidden = server(&[]);
        hidden.settings.remove("appendfsync");
        assert!(hidden.is_config_allowed());
        let refusal = "appendfsync is unknown, and must be always".to_owned();
        assert_eq!(hidden.require_settings(Durability::Fsync), Err(refusal));
        hidden.config_allowed = false;
        assert!(!hidden.is_config_allowed());
        assert_eq!(hidden.require_settings(Durability::Fsync), Ok(()));
        assert_eq!(
            hidden.to_string(),
            "appendonly yes, appendfsync unknown, maxmemory-policy allkeys-lru, connected replicas 1, \
             CONFIG is forbidden"
        );
        hidden.settings.insert("appendfsync".to_owned(), "no".to_owned());
        assert!(hidden.require_settings(Durability::Fsync).is_err(), "it is shown");
    }
}
