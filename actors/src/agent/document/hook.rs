//! An entry of `hooks`.

use serde::Deserialize;
use utoipa::ToSchema;

use super::{HttpDocument, PositiveDuration, Text};
use crate::definition::HookPoint;

/// A hook that is asked, or notified, at a point of a conversation. Give exactly one of `http` and
/// `native`.
///
/// An HTTP hook gets a POST with the event as JSON: `hook`, `on`, `conversation_id`, `turn_id`,
/// `principal`, `assigns`, and what happens. It answers 2xx without a body, or with a JSON object of
/// at most one key; anything else is a failure. The keys depend on the point:
///
/// - `pre`: `content` (blocks or a text, added to the end of the context) or `halt` (a reason). A
///   failure halts the turn.
/// - `post`: `halt` or `refuse`, each with a reason. After a refusal the model is asked once more; a
///   second refusal in the same turn halts it.
/// - `stream`: `text`, which replaces the model's text.
/// - `PreToolUse`: `deny` (a reason), `args` (checked as if the model had given them) or `halt` (a
///   reason). A failure denies the call.
///
/// At every other point a hook is notified after the commit, in the order of the conversation's
/// journal and at most once: a node that dies, or whose queue is full, loses notifications.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HookDefinition)]
pub(in crate::agent) struct HookDocument {
    /// Unique in its agent; left out, `on` and the place in the list.
    #[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,64}$")]
    pub(in crate::agent) name: Option<Text<64>>,
    #[schema(value_type = HookPoint)]
    pub(in crate::agent) on: Option<HookPoint>,
    /// A regular expression that the tool's whole name satisfies, in upper or lower case; for hooks on
    /// tools only.
    #[schema(value_type = Option<String>, example = "write|edit")]
    pub(in crate::agent) r#match: Option<Text<4_096>>,
    pub(in crate::agent) http: Option<HttpDocument>,
    /// The name of a hook of the program.
    #[schema(value_type = Option<String>)]
    pub(in crate::agent) native: Option<Text<256>>,
    /// A duration of at most 60s: how long one call may take in all.
    #[schema(value_type = Option<String>, default = "5s")]
    pub(in crate::agent) timeout: Option<PositiveDuration>,
    /// `pre` hooks only: neighbours with the same text are called at once, and may only add.
    #[schema(value_type = Option<String>)]
    pub(in crate::agent) parallel: Option<Text<64>>,
    /// `pre` hooks only: its additions are journalled, once a step; otherwise they are for one
    /// step only.
    #[schema(default = false)]
    pub(in crate::agent) durable: Option<bool>,
    /// `post` hooks: a failure halts the turn; `stream` hooks: a failure fails it.
    #[schema(default = false)]
    pub(in crate::agent) fail_closed: Option<bool>,
}
