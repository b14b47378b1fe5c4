//! The address of a Redis store, as one URL.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use redis::io::tcp::TcpSettings;
use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, TlsCertificates,
};

use super::certificates::{CertificateError, CertificateFiles};

/// The port of a server that names none.
const DEFAULT_PORT: u16 = 6379;

/// `redis://[USER:PASSWORD@]HOST[:PORT][/DB]`; `redis+cluster://…@HOST:PORT,HOST:PORT,…`;
/// `redis+sentinel://…@HOST:PORT,…/NAME[/DB]`, where user and password apply to the servers
/// and the sentinels. `rediss` instead of `redis` uses TLS. It is displayed without user and
/// password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    tls: bool,
    user: Option<String>,
    password: Option<String>,
    hosts: Vec<Host>,
    pub(in crate::store::redis) kind: Kind,
    db: i64,
    certificates: Option<Arc<CertificateFiles>>,
}

/// The kind of servers at the hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum Kind {
    Single,
    Cluster,
    /// Sentinels that know the primary by this name.
    Sentinel(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::store::redis) struct Host {
    pub(super) name: String,
    pub(super) port: u16,
}

/// Why a text is not a [`RedisUrl`]. It quotes nothing of the text, which may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedisUrlError {
    #[error("it must begin with redis://, rediss://, redis+cluster:// or redis+sentinel://")]
    Scheme,
    #[error("the user and password must be USER:PASSWORD@, with other characters written as %XX")]
    Credentials,
    #[error(
        "the address must be HOST or HOST:PORT; a cluster and sentinels may have several, with commas"
    )]
    Host,
    #[error("the path must be the number of a database")]
    Database,
    #[error("a cluster has no databases: there must be no path")]
    ClusterPath,
    #[error("the path must be the name by which the sentinels know the primary")]
    Name,
}

impl RedisUrl {
    /// The ports of the servers that the URL names. Sentinels name the server by themselves, whose port
    /// is then taken to be the usual one.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        let server = match self.kind {
            Kind::Sentinel(_) => Some(DEFAULT_PORT),
            Kind::Single | Kind::Cluster => None,
        };
        self.hosts.iter().map(|host| host.port).chain(server)
    }

    /// The same servers, with these certificates. They are read once now, and again for each new
    /// connection, so that they may be renewed in place.
    pub fn with_certificates(mut self, files: CertificateFiles) -> Result<Self, CertificateError> {
        if !self.tls {
            return Err(CertificateError::NoTls);
        }
        files.check()?;
        self.certificates = Some(Arc::new(files));
        Ok(self)
    }

    /// The certificates for a connection; `None` if the machine's own are enough.
    pub(super) fn certificates(&self) -> redis::RedisResult<Option<TlsCertificates>> {
        let files = self.certificates.as_ref().map(|files| files.read());
        files.transpose().map_err(|error| std::io::Error::other(error).into())
    }

    pub(in crate::store::redis) fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// How to connect to the server at `host`.
    pub(in crate::store::redis) fn server(
        &self,
        host: &Host,
    ) -> redis::RedisResult<ConnectionInfo> {
        self.connection(host, self.db)
    }

    /// How to connect to the sentinel at `host`.
    pub(super) fn sentinel(&self, host: &Host) -> redis::RedisResult<ConnectionInfo> {
        self.connection(host, 0)
    }

    fn connection(&self, host: &Host, db: i64) -> redis::RedisResult<ConnectionInfo> {
        let (name, port) = (host.name.clone(), host.port);
        let address = if self.tls {
            ConnectionAddr::TcpTls { host: name, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(name, port)
        };
        let mut settings = RedisConnectionInfo::default().set_db(db);
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        let tcp = TcpSettings::default().set_nodelay(true);
        let info = match self.certificates()? {
            Some(certificates) => {
                let client = redis::Client::build_with_tls(address, certificates)?;
                client.get_connection_info().clone()
            }
            None => address.into_connection_info()?,
        };
        Ok(info.set_redis_settings(settings).set_tcp_settings(tcp))
    }

    fn with_path(mut self, path: Option<&str>) -> Result<Self, RedisUrlError> {
        let path = path.unwrap_or_default();
        let db = match &self.kind {
            Kind::Cluster if path.is_empty() => "",
            Kind::Cluster => return Err(RedisUrlError::ClusterPath),
            Kind::Single => path,
            Kind::Sentinel(_) => {
                let (name, db) = path.split_once('/').unwrap_or((path, ""));
                if name.is_empty() {
                    return Err(RedisUrlError::Name);
                }
                self.kind = Kind::Sentinel(name.to_owned());
                db
            }
        };
        self.db = match db {
            "" => 0,
            db => db.parse::<u16>().map_err(|_| RedisUrlError::Database)?.into(),
        };
        Ok(self)
    }
}

