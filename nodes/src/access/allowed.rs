//! The extractor that every route begins with: no handler runs for a caller without its permission.

use std::marker::PhantomData;
use std::sync::Arc;

use abide_actors::access::{Access, Answerer};
use abide_actors::journal::Viewer;
use abide_conversation::identity::{Identity, Role, Tenant};
use abide_conversation::{AgentName, ConversationId, Principal, Scoped, Timestamp};
use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;

use super::control::AccessControl;
use super::credential::Scope;
use super::permission::{
    Answer, ConversationPermission, Permission, Rule, Verb, caller_access, is_met,
};
use super::principal;
use super::quotas::BodyShare;
use super::session::Session;
use crate::problem::Problem;

/// A caller who has the permission `P`. A handler whose first parameter is not this cannot be a route.
#[derive(Debug)]
pub struct Allowed<P> {
    caller: Caller,
    /// What the tenant's bodies may take; `None` where that is not bounded.
    bodies: Option<BodyShare>,
    permission: PhantomData<fn() -> P>,
}

/// Who makes a request.
#[derive(Clone, Debug)]
enum Caller {
    /// Anybody: the route is public, or the node authenticates nobody. The name is believed.
    Anybody(Option<Principal>),
    Somebody(Arc<Session>),
}

impl<P: Permission, S: Send + Sync> FromRequestParts<S> for Allowed<P>
where
    AccessControl: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let control = AccessControl::from_ref(state);
        let caller = match (P::RULE, control.guard()) {
            (Rule::Public, _) => Caller::Anybody(None),
            (_, None) => Caller::Anybody(principal::claimed(&parts.headers)?),
            (_, Some(guard)) => {
                let session = guard.authenticate(parts).await?;
                principal::refuse_claimed(&parts.headers)?;
                Caller::Somebody(session)
            }
        };
        let mut allowed = Self { caller, bodies: None, permission: PhantomData };
        if let (Some(tenant), true) = (allowed.own_tenant(), is_counted(P::RULE)) {
            control.admit_request(tenant)?;
            allowed.bodies = control.body_share(tenant);
        }
        allowed.check()?;
        if let Some(bodies) = &allowed.bodies {
            // For the extractor of the body, which follows.
            parts.extensions.insert(bodies.clone());
        }
        Ok(allowed)
    }
}

impl<P: Permission> Allowed<P> {
    fn check(&self) -> Result<(), Problem> {
        let Caller::Somebody(session) = &self.caller else { return Ok(()) };
        match P::RULE {
            rule if is_met(rule, session.credential()) => Ok(()),
            // Whoever may read no conversation learns of none.
            Rule::Conversation(_) => Err(Problem::not_found("conversation")),
            Rule::Public | Rule::AnyCredential | Rule::OneOf(..) => {
                Err(Problem::forbidden(P::NEEDS))
            }
        }
    }

    /// The caller with another permission, for a route that does several things.
    pub(crate) fn with<Q: Permission>(&self) -> Result<Allowed<Q>, Problem> {
        let (caller, bodies) = (self.caller.clone(), self.bodies.clone());
        let allowed = Allowed { caller, bodies, permission: PhantomData };
        allowed.check()?;
        Ok(allowed)
    }

    /// What the bodies of the caller's tenant may take; `None` where that is not bounded.
    pub(crate) fn bodies(&self) -> Option<&BodyShare> {
        self.bodies.as_ref()
    }

    /// The credential; `None` if the node authenticates nobody.
    pub(crate) fn session(&self) -> Option<&Arc<Session>> {
        match &self.caller {
            Caller::Anybody(_) => None,
            Caller::Somebody(session) => Some(session),
        }
    }

