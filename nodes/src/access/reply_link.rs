//! Reply links: tokens in the links of notices, each for one suspension and one subject.

use std::collections::BTreeSet;
use std::sync::Arc;

use abide_actors::notices::{LinkSubject, Webhook, WebhookKey};
use abide_conversation::{CallId, ConversationId, Scoped, Timestamp};
use abide_registry::notices::LinkMaker;
use abide_registry::store::{NoticeQueue, Store, StoredNotice};
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use super::AccessControl;
use super::allowed::Allowed;
use super::conversation_token::{self, TokenRequest};
use super::credential::{Scope, TokenGrant, TokenTarget};
use super::credential_error::CredentialError;
use super::permission::Answer;
use super::session::Presented;
use crate::problem::Problem;
use crate::public_url::PublicUrl;

/// What the id of a reply link's token begins with; the webhook and the event follow.
const LINK_PREFIX: &str = "link:";

/// Makes the links of notices.
pub(crate) struct ReplyLinks {
    access: AccessControl,
    store: Arc<dyn Store>,
    public_url: PublicUrl,
}

/// What a reply link answers, and for which webhook it was made.
pub(crate) struct ReplyLink {
    pub(crate) allowed: Allowed<Answer>,
    pub(crate) webhook: WebhookKey,
    pub(crate) conversation: Scoped<ConversationId>,
    /// When the conversation was created.
    pub(crate) born: Timestamp,
    pub(crate) call: CallId,
    pub(crate) suspension: u32,
}

/// Why a reply link is of no use.
pub(crate) enum LinkError {
    Invalid,
    Expired,
    Refused(Problem),
}

/// What a link needs of a notice.
#[derive(Deserialize)]
struct Body {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    call_id: CallId,
    suspension: u32,
    kind: String,
    expires_at: Timestamp,
}

impl ReplyLinks {
    /// `None` if the node cannot sign, or does not know where it is reached.
    pub(crate) fn link_maker(
        access: &AccessControl,
        store: &Arc<dyn Store>,
        public_url: Option<&PublicUrl>,
    ) -> Option<Arc<dyn LinkMaker>> {
        let public_url = public_url?.clone();
        let (access, store) = (access.clone(), store.clone());
        access.default_ttl().is_ok().then(|| Arc::new(Self { access, store, public_url }) as _)
    }

    fn token(
        &self,
        webhook: &Webhook,
        subject: &LinkSubject,
        queue: &NoticeQueue,
        seq: abide_conversation::Seq,
        (data, born): (Data, Timestamp),
    ) -> Option<String> {
        let request = TokenRequest {
            tenant: webhook.tenant.clone(),
            sub: subject.subject.clone(),
            name: None,
            roles: subject.roles.clone(),
            groups: Vec::new(),
            minted_by: None,
            grant: TokenGrant {
                target: TokenTarget::Calls {
                    id: queue.conversation.local(),
                    born,
                    calls: vec![(data.call_id, data.suspension)],
                },
                scopes: BTreeSet::from([Scope::Approve]),
                agent: None,
            },
            expires_at: data.expires_at,
            jti: format!("{LINK_PREFIX}{}:{seq}", webhook.key()),
        };
        let guard = self.access.guard()?;
        guard.with_token_keys(|keys| conversation_token::mint(keys, request))?.ok()
    }
}

#[async_trait]
impl LinkMaker for ReplyLinks {
    async fn links(
        &self,
        webhook: &Webhook,
        queue: &NoticeQueue,
        notice: &StoredNotice,
    ) -> Option<Value> {
        let subject = webhook.links.as_ref()?;
        let Body { data } = serde_json::from_str(&notice.body).ok()?;
        if data.kind != "approval" {
            return None;
        }
        let summary = self.store.summary(&queue.conversation).await.ok().flatten()?;
        let token = self.token(webhook, subject, queue, notice.seq, (data, summary.created_at))?;
        let page = self.public_url.join(&format!("/v1/replies/{token}"));
        Some(json!({
            "approve": format!("{page}/approve"),
            "deny": format!("{page}/deny"),
            "page": page,
        }))
    }
}

impl ReplyLink {
    /// What the token of a link permits. Other credentials permit nothing here: they are never in a
    /// URL.
    pub(crate) async fn read(access: &AccessControl, token: &str) -> Result<Self, LinkError> {
        let guard = access.guard().ok_or(LinkError::Invalid)?;
        let presented = Presented::of_link(token).ok_or(LinkError::Invalid)?;
        let session = guard.verify(presented).await.map_err(|error| match error {
            CredentialError::Expired => LinkError::Expired,
            _ => LinkError::Invalid,
        })?;
        let credential = session.credential();
        let tenant = credential.identity.tenant.clone().ok_or(LinkError::Invalid)?;
        let jti = credential.identity.jti.as_deref().and_then(|id| id.strip_prefix(LINK_PREFIX));
        let webhook = jti.and_then(|id| id.rsplit_once(':')).map(|(webhook, _)| webhook);
        let webhook = webhook.and_then(|text| WebhookKey::parse(text).ok());
        let webhook = webhook.filter(|it| it.is_of(&tenant)).ok_or(LinkError::Invalid)?;
        let target = credential.grant.as_ref().map(|grant| &grant.target);
        let Some(TokenTarget::Calls { id, born, calls }) = target else {
            return Err(LinkError::Invalid);
        };
        let [(call, suspension)] = calls.as_slice() else { return Err(LinkError::Invalid) };
        let (born, suspension) = (*born, *suspension);
        let call = call.clone();
        let conversation = webhook.sibling(id);
        access.admit_request(&tenant).map_err(LinkError::Refused)?;
        let allowed = Allowed::by_session(session.clone()).map_err(LinkError::Refused)?;
        Ok(Self { allowed, webhook, conversation, born, call, suspension })
    }
}
