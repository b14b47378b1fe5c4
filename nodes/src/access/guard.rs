//! Verifies credentials, and remembers which were valid.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_conversation::Timestamp;
use abide_conversation::identity::{ABIDE_ISSUER, AuthMethod, Identity, Role, Subject, Tenant};
use abide_registry::store::{Store, StoredKey};
use axum::extract::MatchedPath;
use axum::http::request::Parts;
use lru::LruCache;
use tokio::sync::watch;
use tokio::time::Instant;

use super::api_key::key_id;
use super::credential::Credential;
use super::credential_error::CredentialError;
use super::document::{AuthDocument, IssuerRules, Quotas, SignIn, TenantSettings, TokenKeys};
use super::issuer_keys::IssuerKeys;
use super::session::{Presented, Session};
use super::stored_keys::{MAX_AGE, StoredKeys};
use super::{claims, conversation_token, jwt};
use crate::problem::{Kind, Problem};

/// How many credentials are remembered.
const MAX_REMEMBERED: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();
/// How long a signature that was verified is believed, so that a key that its issuer withdrew ends.
const REMEMBER_FOR: Duration = Duration::from_secs(60);

/// What the node knows about who may use it, and what it found out.
pub(crate) struct Guard {
    rules: RwLock<Arc<Rules>>,
    /// Counts the changes of what is valid.
    changes: watch::Sender<u64>,
    remembered: Mutex<LruCache<[u8; 32], Remembered>>,
    stored: StoredKeys,
    client: reqwest::Client,
    clock: Arc<dyn Clock>,
}

/// The document that is in force, and the keys of its issuers.
struct Rules {
    document: AuthDocument,
    issuers: BTreeMap<String, IssuerKeys>,
}

/// A credential that was valid.
struct Remembered {
    session: Arc<Session>,
    change: u64,
    until: Instant,
}

