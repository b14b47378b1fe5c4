//! Mints conversation tokens, for pages and reply links.

use std::collections::BTreeSet;
use std::time::Duration;

use abide_conversation::event::SuspensionKind;
use abide_conversation::identity::Role;
use abide_conversation::limits::is_subject;
use abide_conversation::state::State as ConversationState;
use abide_conversation::{AgentName, CallId, Timestamp, is_segment};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::Api;
use super::conversations::agent_name;
use super::extract::Body;
use super::problem::{Kind, Problem};
use crate::access::permission::MintTokens;
use crate::access::{Allowed, MAX_TTL, Scope, TokenGrant, TokenTarget};

/// The calls of one reply link.
const MAX_CALLS: usize = 100;
const MAX_NAME_CHARS: usize = 255;

/// A token to be minted: for one `conversation`, for those whose ids begin with `conversation_prefix`,
/// or for `calls`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewToken)]
pub(super) struct NewToken {
    /// Who acts with the token. Only a backend may name another than itself.
    #[schema(min_length = 1, max_length = 255)]
    subject: String,
    /// For people.
    name: Option<String>,
    conversation: Option<String>,
    conversation_prefix: Option<String>,
    /// Open suspensions of one conversation, each as `CONVERSATION/CALL/SUSPENSION`. The token ends
    /// with the last of their deadlines, and is of no use once they are answered.
    #[schema(min_items = 1, max_items = 100)]
    calls: Option<Vec<String>>,
    /// With `create`: the only agent of the conversations that the token creates.
    agent: Option<String>,
    /// What the token permits; for `calls`, what they wait for if absent.
    scope: Option<BTreeSet<Scope>>,
    /// How long the token lives: at most `1h` unless it is for `calls`.
    #[schema(example = "15m")]
    ttl: Option<String>,
}

/// A token that was minted.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TokenMinted {
    /// For the header `Authorization: Bearer`, never for a URL.
    token: String,
    expires_at: Timestamp,
}

/// Mints a token.
///
/// A backend may mint any; the owner of a conversation, one with the scopes that the owner has. A token
/// for a conversation ends when the conversation is deleted, even if its id is used again.
#[utoipa::path(post, path = "/v1/tokens", operation_id = "mint_token", tag = "access",
    request_body(content = NewToken, example = json!({"subject": "u_17",
        "conversation": "c_1", "scope": ["read", "send", "answer:client"], "ttl": "15m"})),
    responses((status = 201, description = "The token.", body = TokenMinted)))]
pub(super) async fn mint(
    allowed: Allowed<MintTokens>,
    State(api): State<Api>,
    body: Body<NewToken>,
) -> Result<(StatusCode, Json<TokenMinted>), Problem> {
    let NewToken { subject, name, conversation, conversation_prefix, calls, agent, scope, ttl } =
        body.value;
    let minter = Minter { api: &api, allowed: &allowed };
    minter.check_subject(&subject, name.as_deref())?;
    let agent = agent.as_deref().map(agent_name).transpose()?;
    let now = api.clock.now();
    let (grant, expires_at) = match (conversation, conversation_prefix, calls) {
        (Some(id), None, None) => {
            let scopes = required(scope)?;
            let target = minter.conversation(&id, &scopes).await?;
            (TokenGrant { target, scopes, agent }, minter.expiry(now, ttl.as_deref())?)
        }
        (None, Some(prefix), None) => {
            let (scopes, target) = (required(scope)?, minter.prefix(prefix)?);
            (TokenGrant { target, scopes, agent }, minter.expiry(now, ttl.as_deref())?)
        }
        (None, None, Some(calls)) => minter.calls(&calls, scope, agent, (now, ttl)).await?,
        _ => {
            let rule = "give exactly one of conversation, conversation_prefix and calls";
            return Err(Problem::field("conversation", rule));
        }
    };
    if grant.agent.is_some() && !grant.scopes.contains(&Scope::Create) {
        return Err(Problem::field("agent", "is only for a token with the scope create"));
    }
    // Whoever owns a conversation mints as many as they like: the operators' audit, which keeps a number
    // of entries, has none of them.
    let (tenant, by) = (allowed.tenant(), allowed.principal());
    let (on, scopes) = (target_of(&grant.target), json!(grant.scopes));
    let minted_by = (tenant.clone(), allowed.identity());
    let minted = api.access.mint(minted_by, (subject.clone(), name), grant, expires_at)?;
    let (token, expires_at) = minted;
    tracing::info!(
        target: "abide::tokens",
        %tenant, %by, subject, on, %scopes, %expires_at, "token minted"
    );
    Ok((StatusCode::CREATED, Json(TokenMinted { token, expires_at })))
}

