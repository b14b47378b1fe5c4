//! Reply links: a page that asks, and the answer that it sends (`reference/webhooks.md`).
//!
//! The token in the path is the credential. A GET decides nothing, so that what opens links by itself,
//! such as a scanner of mail, answers nothing. The page needs no script.

mod page;

use abide_actors::notices::NoticeKind;
use abide_actors::request::{Reply, Request as ConversationRequest, ResolveRequest};
use abide_conversation::command::ResolutionAnswer;
use abide_conversation::state::PendingCall;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::Api;
use super::extract::Path;
use super::problem::Problem;
use crate::access::permission::Anybody;
use crate::access::routes::{DeclaredRouter, GET, POST};
use crate::access::{Allowed, LinkError, ReplyLink};
use page::{Notice, Question};

/// The largest form: a decision, and a reason.
const MAX_FORM_BYTES: usize = 16 * 1024;
/// The longest reason that the page sends.
const MAX_REASON_CHARS: usize = 2_000;

pub(super) fn router() -> DeclaredRouter<Api> {
    DeclaredRouter::new()
        .route(GET, "/v1/replies/{token}", ask)
        .route(POST, "/v1/replies/{token}", decide)
        .route(GET, "/v1/replies/{token}/{answer}", ask_about)
        .route(POST, "/v1/replies/{token}/{answer}", decide_about)
}

/// What a link asks about, while nobody has answered it.
struct Open {
    link: ReplyLink,
    pending: PendingCall,
    agent: String,
}

async fn ask(_: Allowed<Anybody>, State(api): State<Api>, Path(token): Path<String>) -> Response {
    show(&api, &token, None).await
}

async fn ask_about(
    _: Allowed<Anybody>,
    State(api): State<Api>,
    Path((token, answer)): Path<(String, String)>,
) -> Response {
    match answer.as_str() {
        "approve" => show(&api, &token, Some(true)).await,
        "deny" => show(&api, &token, Some(false)).await,
        _ => page::notice(StatusCode::NOT_FOUND, Notice::Invalid),
    }
}

async fn show(api: &Api, token: &str, only: Option<bool>) -> Response {
    match find(api, token).await {
        Ok(Open { link, pending, agent }) => {
            // The page of one answer is a level below.
            let action = if only.is_some() { format!("../{token}") } else { token.to_owned() };
            let subject = link.allowed.principal();
            page::question(&Question {
                action: &action,
                agent: &agent,
                subject: subject.as_str(),
                pending: &pending,
                only,
            })
        }
        Err(response) => *response,
    }
}

async fn decide(
    _: Allowed<Anybody>,
    State(api): State<Api>,
    Path(token): Path<String>,
    body: Body,
) -> Response {
    let (approved, reason) = read_form(body).await;
    match approved {
        Some(approved) => answer_with(&api, &token, approved, reason).await,
        None => page::notice(StatusCode::UNPROCESSABLE_ENTITY, Notice::NoDecision),
    }
}

/// A POST to the link of one answer gives that answer; the form has the reason, if there is one.
async fn decide_about(
    _: Allowed<Anybody>,
    State(api): State<Api>,
    Path((token, answer)): Path<(String, String)>,
    body: Body,
) -> Response {
    let approved = match answer.as_str() {
        "approve" => true,
        "deny" => false,
        _ => return page::notice(StatusCode::NOT_FOUND, Notice::Invalid),
    };
    let (_, reason) = read_form(body).await;
    answer_with(&api, &token, approved, reason).await
}

async fn answer_with(api: &Api, token: &str, approved: bool, reason: Option<String>) -> Response {
    let Open { link, pending, .. } = match find(api, token).await {
        Ok(open) => open,
        Err(response) => return *response,
    };
    let request = ConversationRequest::Resolve(ResolveRequest {
        call: link.call.clone(),
        suspension: Some(link.suspension),
        by: link.allowed.principal(),
        answer: ResolutionAnswer::Approval { approved, reason, args: None },
        remember: None,
    });
    let sent = api.conversations.deliver(&link.allowed, &link.conversation, request, Vec::new());
    match sent.await {
        Ok(Reply::Resolved { .. }) => {
            page::notice(StatusCode::OK, Notice::Decided { approved, tool: &pending.tool })
        }
        Ok(Reply::Recorded { votes, needed, .. }) => {
            page::notice(StatusCode::OK, Notice::Recorded { votes, needed })
        }
        Ok(_) => page::notice(StatusCode::INTERNAL_SERVER_ERROR, Notice::Failed),
        Err(problem) => refused(&problem),
    }
}

/// What the form says: whether the call is approved, and why. A form that is too large says nothing.
async fn read_form(body: Body) -> (Option<bool>, Option<String>) {
    let bytes = to_bytes(body, MAX_FORM_BYTES).await.unwrap_or_default();
    let (mut approved, mut reason) = (None, None);
    for (name, value) in url::form_urlencoded::parse(&bytes) {
        match (name.as_ref(), value.as_ref()) {
            ("decision", "approve") => approved = Some(true),
            ("decision", "deny") => approved = Some(false),
            ("reason", text) if !text.trim().is_empty() => {
                reason = Some(text.trim().chars().take(MAX_REASON_CHARS).collect());
            }
            _ => {}
        }
    }
    (approved, reason)
}

/// The suspension that a link is for; else the page that says why there is none.
async fn find(api: &Api, token: &str) -> Result<Open, Box<Response>> {
    let say = |status, notice| Box::new(page::notice(status, notice));
    let link = ReplyLink::read(&api.access, token).await.map_err(|error| match error {
        LinkError::Invalid => say(StatusCode::NOT_FOUND, Notice::Invalid),
        LinkError::Expired => say(StatusCode::GONE, Notice::Over),
        LinkError::Refused(problem) => Box::new(refused(&problem)),
    })?;
    // A link ends with its webhook.
    let webhook = api.webhooks.get(&link.webhook).filter(|webhook| {
        webhook.is_active()
            && webhook.links.is_some()
            && webhook.wants_kind(NoticeKind::CallSuspended)
    });
    if webhook.is_none() {
        return Err(say(StatusCode::NOT_FOUND, Notice::Invalid));
    }
    let state = api.conversations.unscoped().stored_state(&link.conversation).await;
    let state = state.map_err(|error| Box::new(refused(&Problem::from(error))))?;
    let state = state.filter(|state| state.created_at == Some(link.born));
    let pending = state.as_ref().and_then(|state| {
        let pending = state.pending_calls();
        let is_it =
            |it: &PendingCall| (&it.call_id, it.suspension) == (&link.call, link.suspension);
        pending.into_iter().find(is_it)
    });
    let agent = state.and_then(|state| state.agent).map(|agent| agent.to_string());
    match pending {
        Some(pending) => Ok(Open { link, pending, agent: agent.unwrap_or_default() }),
        None => Err(say(StatusCode::GONE, Notice::Over)),
    }
}

/// The page for a problem.
fn refused(problem: &Problem) -> Response {
    let notice = match problem.status() {
        StatusCode::CONFLICT | StatusCode::NOT_FOUND => {
            return page::notice(StatusCode::GONE, Notice::Over);
        }
        StatusCode::FORBIDDEN => Notice::NotYours,
        _ => Notice::Failed,
    };
    page::notice(problem.status(), notice)
}
