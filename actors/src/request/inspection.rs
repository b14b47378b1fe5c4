//! What a live conversation tells of itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_conversation::State;
use abide_conversation::ids::CallId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::backoff::Backoff;
use crate::journal::{Claim, Holder};
use crate::limit_waits::LimitWait;
use crate::streaming::StreamingMessage;

/// A live conversation at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Inspection {
    pub state: Arc<State>,
    #[serde(rename = "held")]
    pub claim: Claim,
    pub streaming: Option<StreamingMessage>,
    /// The latest progress of each running tool.
    pub progress: BTreeMap<CallId, Value>,
    /// The running activities, for people.
    pub running: Vec<String>,
    /// The delays of those that wait before a retry.
    #[serde(rename = "pauses", default)]
    pub backoffs: Vec<Backoff>,
    /// The calls that wait because the limits of their tool are reached.
    #[serde(default)]
    pub limit_waits: BTreeMap<CallId, LimitWait>,
}

/// The outcome of an operator's request to release a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReleaseOutcome {
    /// It was released; its new holder, if any.
    #[serde(rename = "Parted")]
    Released(Option<Holder>),
    /// It was not released: these calls run and must not run twice.
    #[serde(rename = "Runs")]
    Uninterruptible(Vec<CallId>),
}