/// What a token is for, as the log has it.
fn target_of(target: &TokenTarget) -> String {
    match target {
        TokenTarget::Conversation { id, .. } | TokenTarget::Calls { id, .. } => id.to_string(),
        TokenTarget::Prefix(prefix) => format!("{prefix}*"),
    }
}

fn required(scope: Option<BTreeSet<Scope>>) -> Result<BTreeSet<Scope>, Problem> {
    let scope = scope.filter(|scope| !scope.is_empty());
    scope.ok_or_else(|| Problem::field("scope", "must name at least one scope"))
}

/// The caller, who may permit what they may do themselves.
struct Minter<'a> {
    api: &'a Api,
    allowed: &'a Allowed<MintTokens>,
}

impl Minter<'_> {
    fn is_backend(&self) -> bool {
        self.allowed.has_role(&[Role::Backend])
    }

    fn check_subject(&self, subject: &str, name: Option<&str>) -> Result<(), Problem> {
        if !is_subject(subject) {
            let rule = "must be 1 to 255 characters without control characters, and not \"system\"";
            return Err(Problem::field("subject", rule));
        }
        let is_name = |name: &str| {
            (1..=MAX_NAME_CHARS).contains(&name.chars().count())
                && !name.chars().any(char::is_control)
        };
        if !name.is_none_or(is_name) {
            return Err(Problem::field("name", "must be 1 to 255 characters"));
        }
        if self.is_backend() || self.allowed.subject() == Some(subject) {
            Ok(())
        } else {
            Err(Problem::forbidden("backend"))
        }
    }

    /// The one conversation of a token.
    async fn conversation(
        &self,
        id: &str,
        scopes: &BTreeSet<Scope>,
    ) -> Result<TokenTarget, Problem> {
        let id = self.allowed.named_conversation(id).ok_or_else(missing)?;
        match self.api.conversations.unscoped().stored_state(&id).await? {
            Some(state) => {
                self.check_scopes(&state, scopes)?;
                Ok(TokenTarget::Conversation { id: id.local(), born: state.created_at })
            }
            None if self.is_backend() && scopes.contains(&Scope::Create) => {
                Ok(TokenTarget::Conversation { id: id.local(), born: None })
            }
            None => Err(missing()),
        }
    }

    /// Whether the caller has what the token is to permit.
    fn check_scopes(
        &self,
        state: &ConversationState,
        scopes: &BTreeSet<Scope>,
    ) -> Result<(), Problem> {
        if self.is_backend() {
            return Ok(());
        }
        let sub = self.allowed.subject().unwrap_or_default();
        if !state.participants.include(sub) {
            return Err(missing());
        }
        if !state.participants.is_owner(sub) {
            return Err(Problem::forbidden("mint_tokens"));
        }
        let has = |scope: &Scope| match scope {
            Scope::Create => false,
            Scope::Approve => self.allowed.has_role(&[Role::Approver]),
            Scope::Read
            | Scope::Send
            | Scope::Cancel
            | Scope::AnswerClient
            | Scope::AnswerHuman => true,
        };
        if scopes.iter().all(has) { Ok(()) } else { Err(Problem::forbidden("mint_tokens")) }
    }

    fn prefix(&self, prefix: String) -> Result<TokenTarget, Problem> {
        if !self.is_backend() {
            return Err(Problem::forbidden("backend"));
        }
        // The ids that begin with it are longer, so that "." may begin one.
        if !is_segment(&format!("{prefix}x")) || prefix.is_empty() {
            let rule = "must be 1 to 127 of A-Z a-z 0-9 _ . : -";
            return Err(Problem::field("conversation_prefix", rule));
        }
        Ok(TokenTarget::Prefix(prefix))
    }

    /// A token for open suspensions of one conversation, until the last of their deadlines.
    async fn calls(
        &self,
        calls: &[String],
        scope: Option<BTreeSet<Scope>>,
        agent: Option<AgentName>,
        (now, ttl): (Timestamp, Option<String>),
    ) -> Result<(TokenGrant, Timestamp), Problem> {
        let (id, calls) = parse_calls(calls)?;
        let scoped = self.allowed.named_conversation(&id).ok_or_else(missing)?;
        let id = scoped.local();
        let state = self.api.conversations.unscoped().stored_state(&scoped).await?;
        let state = state.ok_or_else(missing)?;
        let pending = state.pending_calls();
        let mut kinds = BTreeSet::new();
        let mut expires_at = now;
        for (call, suspension) in &calls {
            let mut open = pending.iter();
            let open = open.find(|it| (&it.call_id, it.suspension) == (call, *suspension));
            let Some(open) = open else {
                self.check_scopes(&state, &BTreeSet::new())?;
                let detail = format!("calls: {id}/{call}/{suspension} waits for nobody");
                return Err(Problem::new(Kind::CallNotOpen, detail));
            };
            kinds.insert(scope_of(open.kind));
            expires_at = expires_at.max(open.expires_at);
        }
        let scopes = scope.unwrap_or(kinds);
        if !scopes.iter().all(|scope| Scope::ANSWERS.contains(scope)) {
            let rule = "of a token for calls must be answer:client, answer:human or approve";
            return Err(Problem::field("scope", rule));
        }
        self.check_scopes(&state, &scopes)?;
        if let Some(ttl) = ttl {
            let ttl = abide_actors::agent::duration(&ttl);
            let ttl = ttl.map_err(|reason| Problem::field("ttl", reason))?;
            expires_at = expires_at.min(later(now, ttl));
        }
        let born = state.created_at.unwrap_or(Timestamp::UNIX_EPOCH);
        let target = TokenTarget::Calls { id, born, calls };
        Ok((TokenGrant { target, scopes, agent }, expires_at))
    }

    /// When a token with this lifetime expires.
    fn expiry(&self, now: Timestamp, ttl: Option<&str>) -> Result<Timestamp, Problem> {
        let ttl = match ttl {
            None => self.api.access.default_ttl()?,
            Some(ttl) => abide_actors::agent::duration(ttl)
                .map_err(|reason| Problem::field("ttl", reason))?,
        };
        if ttl > MAX_TTL {
            return Err(Problem::field("ttl", "must be at most 1h"));
        }
        Ok(later(now, ttl))
    }
}

