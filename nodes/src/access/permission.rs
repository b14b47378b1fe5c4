//! What each route asks of its caller, and who meets it: a pure table.

use std::collections::BTreeSet;

use abide_actors::access::{AnswerAccess, CallerAccess, CreateAccess, Reach};
use abide_conversation::identity::Role;

use super::credential::{Credential, Scope, TokenGrant, TokenTarget};

/// What a route asks of its caller. Each route names one, as the parameter of [`Allowed`].
///
/// [`Allowed`]: super::Allowed
pub trait Permission: 'static {
    /// What a caller lacks who is known and not allowed.
    const NEEDS: &'static str;
    const RULE: Rule;
}

/// A permission of a route about one conversation.
pub trait ConversationPermission: Permission {
    const VERB: Verb;
}

/// Who meets a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Everybody, also without a credential.
    Public,
    /// Everybody with a credential.
    AnyCredential,
    /// Whoever has one of these roles, or a token with this scope.
    OneOf(&'static [Role], Option<Scope>),
    /// Whoever the conversation's owner and members let; judged where its state is.
    Conversation(Verb),
}

/// What a request does to a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Read,
    /// What members do, too; the scope of a token for it.
    TakePart(Option<Scope>),
    /// What only owners do.
    Own,
    /// Answers a call, whose kind the conversation knows.
    Answer,
}

