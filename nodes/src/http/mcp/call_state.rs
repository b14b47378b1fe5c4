//! What a client keeps of a call while its person is asked: `requestState`.

use std::collections::BTreeMap;

use abide_conversation::identity::Tenant;
use abide_conversation::{ConversationId, Seq, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::server::{CallError, Caller};
use crate::http::extract::{canonical, fingerprint};
use crate::problem::Problem;
use crate::protocols::mcp::question::Question;

/// The type of the text, which no other JWT has.
const KIND: &str = "abide-mcp+jwt";
const NAME: &str = "requestState";

/// The state of a call. Its signature proves where it comes from; what the caller may do is judged
/// anew by the credential of each request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CallState {
    pub(super) conversation: ConversationId,
    pub(super) turn: TurnId,
    /// The event with which the turn begins.
    pub(super) from: Seq,
    /// What the client was asked, by the id of the question.
    pub(super) asked: BTreeMap<String, Question>,
    tenant: Tenant,
    /// A digest of who makes the call.
    principal: String,
    /// A digest of the call.
    call: String,
    /// In seconds since 1970.
    exp: i64,
}

/// A call whose person is asked.
pub(super) struct AskedCall {
    pub(super) conversation: ConversationId,
    pub(super) turn: TurnId,
    pub(super) from: Seq,
    pub(super) asked: BTreeMap<String, Question>,
    /// A digest of the call.
    pub(super) call: String,
    /// When the last of the questions expires, in seconds since 1970.
    pub(super) expires_at: i64,
}

/// A digest of the call of a tool.
pub(super) fn digest(tool: &str, arguments: &Value) -> String {
    fingerprint(&["mcp", tool, &canonical(arguments)])
}

impl CallState {
    /// Signs the state of a call.
    pub(super) async fn seal(caller: &Caller, call: AskedCall) -> Result<String, Problem> {
        let AskedCall { conversation, turn, from, asked, call, expires_at } = call;
        let tenant = caller.allowed.tenant();
        let (principal, exp) = (principal(caller), expires_at);
        let state = Self { conversation, turn, from, asked, tenant, principal, call, exp };
        caller.api.client_state.sign(KIND, &state).await
    }

    /// The state that a caller brings back for this call.
    pub(super) async fn open(caller: &Caller, text: &str, call: &str) -> Result<Self, CallError> {
        let wrong = || CallError::parameter(NAME, "is not the state of this call");
        let state: Option<Self> = caller.api.client_state.verify(KIND, text).await?;
        let state = state.ok_or_else(wrong)?;
        let is_own = state.principal == principal(caller)
            && state.tenant == caller.allowed.tenant()
            && state.call == call;
        if !is_own {
            return Err(wrong());
        }
        if state.exp <= caller.api.clock.now().as_second() {
            return Err(CallError::parameter(NAME, "has expired"));
        }
        Ok(state)
    }
}

/// A digest of who makes the call: the person, by whatever credential.
fn principal(caller: &Caller) -> String {
    match caller.allowed.identity() {
        Some(identity) => {
            let person = identity.acting();
            fingerprint(&["somebody", &person.iss, &person.sub])
        }
        None => fingerprint(&["anybody", caller.allowed.principal().as_str()]),
    }
}