fn missing() -> Problem {
    Problem::not_found("conversation")
}

fn scope_of(kind: SuspensionKind) -> Scope {
    match kind {
        SuspensionKind::Approval | SuspensionKind::InDoubt => Scope::Approve,
        SuspensionKind::Elicitation => Scope::AnswerHuman,
        SuspensionKind::ClientExec => Scope::AnswerClient,
    }
}

/// The conversation and the suspensions of `CONVERSATION/CALL/SUSPENSION`. A call's id is its
/// provider's and may have a `/`.
fn parse_calls(calls: &[String]) -> Result<(String, Vec<(CallId, u32)>), Problem> {
    let parse = |text: &str| {
        let (id, rest) = text.split_once('/')?;
        let (call, suspension) = rest.rsplit_once('/')?;
        let suspension: u32 = suspension.parse().ok().filter(|number| *number > 0)?;
        (!call.is_empty()).then(|| (id.to_owned(), (CallId::new(call), suspension)))
    };
    let rule = "must be 1 to 100 of CONVERSATION/CALL/SUSPENSION, all of one conversation";
    let wrong = || Problem::field("calls", rule);
    let parsed: Option<Vec<_>> = calls.iter().map(|text| parse(text)).collect();
    let parsed = parsed.filter(|calls| (1..=MAX_CALLS).contains(&calls.len())).ok_or_else(wrong)?;
    let id = parsed.first().map(|(id, _)| id.clone()).unwrap_or_default();
    if parsed.iter().any(|(other, _)| *other != id) {
        return Err(wrong());
    }
    Ok((id, parsed.into_iter().map(|(_, call)| call).collect()))
}

fn later(now: Timestamp, span: Duration) -> Timestamp {
    let span = SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
    now.checked_add(span).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_named_with_its_conversation_and_the_number_of_its_suspension() {
        let parse = |calls: &[&str]| {
            let calls: Vec<String> = calls.iter().map(|&call| call.to_owned()).collect();
            parse_calls(&calls).ok()
        };
        let calls = vec![(CallId::new("a/b"), 2), (CallId::new("c"), 1)];
        assert_eq!(parse(&["x/a/b/2", "x/c/1"]), Some(("x".to_owned(), calls)));
        for wrong in [&[][..], &["x/c"], &["x/c/0"], &["x/c/one"], &["x//1"], &["x/c/1", "y/c/1"]] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