    /// The caller's identity, as the journal keeps it; `None` if the node authenticates nobody.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.session().map(|session| &session.credential().identity)
    }

    /// On whose behalf the request is made.
    pub(crate) fn principal(&self) -> Principal {
        self.principal_or("anonymous")
    }

    /// The operator who makes the request.
    pub(crate) fn operator(&self) -> Principal {
        self.principal_or("operator")
    }

    fn principal_or(&self, default: &str) -> Principal {
        match &self.caller {
            Caller::Anybody(claimed) => claimed.clone().unwrap_or_else(|| Principal::new(default)),
            Caller::Somebody(session) => {
                Principal::new(session.credential().identity.acting().sub.clone())
            }
        }
    }

    /// The caller's subject, if somebody was authenticated.
    pub(crate) fn subject(&self) -> Option<&str> {
        self.identity().map(|identity| identity.acting().sub.as_str())
    }

    /// Whether the caller has one of these roles; everybody has, if the node authenticates nobody.
    pub(crate) fn has_role(&self, roles: &[Role]) -> bool {
        let Some(session) = self.session() else { return true };
        let credential = session.credential();
        let own = &credential.identity.acting().roles;
        credential.grant.is_none() && roles.iter().any(|role| own.contains(role))
    }

    /// The tenant whose things the request is about: the caller's own. What an operator without one
    /// may do is about no tenant's things.
    pub(crate) fn tenant(&self) -> Tenant {
        self.own_tenant().cloned().unwrap_or_default()
    }

    /// The caller's tenant; `None` for an operator without one, and if the node authenticates nobody.
    pub(crate) fn own_tenant(&self) -> Option<&Tenant> {
        self.identity().and_then(|identity| identity.tenant.as_ref())
    }

    /// What the caller's tenant calls this. Here, and nowhere else, a name in a request becomes one that
    /// reaches the stores.
    pub(crate) fn scoped<N: AsRef<str> + for<'a> From<&'a str>>(&self, name: &N) -> Scoped<N> {
        Scoped::new(&self.tenant(), name)
    }

    /// What lists show to the caller.
    pub(crate) fn viewer(&self) -> Viewer {
        let Some(sub) = self.subject() else { return Viewer::Everything };
        if self.has_role(&[Role::Backend, Role::Auditor]) {
            return Viewer::Everything;
        }
        let approver = self.identity().filter(|_| self.has_role(&[Role::Approver]));
        match (self.has_role(&[Role::User]), approver.map(|identity| identity.acting().clone())) {
            (true, Some(approver)) => Viewer::ApprovingParticipant(approver),
            (false, Some(approver)) => Viewer::Approver(approver),
            (_, None) => Viewer::Participant(sub.to_owned()),
        }
    }

    /// The caller as somebody who answers calls now.
    pub(crate) fn answerer(&self, at: Timestamp) -> Answerer {
        Answerer { access: self.access_for(Answer::VERB, Answer::NEEDS), at }
    }

    fn access_for(&self, verb: Verb, needs: &str) -> Access {
        match &self.caller {
            Caller::Anybody(_) => Access::Unrestricted,
            Caller::Somebody(session) => {
                Access::Caller(Box::new(caller_access(session.credential(), verb, needs)))
            }
        }
    }

    /// The conversation that the caller's tenant calls this; `None` if no conversation can have the
    /// name. Whether the caller may reach it is to be judged.
    pub(crate) fn named_conversation(&self, id: &str) -> Option<Scoped<ConversationId>> {
        ConversationId::parse(id).map(|id| self.scoped(&id))
    }

    /// The id of a conversation that the caller is about to create.
    pub(crate) fn new_conversation(&self, id: &str) -> Result<Scoped<ConversationId>, Problem> {
        let rule = "must be 1 to 128 of A-Z a-z 0-9 _ . : -, and neither . nor ..";
        let id = self.named_conversation(id).ok_or_else(|| Problem::field("id", rule))?;
        if self.is_addressed(&id) { Ok(id) } else { Err(Problem::forbidden(P::NEEDS)) }
    }

    /// Whether the caller's token, if that is the credential, is for this conversation.
    fn is_addressed(&self, id: &Scoped<ConversationId>) -> bool {
        let grant = self.session().and_then(|session| session.credential().grant.as_ref());
        grant.is_none_or(|grant| grant.target.includes(&id.local()))
    }

    /// Whether a conversation of this agent may be created.
    pub(crate) fn check_create(&self, agent: &AgentName) -> Result<(), Problem> {
        let grant = self.session().and_then(|session| session.credential().grant.as_ref());
        let Some(grant) = grant else { return Ok(()) };
        let is_meant = grant.agent.as_ref().is_none_or(|only| only == agent);
        if is_meant && grant.scopes.contains(&Scope::Create) {
            Ok(())
        } else {
            Err(Problem::forbidden("create"))
        }
    }
}

impl Allowed<Answer> {
    /// The caller whom a reply link names.
    pub(super) fn by_session(session: Arc<Session>) -> Result<Self, Problem> {
        let caller = Caller::Somebody(session);
        let allowed = Self { caller, bodies: None, permission: PhantomData };
        allowed.check()?;
        Ok(allowed)
    }
}

impl<P: ConversationPermission> Allowed<P> {
    /// The conversation that a path names. One that the caller's token is not for, or that no
    /// conversation can be, is not found.
    pub(crate) fn conversation(&self, id: &str) -> Result<Scoped<ConversationId>, Problem> {
        let id = self.named_conversation(id).filter(|id| self.is_addressed(id));
        id.ok_or_else(|| Problem::not_found("conversation"))
    }

    /// What the request may do, to be judged where the conversation's state is.
    pub(crate) fn access(&self) -> Access {
        self.access_for(P::VERB, P::NEEDS)
    }
}

/// Whether a request of such a route counts as one of its tenant: health checks, and what only tells a
/// caller about the caller or the API, do not.
fn is_counted(rule: Rule) -> bool {
    match rule {
        Rule::Public | Rule::AnyCredential => false,
        Rule::OneOf(..) | Rule::Conversation(_) => true,
    }
}