macro_rules! permissions {
    ($($(#[$doc:meta])* $name:ident = $needs:literal, $rule:expr;)+) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub enum $name {}

            impl Permission for $name {
                const NEEDS: &'static str = $needs;
                const RULE: Rule = $rule;
            }
        )+
    };
}

macro_rules! conversation_permissions {
    ($($name:ident = $needs:literal, $verb:expr;)+) => {
        permissions! { $($name = $needs, Rule::Conversation($verb);)+ }

        $(
            impl ConversationPermission for $name {
                const VERB: Verb = $verb;
            }
        )+
    };
}

use Role::{Approver, Auditor, Author, Backend, Operator, TenantAdmin, User, Worker};
use Rule::{AnyCredential, OneOf, Public};

permissions! {
    /// Health checks and static files.
    Anybody = "nothing", Public;
    /// The document of the API, and what a credential is.
    Known = "credential", AnyCredential;
    ReadAgents = "read_agents", OneOf(&[User, Backend, Author, TenantAdmin, Auditor], None);
    DefineAgents = "define_agents", OneOf(&[Author], None);
    ManageDecisions = "manage_decisions", OneOf(&[TenantAdmin], None);
    CreateConversations = "create", OneOf(&[User, Backend], Some(Scope::Create));
    ListConversations = "list", OneOf(&[User, Backend, Auditor], None);
    ListPending = "list_pending", OneOf(&[User, Approver, Backend, Auditor], None);
    /// Reaches the MCP server, each of whose tools asks for more.
    CallTools = "call_tools", OneOf(&[User, Approver, Backend, Auditor], Some(Scope::Send));
    StoreBlobs = "store_blobs", OneOf(&[User, Backend], Some(Scope::Send));
    ReadBlobs = "read_blobs", OneOf(&[User, Approver, Backend, Auditor], Some(Scope::Read));
    ManageKeys = "manage_keys", OneOf(&[TenantAdmin], None);
    ReadUsage = "read_usage", OneOf(&[TenantAdmin, Backend], None);
    MintTokens = "mint_tokens", OneOf(&[User, Backend], None);
    /// Nodes, live actors without their content, metrics.
    Operate = "operate", OneOf(&[Operator], None);
    /// What was sent to models.
    ReadAudit = "read_audit", OneOf(&[Auditor], None);
    /// What operators and administrators did.
    ReadOperations = "read_operations", OneOf(&[Operator, Auditor], None);
    /// Takes calls from queues, and ends them.
    WorkQueues = "work_queues", OneOf(&[Backend, Worker], None);
    /// Puts, changes and triggers schedules. A token cannot: what it permits ends with it.
    ManageSchedules = "manage_schedules", OneOf(&[User, Backend], None);
    ReadSchedules = "read_schedules", OneOf(&[User, Backend, Auditor], None);
    DeleteBlobs = "delete_blobs", OneOf(&[Operator, TenantAdmin], None);
    /// Writes journals, which may claim approvals: whoever may make keys may do as much already.
    ImportConversations = "import", OneOf(&[TenantAdmin], None);
    ManageWebhooks = "manage_webhooks", OneOf(&[TenantAdmin], None);
    ManageErasures = "manage_erasures", OneOf(&[TenantAdmin], None);
}

conversation_permissions! {
    Read = "read", Verb::Read;
    Send = "send", Verb::TakePart(Some(Scope::Send));
    Cancel = "cancel", Verb::TakePart(Some(Scope::Cancel));
    Dispatch = "dispatch", Verb::TakePart(None);
    RevokeDecisions = "revoke_decisions", Verb::TakePart(None);
    Answer = "answer", Verb::Answer;
    Update = "update", Verb::Own;
    Fork = "fork", Verb::Own;
    Delete = "delete", Verb::Own;
    Export = "export", Verb::Own;
}

/// Whether a caller may make a request that is not about one conversation.
pub(crate) fn is_met(rule: Rule, credential: &Credential) -> bool {
    match (rule, &credential.grant) {
        (Rule::Public | Rule::AnyCredential, _) => true,
        (Rule::OneOf(_, scope), Some(grant)) => {
            scope.is_some_and(|scope| grant.scopes.contains(&scope))
        }
        // Whoever belongs to no tenant has nothing to do with the things of one.
        (Rule::OneOf(roles, _), None)
            if credential.identity.tenant.is_none() && !roles.contains(&Operator) =>
        {
            false
        }
        (Rule::OneOf(roles, _), None) => {
            roles.iter().any(|role| credential.identity.acting().roles.contains(role))
        }
        (Rule::Conversation(verb), _) => {
            let access = caller_access(credential, verb, "");
            let answers = access.answer.map(|it| [it.client, it.human, it.approval]);
            let reaches =
                [access.read, access.act].into_iter().chain(answers.into_iter().flatten());
            reaches.into_iter().any(|reach| reach != Reach::None) || access.create.is_some()
        }
    }
}

/// What a caller may do to conversations, as far as roles and tokens say.
pub(crate) fn caller_access(credential: &Credential, verb: Verb, needs: &str) -> CallerAccess {
    let access = CallerAccess {
        identity: credential.identity.clone(),
        mfa_at: credential.mfa_at,
        read: Reach::None,
        act: Reach::None,
        needs: needs.to_owned(),
        create: None,
        answer: None,
        born: None,
    };
    match &credential.grant {
        Some(grant) => by_token(access, grant, verb),
        None => by_roles(access, verb),
    }
}

fn by_roles(access: CallerAccess, verb: Verb) -> CallerAccess {
    let roles = &access.identity.acting().roles;
    let read = read_reach(roles);
    let part = part_reach(roles);
    let may_create = roles.contains(&User) || roles.contains(&Backend);
    let approval = if roles.contains(&Approver) { Reach::Tenant } else { Reach::None };
    let (act, answer) = match verb {
        Verb::Read => (read, None),
        Verb::TakePart(_) => (part, None),
        Verb::Own if part == Reach::Shared => (Reach::Own, None),
        Verb::Own => (part, None),
        Verb::Answer => {
            (Reach::None, Some(AnswerAccess { client: part, human: part, approval, only: None }))
        }
    };
    let create = (verb == Verb::TakePart(Some(Scope::Send)) && may_create)
        .then_some(CreateAccess::OfAnyAgent);
    CallerAccess { read, act, answer, create, ..access }
}

fn read_reach(roles: &BTreeSet<Role>) -> Reach {
    if roles.contains(&Backend) || roles.contains(&Auditor) {
        Reach::Tenant
    } else if roles.contains(&User) {
        Reach::Shared
    } else {
        Reach::None
    }
}

fn part_reach(roles: &BTreeSet<Role>) -> Reach {
    if roles.contains(&Backend) {
        Reach::Tenant
    } else if roles.contains(&User) {
        Reach::Shared
    } else {
        Reach::None
    }
}

/// A token was minted by somebody who may do what it says, for its conversations alone. One that was
/// minted before its conversation existed is for that which its subject then creates: another one with
/// the same id may be somebody else's.
fn by_token(access: CallerAccess, grant: &TokenGrant, verb: Verb) -> CallerAccess {
    let permitted = match &grant.target {
        TokenTarget::Conversation { born: None, .. } => Reach::Shared,
        TokenTarget::Conversation { .. } | TokenTarget::Prefix(_) | TokenTarget::Calls { .. } => {
            Reach::Tenant
        }
    };
    let reach = |scope: Scope| if grant.scopes.contains(&scope) { permitted } else { Reach::None };
    let only = match &grant.target {
        TokenTarget::Calls { calls, .. } => Some(calls.clone()),
        TokenTarget::Conversation { .. } | TokenTarget::Prefix(_) => None,
    };
    let (act, answer) = match verb {
        Verb::Read => (reach(Scope::Read), None),
        Verb::TakePart(scope) => (scope.map_or(Reach::None, reach), None),
        Verb::Own => (Reach::None, None),
        Verb::Answer => {
            let [client, human, approval] = Scope::ANSWERS.map(reach);
            (Reach::None, Some(AnswerAccess { client, human, approval, only }))
        }
    };
    let creates = verb == Verb::TakePart(Some(Scope::Send)) && act != Reach::None;
    let create = (creates && grant.scopes.contains(&Scope::Create)).then(|| create_access(grant));
    let born = match &grant.target {
        TokenTarget::Conversation { born, .. } => *born,
        TokenTarget::Calls { born, .. } => Some(*born),
        TokenTarget::Prefix(_) => None,
    };
    CallerAccess { read: reach(Scope::Read), act, answer, create, born, ..access }
}

fn create_access(grant: &TokenGrant) -> CreateAccess {
    match &grant.agent {
        Some(agent) => CreateAccess::Of(agent.clone()),
        None => CreateAccess::OfAnyAgent,
    }
}

#[cfg(test)]
mod tests;