impl FromStr for RedisUrl {
    type Err = RedisUrlError;

    fn from_str(url: &str) -> Result<Self, RedisUrlError> {
        let (scheme, rest) = url.split_once("://").ok_or(RedisUrlError::Scheme)?;
        let (protocol, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        let (tls, port) = match protocol {
            "redis" => (false, DEFAULT_PORT),
            "rediss" => (true, DEFAULT_PORT),
            _ => return Err(RedisUrlError::Scheme),
        };
        let (kind, port) = match kind {
            "" if scheme == protocol => (Kind::Single, port),
            "cluster" => (Kind::Cluster, port),
            "sentinel" => (Kind::Sentinel(String::new()), 26379),
            _ => return Err(RedisUrlError::Scheme),
        };
        let (authority, path) = match rest.split_once('/') {
            Some((authority, path)) => (authority, Some(path)),
            None => (rest, None),
        };
        let (user, password, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => {
                let (user, password) = parse_credentials(credentials)?;
                (user, password, hosts)
            }
            None => (None, None, authority),
        };
        let hosts: Vec<_> =
            hosts.split(',').map(|host| parse_host(host, port)).collect::<Result<_, _>>()?;
        if kind == Kind::Single && hosts.len() > 1 {
            return Err(RedisUrlError::Host);
        }
        Self { tls, user, password, hosts, kind, db: 0, certificates: None }.with_path(path)
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = match &self.kind {
            Kind::Single => ("", None),
            Kind::Cluster => ("+cluster", None),
            Kind::Sentinel(name) => ("+sentinel", Some(name)),
        };
        write!(f, "redis{}{kind}://", if self.tls { "s" } else { "" })?;
        for (position, host) in self.hosts.iter().enumerate() {
            write!(f, "{}{host}", if position > 0 { "," } else { "" })?;
        }
        if let Some(name) = name {
            write!(f, "/{name}")?;
        }
        if self.db > 0 { write!(f, "/{}", self.db) } else { Ok(()) }
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

type Credentials = (Option<String>, Option<String>);

fn parse_credentials(text: &str) -> Result<Credentials, RedisUrlError> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let decode = |part: &str| match part {
        "" => Ok(None),
        part => decode(part).map(Some).ok_or(RedisUrlError::Credentials),
    };
    Ok((decode(user)?, decode(password)?))
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        bytes.push(match first {
            b'%' => {
                let (digits, after) = rest.split_at_checked(2)?;
                rest = after;
                u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?
            }
            b'/' | b'@' | b':' => return None,
            byte => *byte,
        });
    }
    String::from_utf8(bytes).ok()
}

fn parse_host(text: &str, default: u16) -> Result<Host, RedisUrlError> {
    let (name, port) = match text.strip_prefix('[') {
        Some(text) => {
            let (name, port) = text.split_once(']').ok_or(RedisUrlError::Host)?;
            (name, port.strip_prefix(':').or((port.is_empty()).then_some("")))
        }
        None => match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, Some("")),
        },
    };
    let port = match port.ok_or(RedisUrlError::Host)? {
        "" => Ok(default),
        port => port.parse().map_err(|_| RedisUrlError::Host),
    };
    let is_legal = |c: char| c.is_ascii_graphic() && !"[]@?#,".contains(c);
    if name.is_empty() || !name.chars().all(is_legal) {
        return Err(RedisUrlError::Host);
    }
    Ok(Host { name: name.to_owned(), port: port? })
}

#[cfg(test)]
mod tests;
