//! Who acts: tenants, roles, and what the journal keeps of somebody who was authenticated.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// Who vouches for the subjects of the cluster's own keys and tokens.
pub const ABIDE_ISSUER: &str = "abide";

/// The unit of isolation: every conversation, agent and blob belongs to exactly one.
/// `[a-z0-9][a-z0-9-]{0,31}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(try_from = "String", into = "String")]
pub struct Tenant(String);

/// A text that names no tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be [a-z0-9][a-z0-9-]{{0,31}}")]
pub struct TenantError;

impl Tenant {
    /// Parses a tenant's name.
    pub fn parse(name: &str) -> Result<Self, TenantError> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let legal = |c: char| plain(c) || c == '-';
        let fits = (1..=32).contains(&name.len()) && name.starts_with(plain);
        if fits && name.chars().all(legal) { Ok(Self(name.to_owned())) } else { Err(TenantError) }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The tenant of everything that was stored before there were tenants, and of a node that
/// authenticates nobody.
impl Default for Tenant {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

impl TryFrom<String> for Tenant {
    type Error = TenantError;

    fn try_from(name: String) -> Result<Self, TenantError> {
        Self::parse(&name)
    }
}

impl From<Tenant> for String {
    fn from(tenant: Tenant) -> Self {
        tenant.0
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What somebody may do; the table is in `reference/access.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = AccessRole))]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    User,
    Approver,
    Backend,
    Author,
    TenantAdmin,
    Auditor,
    Operator,
    /// Takes calls from the queues that its key names, and does nothing else.
    Worker,
}

impl Role {
    pub const ALL: [Self; 8] = [
        Self::User,
        Self::Approver,
        Self::Backend,
        Self::Author,
        Self::TenantAdmin,
        Self::Auditor,
        Self::Operator,
        Self::Worker,
    ];

    /// The role of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }

    /// The role's name, as it is written in files and journals.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Approver => "approver",
            Self::Backend => "backend",
            Self::Author => "author",
            Self::TenantAdmin => "tenant-admin",
            Self::Auditor => "auditor",
            Self::Operator => "operator",
            Self::Worker => "worker",
        }
    }
}

/// How somebody proved who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AuthMethod {
    /// An API key.
    Key,
    /// A token of an issuer.
    Jwt,
    /// A token that this cluster minted.
    Token,
    /// Not at all: the node authenticates nobody.
    None,
}

/// Somebody who was authenticated, as the journal keeps them. Two are the same person if `iss` and
/// `sub` are the same, never by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Identity {
    /// Absent only for an operator, who belongs to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Tenant>,
    #[serde(flatten)]
    pub subject: Subject,
    pub auth: AuthMethod,
    /// The API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
    /// The id of the token, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jti: Option<String>,
    /// The person for whom a gateway acts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<Box<Subject>>,
    /// Who minted the token, unless the subject did: a backend vouches for the people of its pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minted_by: Option<Box<TokenMinter>>,
}

/// Who vouches for the subject of a conversation token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenMinter {
    pub iss: String,
    pub sub: String,
    /// The API key that minted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
}

/// A person or a program, and what they may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Subject {
    /// Who vouches for `sub`: an issuer's URL, or `abide` for its own keys and tokens.
    pub iss: String,
    pub sub: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, deserialize_with = "known_roles")]
    pub roles: BTreeSet<Role>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
}

impl Identity {
    /// On whose behalf the request is made: the person for whom a gateway acts, else the caller.
    pub fn acting(&self) -> &Subject {
        self.on_behalf_of.as_deref().unwrap_or(&self.subject)
    }
}

/// The owner and the members of a conversation: subjects of its tenant, whoever vouches for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Participants {
    /// `None` for a conversation that nobody who was authenticated has created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
}

impl Participants {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.owner.is_none() && self.members.is_empty()
    }

    /// Whether this subject is the owner.
    pub fn is_owner(&self, sub: &str) -> bool {
        self.owner.as_deref() == Some(sub)
    }

    /// Whether this subject is the owner or a member.
    pub fn include(&self, sub: &str) -> bool {
        self.is_owner(sub) || self.members.iter().any(|member| member == sub)
    }
}

/// Reads roles. One that only newer programs know is none.
fn known_roles<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeSet<Role>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    Ok(names.iter().filter_map(|name| Role::parse(name)).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tenants_name_is_short_and_plain() {
        for name in ["a", "0", "acme", "a-b-1", &"x".repeat(32)] {
            assert_eq!(Tenant::parse(name).unwrap().as_str(), name);
            assert_eq!(serde_json::from_value::<Tenant>(json!(name)).unwrap().as_str(), name);
        }
        for name in ["", "-a", "A", "a_b", "a.b", "a/b", "ä", &"x".repeat(33)] {
            assert!(Tenant::parse(name).is_err(), "{name}");
            assert!(serde_json::from_value::<Tenant>(json!(name)).is_err(), "{name}");
        }
        assert_eq!(Tenant::parse("default"), Ok(Tenant::default()));
    }

    #[test]
    fn the_name_of_a_role_is_its_json() {
        for role in Role::ALL {
            assert_eq!(json!(role), json!(role.as_str()));
            assert_eq!(Role::parse(role.as_str()), Some(role));
        }
        assert_eq!(Role::parse("root"), None);
    }

    #[test]
    fn a_role_of_a_newer_program_is_none() {
        let identity = json!({"tenant": "acme", "iss": "abide", "sub": "key:shop",
            "roles": ["backend", "robot"], "auth": "key", "key_id": "shop"});
        let identity: Identity = serde_json::from_value(identity).unwrap();
        assert_eq!(identity.subject.roles, BTreeSet::from([Role::Backend]));
        assert_eq!(identity.acting().sub, "key:shop");
        assert_eq!(json!(identity)["roles"], json!(["backend"]));
    }
}
