//! Ids and names together with their tenant: what stores, actors and nodes go by.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::identity::Tenant;
use crate::ids::deserialize_text;

/// The name of the tenant whose ids are written without it.
const DEFAULT: &str = "default";
/// Stands between the tenant and the id. No id from outside contains it.
const SEPARATOR: char = '/';

/// An id or name, unique within its tenant, together with the tenant: unique everywhere.
///
/// Its text, which keys and the protocol between nodes contain, is `acme/conv_1`, or just `conv_1` for
/// the tenant `default`. Two that differ never have the same text, whatever their ids contain. They
/// sort by their text.
pub struct Scoped<N> {
    /// Clones share it.
    text: Arc<str>,
    /// Where the id begins in the text: behind the separator, if there is a tenant in front.
    local_at: usize,
    name: PhantomData<fn() -> N>,
}

/// A text that is not one of a [`Scoped`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be ID or TENANT/ID, without the tenant \"default\"")]
pub struct ScopedError;

impl<N> Scoped<N> {
    /// Parses the text of an id. The id itself is not checked.
    pub fn parse(text: &str) -> Result<Self, ScopedError> {
        let Some((tenant, local)) = text.split_once(SEPARATOR) else {
            return Ok(Self::of_text(text, 0));
        };
        let is_short = tenant == DEFAULT && !local.contains(SEPARATOR);
        if is_short || Tenant::parse(tenant).is_err() {
            return Err(ScopedError);
        }
        Ok(Self::of_text(text, text.len() - local.len()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The tenant.
    pub fn tenant(&self) -> Tenant {
        // Every tenant in a text was parsed before.
        Tenant::parse(self.tenant_name()).unwrap_or_default()
    }

    /// What stands before the id in the text, and before the names of what its tenant has once: empty
    /// for the tenant `default`, else `acme/`.
    pub fn prefix(&self) -> &str {
        self.text.get(..self.local_at).unwrap_or_default()
    }

    /// Whether the tenant is this one.
    pub fn is_of(&self, tenant: &Tenant) -> bool {
        self.tenant_name() == tenant.as_str()
    }

    fn of_text(text: impl Into<Arc<str>>, local_at: usize) -> Self {
        Self { text: text.into(), local_at, name: PhantomData }
    }

    fn tenant_name(&self) -> &str {
        self.prefix().strip_suffix(SEPARATOR).unwrap_or(DEFAULT)
    }
}

impl<N: AsRef<str> + for<'a> From<&'a str>> Scoped<N> {
    /// The id of a tenant's own.
    pub fn new(tenant: &Tenant, local: &N) -> Self {
        Self::join(tenant.as_str(), local)
    }

    /// The id as its tenant knows it.
    pub fn local(&self) -> N {
        N::from(self.text.get(self.local_at..).unwrap_or_default())
    }

    fn join(tenant: &str, local: &N) -> Self {
        let local = local.as_ref();
        if tenant == DEFAULT && !local.contains(SEPARATOR) {
            Self::of_text(local, 0)
        } else {
            Self::of_text(format!("{tenant}{SEPARATOR}{local}"), tenant.len() + 1)
        }
    }
}

impl<N> Scoped<N> {
    /// Another id of the same tenant.
    pub fn sibling<M: AsRef<str> + for<'a> From<&'a str>>(&self, local: &M) -> Scoped<M> {
        Scoped::join(self.tenant_name(), local)
    }
}

// Derived, these would demand the same of the id's type.

impl<N> Clone for Scoped<N> {
    fn clone(&self) -> Self {
        Self::of_text(self.text.clone(), self.local_at)
    }
}

impl<N> fmt::Debug for Scoped<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl<N> fmt::Display for Scoped<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<N> PartialEq for Scoped<N> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl<N> Eq for Scoped<N> {}

impl<N> Hash for Scoped<N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl<N> PartialOrd for Scoped<N> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<N> Ord for Scoped<N> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl<N> Serialize for Scoped<N> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.text)
    }
}

impl<'de, N> Deserialize<'de> for Scoped<N> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = deserialize_text(from)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::ids::{AgentName, ConversationId};

    fn scoped(tenant: &str, id: &str) -> Scoped<ConversationId> {
        Scoped::new(&Tenant::parse(tenant).unwrap(), &ConversationId::new(id))
    }

    #[test]
    fn the_text_of_the_default_tenants_id_is_the_id_itself() {
        assert_eq!(scoped("default", "conv_1").as_str(), "conv_1");
        assert_eq!(scoped("acme", "conv_1").as_str(), "acme/conv_1");
    }

    #[test]
    fn no_id_makes_another_tenants_text() {
        let ids = ["x", "acme/x", "default/x", "/x", "a/b/c", "", "/", "default/acme/x"];
        let mut texts = BTreeSet::new();
        for tenant in ["default", "acme", "a"] {
            for id in ids {
                let one = scoped(tenant, id);
                assert!(texts.insert(one.to_string()), "{one}");
                assert_eq!((one.tenant().as_str(), one.local().as_str()), (tenant, id));
                assert_eq!(Scoped::parse(one.as_str()), Ok(one.clone()));
                let json = serde_json::to_string(&one).unwrap();
                assert_eq!(json, format!("\"{one}\""));
                assert_eq!(serde_json::from_str::<Scoped<ConversationId>>(&json).unwrap(), one);
            }
        }
    }

    #[test]
    fn a_text_that_no_id_has_is_refused() {
        for text in ["default/conv_1", "/conv_1", "A/conv_1", "a b/conv_1", "-/x"] {
            assert_eq!(Scoped::<ConversationId>::parse(text), Err(ScopedError), "{text}");
            assert!(serde_json::from_value::<Scoped<ConversationId>>(text.into()).is_err());
        }
    }

    #[test]
    fn a_sibling_is_of_the_same_tenant() {
        let agent = AgentName::new("support");
        assert_eq!(scoped("acme", "conv_1").sibling(&agent).as_str(), "acme/support");
        assert_eq!(scoped("default", "conv_1").sibling(&agent).as_str(), "support");
        assert!(scoped("acme", "x").is_of(&Tenant::parse("acme").unwrap()));
        assert!(!scoped("acme", "x").is_of(&Tenant::default()));
    }
}
