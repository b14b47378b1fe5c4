//! What the agents of a tenant may reach, and which variables they may name.

pub(crate) mod allowed_hosts;
mod client_pair;
pub(crate) mod dns;
pub(crate) mod public_address;

use std::fmt;
use std::sync::Arc;

use abide_conversation::Tenant;
use url::{Host, Url};

pub(crate) use client_pair::{ClientPair, is_blocked};

/// Says what tenants may do. The answer may differ at every moment.
pub trait TenantRules: Send + Sync + 'static {
    /// What the agents of this tenant may reach and name.
    fn outbound(&self, tenant: &Tenant) -> OutboundRules;
}

/// The hosts and variables of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutboundRules {
    /// `host` or `host:port`, whatever the addresses are; `None` is the public web.
    pub hosts: Option<Vec<String>>,
    /// The names of variables, each of which may end in `*`.
    pub variables: Vec<String>,
}

/// What one agent may reach and name, judged anew at every use: a definition outlives the rules that
/// it was accepted under.
#[derive(Clone, Default)]
pub enum Outbound {
    /// Everything: nobody is authenticated, or the operator wrote the definition.
    #[default]
    Unbound,
    /// What the rules say of the tenant.
    Bound(Arc<TenantBounds>),
}

/// The rules, and the tenant that they are asked about.
pub struct TenantBounds {
    rules: Arc<dyn TenantRules>,
    tenant: Tenant,
}

/// Why an agent may not do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutboundError {
    #[error("the tenant may not reach {0}")]
    Host(String),
    #[error("the tenant may not use the variable {0}")]
    Variable(String),
}

/// The addresses at which a host may be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    AnyAddress,
    PublicAddress,
}

impl OutboundRules {
    /// The route to a URL. A name is judged by its addresses only when it is resolved.
    pub(crate) fn route(&self, url: &Url) -> Result<Route, OutboundError> {
        let refusal = || Err(OutboundError::Host(url.host_str().unwrap_or_default().to_owned()));
        match &self.hosts {
            Some(hosts) if hosts.iter().any(|entry| allowed_hosts::matches(entry, url)) => {
                Ok(Route::AnyAddress)
            }
            Some(_) => refusal(),
            None if is_private(url) => refusal(),
            None => Ok(Route::PublicAddress),
        }
    }

    /// Whether a variable may be named.
    pub(crate) fn check_variable(&self, name: &str) -> Result<(), OutboundError> {
        let matches = |entry: &String| match entry.strip_suffix('*') {
            Some(stem) => name.starts_with(stem),
            None => name == entry,
        };
        if self.variables.iter().any(matches) {
            Ok(())
        } else {
            Err(OutboundError::Variable(name.to_owned()))
        }
    }

    /// Whether an entry of an agent's own `allowed_hosts` is within the tenant's.
    pub(crate) fn check_entry(&self, entry: &str) -> Result<(), OutboundError> {
        let is_listed = |url: Url| matches!(self.route(&url), Ok(Route::AnyAddress));
        let is_equal = self.hosts.iter().flatten().any(|host| host == entry);
        let url = Url::parse(&format!("http://{entry}")).ok();
        if is_equal || url.is_some_and(is_listed) {
            Ok(())
        } else {
            Err(OutboundError::Host(entry.to_owned()))
        }
    }
}

/// Whether a text is an entry of `allowed_hosts`: `host` or `host:port`.
pub fn is_host_entry(text: &str) -> bool {
    // `*` is legal in a URL's host, but no name of a server has it.
    !text.contains('*') && allowed_hosts::parse(text).is_some()
}

/// Whether the URL's text already says that its host is not of the public web.
fn is_private(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => !public_address::is_public(address.into()),
        Some(Host::Ipv6(address)) => !public_address::is_public(address.into()),
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            name == "localhost" || name.ends_with(".localhost")
        }
        None => true,
    }
}

impl Outbound {
    /// What the rules say of the tenant.
    pub fn of(rules: Arc<dyn TenantRules>, tenant: Tenant) -> Self {
        Self::Bound(Arc::new(TenantBounds { rules, tenant }))
    }