impl Guard {
    /// A guard with this document.
    pub(super) fn new(
        document: AuthDocument,
        client: reqwest::Client,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            stored: StoredKeys::new(store, clock.clone()),
            rules: RwLock::new(Arc::new(Rules::new(document, &client, &BTreeMap::new()))),
            changes: watch::Sender::new(0),
            remembered: Mutex::new(LruCache::new(MAX_REMEMBERED)),
            client,
            clock,
        }
    }

    /// Puts another document in force.
    pub(super) fn replace(&self, document: AuthDocument) {
        let rules = Arc::new(Rules::new(document, &self.client, &self.rules().issuers));
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = rules;
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Counts the changes of what is valid.
    pub(super) fn watch_changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(super) fn new_id(&self, prefix: &str) -> String {
        self.clock.id(prefix)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Reads the keys of the store, unless that was done a moment ago.
    pub(super) async fn read_keys(&self, max_age: Duration) {
        // A failure is logged, and told to those whose keys cannot be verified.
        if let Ok(true) = self.stored.read_if_older(max_age).await {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    /// Stores when keys were last used.
    pub(super) async fn mark_used_keys(&self) {
        self.stored.mark_used().await;
    }

    /// Works with the keys of conversation tokens; `None` if the file has none.
    pub(super) fn with_token_keys<T>(&self, work: impl FnOnce(&TokenKeys) -> T) -> Option<T> {
        self.rules().document.tokens.as_ref().map(work)
    }

    /// The issuers of the file.
    pub(super) fn issuers(&self) -> Vec<String> {
        self.rules().document.issuers.keys().cloned().collect()
    }

    /// How people sign in to the console.
    pub(super) fn sign_ins(&self) -> Vec<SignIn> {
        let rules = self.rules();
        rules.document.issuers.values().filter_map(|issuer| issuer.sign_in.clone()).collect()
    }

    fn rules(&self) -> Arc<Rules> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the file says of a tenant; `None` if it knows none of the name.
    pub(super) fn tenant_settings(&self, tenant: &Tenant) -> Option<TenantSettings> {
        self.rules().document.tenants.get(tenant).cloned()
    }

    /// The tenants that the file names.
    pub(super) fn tenants(&self) -> Vec<Tenant> {
        self.rules().document.tenants.keys().cloned().collect()
    }

    /// The quotas of a tenant.
    pub(super) fn quotas_of(&self, tenant: &Tenant) -> Quotas {
        self.rules()
            .document
            .tenants
            .get(tenant)
            .map(|settings| settings.quotas)
            .unwrap_or_default()
    }

    /// Whether there are tenants that the memory for bodies is shared among.
    pub(super) fn has_several_tenants(&self) -> bool {
        self.rules().document.tenants.len() > 1
    }

    /// Who makes a request.
    pub(super) async fn authenticate(&self, parts: &Parts) -> Result<Arc<Session>, Problem> {
        let verified = match Presented::of(&parts.headers, &parts.uri) {
            Ok(presented) => self.verify(presented).await,
            Err(refusal) => Err(refusal),
        };
        let label = match &verified {
            Ok(session) => session.credential().label(),
            Err(refusal) => refusal.label(),
        };
        metrics::counter!("abide_auth_total", "result" => label).increment(1);
        verified.map_err(|refusal| {
            // The template of the path: the path itself may hold what was refused.
            let route = parts.extensions.get::<MatchedPath>().map(MatchedPath::as_str);
            tracing::info!(reason = %refusal, route, "credential refused");
            problem(refusal)
        })
    }

    /// Who brings these credentials.
    pub(super) async fn verify(
        &self,
        presented: Presented,
    ) -> Result<Arc<Session>, CredentialError> {
        let digest = presented.digest();
        let change = *self.changes.borrow();
        let now = self.clock.now();
        if let Some(session) = self.recall(&digest, change, now) {
            return Ok(session);
        }
        let rules = self.rules();
        let mut credential = match key_id(&presented.bearer) {
            Some(id) => self.verify_key(&rules, id, &presented.bearer).await?,
            // Boxed, like the next: most credentials are remembered, or bare keys.
            None => Box::pin(rules.verify_token(&presented.bearer, now)).await?,
        };
        if let Some(person) = &presented.on_behalf_of {
            credential = Box::pin(rules.on_behalf_of(credential, person, now)).await?;
        }
        let is_key = presented.on_behalf_of.is_none() && credential.identity.key_id.is_some();
        let session = Arc::new(Session::new(presented, credential));
        if is_key {
            // It is verified as fast as it is remembered, and whether it was revoked is asked anew.
            return Ok(session);
        }
        let until = Instant::now() + REMEMBER_FOR;
        let remembered = Remembered { session: session.clone(), change, until };
        self.remembered().put(digest, remembered);
        Ok(session)
    }

    /// Whether the credential by which this identity was proved was revoked since: its key was deleted,
    /// or its issuer is trusted no longer. What is known of keys may be so old.
    pub(super) async fn is_revoked(
        &self,
        identity: &Identity,
        max_age: Duration,
    ) -> Result<bool, CredentialError> {
        let rules = self.rules();
        let is_key_revoked = match &identity.key_id {
            Some(id) if !rules.document.keys.contains_key(id) => {
                !self.stored.has(identity.tenant.as_ref(), id, max_age).await?
            }
            Some(_) | None => false,
        };
        let person = identity.acting();
        let is_issuer_gone = person.iss != ABIDE_ISSUER && !rules.issuers.contains_key(&person.iss);
        let are_tokens_gone = identity.auth == AuthMethod::Token && rules.document.tokens.is_none();
        Ok(is_key_revoked || is_issuer_gone || are_tokens_gone)
    }

    /// Whether these rules let somebody make requests whom those of another node have let.
    pub(super) async fn admits(&self, identity: &Identity) -> Result<bool, CredentialError> {
        let rules = self.rules();
        let is_known = |tenant: &Tenant| rules.document.tenants.contains_key(tenant);
        let key = identity.key_id.as_ref().and_then(|id| rules.document.keys.get(id));
        let has_roles = key.is_none_or(|key| {
            key.tenant == identity.tenant && identity.subject.roles.is_subset(&key.roles)
        });
        let is_own = identity.tenant.as_ref().is_none_or(is_known) && has_roles;
        Ok(is_own && !self.is_revoked(identity, MAX_AGE).await?)
    }

    /// The credential of a key of the file, or else of the store.
    async fn verify_key(
        &self,
        rules: &Rules,
        id: &str,
        text: &str,
    ) -> Result<Credential, CredentialError> {
        match rules.document.keys.get(id) {
            Some(key) if key.digest.matches(text) => {
                let credential =
                    by_key(id, key.tenant.clone(), key.roles.clone(), key.name.clone(), None);
                Ok(Credential { queues: Arc::new(key.queues.clone()), ..credential })
            }
            Some(_) => Err(CredentialError::WrongSecret),
            None => {
                let StoredKey { tenant, roles, name, queues, expires_at, .. } =
                    self.stored.find(id, text).await?;
                if !rules.document.tenants.contains_key(&tenant) {
                    return Err(CredentialError::Tenant);
                }
                let credential = by_key(id, Some(tenant), roles, Some(name), Some(expires_at));
                Ok(Credential { queues: Arc::new(queues), ..credential })
            }
        }
    }

    fn recall(&self, digest: &[u8; 32], change: u64, now: Timestamp) -> Option<Arc<Session>> {
        let mut remembered = self.remembered();
        let known = remembered.get(digest)?;
        let is_valid = known.session.credential().valid_until.is_none_or(|until| now < until);
        let holds = known.change == change && Instant::now() < known.until;
        (is_valid && holds).then(|| known.session.clone())
    }

    fn remembered(&self) -> MutexGuard<'_, LruCache<[u8; 32], Remembered>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rules {
    /// The rules of a document. What is known of the issuers that stay is kept: they may be away.
    fn new(
        document: AuthDocument,
        client: &reqwest::Client,
        known: &BTreeMap<String, IssuerKeys>,
    ) -> Self {
        let keys = |(name, rules): (&String, &IssuerRules)| {
            let known = known.get(name).filter(|keys| keys.are_from(&rules.jwks)).cloned();
            let new = || IssuerKeys::new(name, &rules.jwks, client.clone());
            (name.clone(), known.unwrap_or_else(new))
        };
        let issuers = document.issuers.iter().map(keys).collect();
        Self { document, issuers }
    }

    async fn verify_token(
        &self,
        bearer: &str,
        now: Timestamp,
    ) -> Result<Credential, CredentialError> {
        let unverified = jwt::read(bearer)?;
        if unverified.issuer == ABIDE_ISSUER {
            let keys = self.document.tokens.as_ref();
            let credential = conversation_token::verify(keys, &unverified.header, bearer, now)?;
            let tenant = credential.identity.tenant.as_ref();
            let is_known = tenant.is_some_and(|it| self.document.tenants.contains_key(it));
            return if is_known { Ok(credential) } else { Err(CredentialError::Tenant) };
        }
        self.verify_jwt(bearer, &unverified, now).await
    }

    async fn verify_jwt(
        &self,
        token: &str,
        jwt::Unverified { header, issuer }: &jwt::Unverified,
        now: Timestamp,
    ) -> Result<Credential, CredentialError> {
        let rules = self.document.issuers.get(issuer).ok_or(CredentialError::UnknownIssuer)?;
        let keys = self.issuers.get(issuer).ok_or(CredentialError::UnknownIssuer)?;
        let named = |algorithm: &&_| jsonwebtoken::Algorithm::from(**algorithm) == header.alg;
        let algorithm = rules.algorithms.iter().find(named).ok_or(CredentialError::Algorithm)?;
        let key = keys.find(header.kid.as_deref()).await?;
        if key.algorithm != *algorithm {
            return Err(CredentialError::Algorithm);
        }
        let claims = jwt::verify(token, &key.key, *algorithm)?;
        claims::identify(rules, &self.document.tenants, &claims, now)
    }

    /// The credential of a gateway that acts for a person, who proves to be themselves by a JWT.
    async fn on_behalf_of(
        &self,
        gateway: Credential,
        person: &str,
        now: Timestamp,
    ) -> Result<Credential, CredentialError> {
        let may = gateway.identity.subject.roles.contains(&Role::Backend);
        if !may || gateway.grant.is_some() {
            return Err(CredentialError::NotGateway);
        }
        let unverified = jwt::read(person)?;
        let person = self.verify_jwt(person, &unverified, now).await?;
        if person.identity.tenant != gateway.identity.tenant {
            return Err(CredentialError::Tenant);
        }
        let on_behalf_of = Some(Box::new(person.identity.subject));
        Ok(Credential {
            identity: Identity { on_behalf_of, ..gateway.identity },
            grant: None,
            mfa_at: person.mfa_at,
            expires_at: earlier(gateway.expires_at, person.expires_at),
            queues: gateway.queues,
            valid_until: earlier(gateway.valid_until, person.valid_until),
        })
    }
}

fn by_key(
    id: &str,
    tenant: Option<Tenant>,
    roles: BTreeSet<Role>,
    name: Option<String>,
    expires_at: Option<Timestamp>,
) -> Credential {
    let subject = Subject {
        iss: ABIDE_ISSUER.to_owned(),
        sub: format!("key:{id}"),
        name,
        roles,
        groups: Vec::new(),
    };
    let identity = Identity {
        tenant,
        subject,
        auth: AuthMethod::Key,
        key_id: Some(id.to_owned()),
        jti: None,
        on_behalf_of: None,
        minted_by: None,
    };
    Credential {
        identity,
        grant: None,
        mfa_at: None,
        expires_at,
        queues: Arc::default(),
        valid_until: expires_at,
    }
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

/// What a client learns: whether to bring another credential, or to try again.
fn problem(refusal: CredentialError) -> Problem {
    match refusal {
        CredentialError::Unavailable => {
            Problem::new(Kind::Unavailable, "the credential cannot be verified at the moment")
        }
        CredentialError::Missing
        | CredentialError::Malformed
        | CredentialError::InUrl
        | CredentialError::UnknownKey
        | CredentialError::WrongSecret
        | CredentialError::Expired
        | CredentialError::NotYet
        | CredentialError::UnknownIssuer
        | CredentialError::UnknownKid
        | CredentialError::Algorithm
        | CredentialError::Signature
        | CredentialError::Audience
        | CredentialError::Claims
        | CredentialError::Tenant
        | CredentialError::NotGateway => Problem::new(
            Kind::Unauthorized,
            "a valid credential is required: Authorization: Bearer",
        ),
    }
}
