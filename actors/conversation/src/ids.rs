//! Ids and names: one type each, so that no two of them are mixed up.

use std::fmt;
use std::sync::Arc;

use serde::Deserializer;
use serde::de::{Error, Visitor};

/// Defines a type for one kind of name or id: text that only its own kind compares with.
///
/// The type serializes as the text itself. Attributes before the name go to the type. The crate
/// that calls the macro depends on `serde`. Clones share the text: a turn clones names hundreds of
/// times, into events, states, keys and spans.
#[macro_export]
macro_rules! name_type {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(::std::sync::Arc<str>);

        impl $name {
            /// Takes the name unchecked: input is checked where it is parsed.
            pub fn new(name: impl Into<::std::sync::Arc<str>>) -> Self {
                Self(name.into())
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&self.0)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::ids::deserialize_text(from).map(Self)
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

/// Reads a text into the memory that its clones share, without the detour over a `String`.
pub fn deserialize_text<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
    struct Text;

    impl Visitor<'_> for Text {
        type Value = Arc<str>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a string")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Arc<str>, E> {
            Ok(text.into())
        }
    }

    from.deserialize_str(Text)
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $crate::name_type! {
            $(#[$doc])*
            #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String))]
            $name
        }

        impl From<&str> for $name {
            fn from(name: &str) -> Self {
                Self::new(name)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }
    };
}

name!(
    /// A conversation: `[A-Za-z0-9_.:-]{1,128}`, but neither `.` nor `..`.
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
    /// A scheduled message of one conversation.
    ScheduledId
);
name!(
    /// A schedule of a tenant: `[a-z0-9][a-z0-9_-]{0,63}`, as an agent.
    ScheduleName
);
name!(
    /// An erasure of a tenant.
    ErasureId
);
name!(
    /// Bytes stored outside of the journals: `blob_` and 64 hex digits.
    BlobId
);
name!(
    /// A queue that workers take calls from: `[a-z0-9][a-z0-9_-]{0,63}`.
    QueueName
);
name!(
    /// The lease of one attempt to one worker.
    LeaseId
);
name!(
    /// The person or system on whose behalf something happens.
    Principal
);

impl ConversationId {
    /// Parses an id from outside; `None` unless it is `[A-Za-z0-9_.:-]{1,128}`.
    ///
    /// `.` and `..` are refused: a client resolves them in a URL's path, so that it could never
    /// address the conversation.
    pub fn parse(id: &str) -> Option<Self> {
        is_segment(id).then(|| Self::new(id))
    }
}

/// Whether a text that names something in a URL's path is `[A-Za-z0-9_.:-]{1,128}`, and not one that
/// clients resolve.
pub fn is_segment(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
    (1..=128).contains(&text.len()) && text.chars().all(legal) && !matches!(text, "." | "..")
}

impl AgentName {
    /// Parses a name from outside; `None` unless it is `[a-z0-9][a-z0-9_-]{0,63}`.
    pub fn parse(name: &str) -> Option<Self> {
        is_plain_name(name).then(|| Self::new(name))
    }
}

impl QueueName {
    /// Parses a name from outside; `None` unless it is `[a-z0-9][a-z0-9_-]{0,63}`.
    pub fn parse(name: &str) -> Option<Self> {
        is_plain_name(name).then(|| Self::new(name))
    }
}

impl ScheduleName {
    /// Parses a name from outside; `None` unless it is `[a-z0-9][a-z0-9_-]{0,63}`.
    pub fn parse(name: &str) -> Option<Self> {
        is_plain_name(name).then(|| Self::new(name))
    }
}

fn is_plain_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let legal = |c: char| plain(c) || c == '_' || c == '-';
    let fits = (1..=64).contains(&name.len()) && name.starts_with(plain);
    fits && name.chars().all(legal)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_from_outside_can_stand_in_a_path() {
        let longest = "x".repeat(128);
        for id in ["conv_1", "A-Z.a:z_0", "...", ".a", longest.as_str()] {
            assert_eq!(ConversationId::parse(id), Some(ConversationId::new(id)));
        }
        for id in ["", ".", "..", "a/b", "a b", "ü", &"x".repeat(129)] {
            assert_eq!(ConversationId::parse(id), None, "{id}");
        }
    }

    #[test]
    fn an_agents_name_is_plain_and_begins_with_a_letter_or_a_digit() {
        let longest = "x".repeat(64);
        for name in ["a", "0", "9lives", "my-agent_2", longest.as_str()] {
            assert_eq!(AgentName::parse(name), Some(AgentName::new(name)));
        }
        for name in ["", "-a", "_a", "A", "aB", "a.b", "a b", "ä", &"x".repeat(65)] {
            assert_eq!(AgentName::parse(name), None, "{name}");
        }
    }
}