    /// The rules in force now; `None` if there are none.
    pub(crate) fn rules(&self) -> Option<OutboundRules> {
        match self {
            Self::Unbound => None,
            Self::Bound(bounds) => Some(bounds.rules.outbound(&bounds.tenant)),
        }
    }

    /// Whether there are rules.
    pub(crate) fn is_bound(&self) -> bool {
        matches!(self, Self::Bound(..))
    }

    /// The route to a URL now.
    pub(crate) fn route(&self, url: &Url) -> Result<Route, OutboundError> {
        self.rules().map_or(Ok(Route::AnyAddress), |rules| rules.route(url))
    }

    /// Whether these variables may be named now.
    pub(crate) fn check_variables<'a>(
        &self,
        mut names: impl Iterator<Item = &'a str>,
    ) -> Result<(), OutboundError> {
        match self.rules() {
            Some(rules) => names.try_for_each(|name| rules.check_variable(name)),
            None => Ok(()),
        }
    }
}

impl OutboundError {
    /// The reason as models and clients read it: what the operator configured is not theirs to know.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Host(_) => "its host is not permitted to the tenant",
            Self::Variable(_) => "its variable is not permitted to the tenant",
        }
    }
}

impl PartialEq for Outbound {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unbound, Self::Unbound) => true,
            (Self::Bound(one), Self::Bound(other)) => one.tenant == other.tenant,
            (Self::Unbound, Self::Bound(..)) | (Self::Bound(..), Self::Unbound) => false,
        }
    }
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unbound => f.write_str("Unbound"),
            Self::Bound(bounds) => f.debug_tuple("Bound").field(&bounds.tenant).finish(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn rules(hosts: Option<&[&str]>) -> OutboundRules {
        let owned = |entries: &[&str]| entries.iter().map(|it| (*it).to_owned()).collect();
        OutboundRules { hosts: hosts.map(owned), variables: owned(&["ACME_*", "KEY"]) }
    }

    #[test]
    fn without_a_list_the_public_web_is_reached_by_public_addresses_alone() {
        let route = |url: &str| rules(None).route(&Url::parse(url).unwrap());
        for url in ["https://example.com/", "http://8.8.8.8/", "http://[2606:4700::1]/"] {
            assert_eq!(route(url), Ok(Route::PublicAddress), "{url}");
        }
        for url in [
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://169.254.169.254/latest",
            "http://[::1]/",
            "http://[::ffff:10.0.0.1]/",
            "http://localhost:80/",
            "http://LOCALHOST./",
            "http://a.localhost/",
        ] {
            assert!(route(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_list_permits_its_hosts_whatever_their_addresses_are_and_nothing_else() {
        let rules = rules(Some(&["api.acme.internal", "127.0.0.1:9000"]));
        let route = |url: &str| rules.route(&Url::parse(url).unwrap());
        for url in
            ["http://api.acme.internal/x", "https://API.acme.internal./", "http://127.0.0.1:9000/"]
        {
            assert_eq!(route(url), Ok(Route::AnyAddress), "{url}");
        }
        for url in ["https://example.com/", "http://127.0.0.1:9001/", "http://acme.internal/"] {
            assert!(route(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_variable_is_named_whole_or_by_its_beginning() {
        for (name, is_permitted) in
            [("ACME_KEY", true), ("ACME_", true), ("KEY", true), ("KEYS", false), ("ACME", false)]
        {
            assert_eq!(rules(None).check_variable(name).is_ok(), is_permitted, "{name}");
        }
    }

    #[test]
    fn an_agent_allows_no_host_that_its_tenant_may_not_reach() {
        let rules = |hosts| rules(hosts).check_entry("10.0.0.1:80").is_ok();
        assert!(rules(Some(&["10.0.0.1"])));
        assert!(rules(Some(&["10.0.0.1:80"])));
        assert!(!rules(Some(&["10.0.0.1:81"])));
        assert!(!rules(Some(&[])));
        assert!(!rules(None), "the public web needs no entry");
    }
}
