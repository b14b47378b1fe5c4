//! Who may use the node: credentials are verified here, and every route declares what it asks of its
//! caller. The contract is `reference/access.md`.

mod allowed;
pub mod api_key;
mod auth_file;
mod caller_conversations;
mod claims;
mod client_state;
mod control;
mod conversation_token;
mod credential;
mod credential_error;
mod credential_watch;
pub mod document;
mod guard;
mod issuer_keys;
mod jwt;
mod key_set;
pub mod permission;
mod principal;
mod quotas;
mod reply_link;
pub mod routes;
mod sender;
mod session;
pub mod signing_key;
mod stored_keys;
mod tenant_quotas;
mod tenant_retention;

pub use allowed::Allowed;
pub(crate) use auth_file::CheckedAuthFile;
pub(crate) use caller_conversations::CallerConversations;
pub(crate) use client_state::ClientState;
pub use control::AccessControl;
pub use credential::Scope;
pub(crate) use credential::{TokenGrant, TokenTarget};
pub(crate) use credential_watch::CredentialWatch;
pub(crate) use document::MAX_TTL;
pub(crate) use quotas::{BodyShare, StreamPermit};
pub(crate) use reply_link::{LinkError, ReplyLink, ReplyLinks};
