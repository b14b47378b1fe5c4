//! What a client keeps of a call while its person is asked: `requestState`.

use std::collections::BTreeMap;

use abide_conversation::identity::Tenant;
use abide_conversation::{ConversationId, Seq, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::caller::{CallError, Caller};
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
    pub(super) questions: BTreeMap<String, Question>,
    tenant: Tenant,
    /// A digest of who makes the call.
    principal: String,
    /// A digest of the call.
    call: String,
    /// In seconds since 1970.
    exp: i64,
}

/// What a state is made of.
pub(super) struct CallInput {
    pub(super) conversation: ConversationId,
    pub(super) turn: TurnId,
    pub(super) from: Seq,
    pub(super) questions: BTreeMap<String, Question>,
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
    pub(super) async fn seal(caller: &Caller, input: CallInput) -> Result<String, Problem> {
        let CallInput { conversation, turn, from, questions, call, expires_at } = input;
        let tenant = caller.allowed.tenant();
        let (principal, exp) = (principal(caller), expires_at);
        let state = Self { conversation, turn, from, questions, tenant, principal, call, exp };
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// What clients keep outlives the build that has signed it.
    const STATE: &str = concat!(
        r#"{"conversation":"c","turn":"t","from":3,"questions":{"#,
        r#""call_1_1/1":{"kind":"approval","form":"approval"},"#,
        r#""x/2":{"kind":"client_exec","form":"json"}},"#,
        r#""tenant":"default","principal":"p","call":"d","exp":7}"#
    );

    #[test]
    fn the_spelling_of_a_state_never_changes() {
        let state: CallState = serde_json::from_str(STATE).unwrap();
        assert_eq!(serde_json::to_string(&state).unwrap(), STATE);
        let later = STATE.replacen('{', r#"{"more":1,"#, 1);
        let read: CallState = serde_json::from_str(&later).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), STATE);
    }
}
