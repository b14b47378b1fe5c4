//! Notices: what conversations owe to the webhooks of their tenant (`reference/webhooks.md`).

mod kind;
mod webhook;

use std::sync::Arc;

use abide_conversation::{ConversationId, Scoped, Seq, Timestamp};

use crate::announcements::Announcements;

pub use kind::NoticeKind;
pub use webhook::{
    KeyedRequest, LinkSubject, Webhook, WebhookHealth, WebhookKey, WebhookSecret, WebhookSet,
    is_webhook_name,
};

/// The way from the conversations of a node, which owe notices, to the loop that delivers them.
pub type NearNotices = Announcements<(WebhookKey, Scoped<ConversationId>)>;

/// What a commit owes to one webhook, written with the commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwedNotice {
    pub webhook: WebhookKey,
    /// The event that the notice tells.
    pub seq: Seq,
    pub kind: NoticeKind,
    /// The time of the event.
    pub at: Timestamp,
    /// The JSON that is sent.
    pub body: Arc<str>,
}
