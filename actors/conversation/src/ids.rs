//! Ids and names: one type each, so that no two of them are mixed up.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Takes the name unchecked: input is checked where it is parsed.
            pub fn new(name: impl Into<String>) -> Self {
                Self(name.into())
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// A conversation: `[A-Za-z0-9_.:-]{1,128}`.
    ConversationId
);
name!(
    /// A turn of one conversation.
    TurnId
);
name!(
    /// A call, unique for ever within its conversation.
    CallId
);
name!(
    /// A message of one conversation.
    MessageId
);
name!(
    /// An agent: `[a-z0-9][a-z0-9_-]{0,63}`.
    AgentName
);
name!(
    /// The first 16 hex digits of the SHA-256 of a definition's canonical JSON.
    Revision
);
name!(
    /// A remembered decision.
    DecisionId
);
name!(
    /// Bytes stored outside of the journals: `blob_` and 64 hex digits.
    BlobId
);
name!(
    /// The person or system on whose behalf something happens.
    Principal
);

impl ConversationId {
    /// Parses an id from outside; `None` unless it is `[A-Za-z0-9_.:-]{1,128}`.
    pub fn parse(id: &str) -> Option<Self> {
        let legal = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
        ((1..=128).contains(&id.len()) && id.chars().all(legal)).then(|| Self::new(id))
    }
}

impl AgentName {
    /// Parses a name from outside; `None` unless it is `[a-z0-9][a-z0-9_-]{0,63}`.
    pub fn parse(name: &str) -> Option<Self> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let legal = |c: char| plain(c) || c == '_' || c == '-';
        let fits = (1..=64).contains(&name.len()) && name.starts_with(plain);
        (fits && name.chars().all(legal)).then(|| Self::new(name))
    }
}

impl BlobId {
    /// Parses an id from outside; `None` unless it is `blob_[0-9a-f]{64}`.
    pub fn parse(id: &str) -> Option<Self> {
        let digits = id.strip_prefix("blob_")?;
        let legal = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        (digits.len() == 64 && digits.chars().all(legal)).then(|| Self::new(id))
    }
}

impl Principal {
    /// The system itself, which expiries run as.
    pub fn system() -> Self {
        Self::new("system")
    }
}
