//! Whether the node authenticates its callers, and with which file.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_actors::credentials::{Credentials, CredentialsError};
use abide_actors::exec::HiddenPaths;
use abide_actors::outbound::{OutboundRules, TenantRules};
use abide_conversation::Timestamp;
use abide_conversation::identity::{Identity, Participants, Tenant, TokenMinter};
use abide_registry::store::Store;
use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::Allowed;
use super::auth_file::{AuthFile, CheckedAuthFile, Contents};
use super::conversation_token::{self, TokenRequest};
use super::credential::TokenGrant;
use super::credential_error::CredentialError;
use super::credential_watch::CredentialWatch;
use super::document::{AgentsOverHttp, Mistakes, SignIn, TenantSettings};
use super::guard::Guard;
use super::permission::Permission;
use super::quotas::QuotaGate;
use super::stored_keys::{MARK_INTERVAL, POLL_INTERVAL};
use crate::problem::{Kind, Problem};
use crate::start_error::StartError;

/// How often the file is looked at. A ConfigMap or a Secret that Kubernetes mounts changes by a link
/// that no watch of the file would see.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a request to an issuer may take to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The node's door; cheap to clone.
#[derive(Clone)]
pub struct AccessControl {
    /// `None` if the node authenticates nobody.
    guarded: Option<Arc<Guarded>>,
    /// What the node's flag says.
    agents_over_http: Option<AgentsOverHttp>,
}

struct Guarded {
    guard: Guard,
    quotas: QuotaGate,
    reload: Notify,
    /// What is wrong with the newest file, which is therefore not in force.
    mistakes: Mutex<Option<Mistakes>>,
    /// Identifies the file that is in force.
    fingerprint: Mutex<String>,
}

impl AccessControl {
    /// Authenticates nobody: everybody may do everything.
    pub(crate) fn open() -> Self {
        Self { guarded: None, agents_over_http: None }
    }

    /// The same with the node's flag.
    pub(crate) fn with_agents_over_http(self, agents_over_http: Option<AgentsOverHttp>) -> Self {
        Self { agents_over_http, ..self }
    }

    /// Which definitions a tenant may write over HTTP. Who is nobody in particular writes all, because
    /// the node is reached from its machine alone then.
    pub(crate) fn agents_over_http(&self, tenant: &Tenant) -> AgentsOverHttp {
        let settings = self.guard().and_then(|guard| guard.tenant_settings(tenant));
        let default =
            if self.guarded.is_some() { AgentsOverHttp::Data } else { AgentsOverHttp::All };
        let own = settings.and_then(|settings| settings.agents_over_http);
        own.or(self.agents_over_http).unwrap_or(default)
    }

    /// What the definitions of tenants may reach and name; `None` if nobody is authenticated.
    pub(crate) fn tenant_rules(&self) -> Option<Arc<dyn TenantRules>> {
        self.guarded.is_some().then(|| Arc::new(self.clone()) as Arc<dyn TenantRules>)
    }

    /// Authenticates every caller by this file. The handle keeps it up to date.
    pub(crate) fn guarded(
        checked: CheckedAuthFile,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        hidden: HiddenPaths,
    ) -> Result<(Self, AbortOnDropHandle<()>), StartError> {
        let CheckedAuthFile { file, document, contents } = checked;
        hidden.add(contents.paths());
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .no_proxy()
            .build()
            .map_err(StartError::broken)?;
        let guarded = Guarded {
            quotas: QuotaGate::new(store.clone(), clock.clone()),
            guard: Guard::new(document, client, store, clock),
            reload: Notify::new(),
            mistakes: Mutex::default(),
            fingerprint: Mutex::new(contents.fingerprint()),
        };
        let control = Self { guarded: Some(Arc::new(guarded)), agents_over_http: None };
        metrics::gauge!("abide_auth_file_mistakes").set(0.0);
        let (file, keys) =
            (control.clone().follow(file, contents, hidden), control.clone().follow_keys());
        let following = async move {
            tokio::join!(file, keys);
        };
        Ok((control, AbortOnDropHandle::new(tokio::spawn(following))))
    }

    pub(super) fn guard(&self) -> Option<&Guard> {
        self.guarded.as_deref().map(|guarded| &guarded.guard)
    }

    /// The issuers whose tokens are accepted; `None` if nobody is authenticated.
    pub(crate) fn issuers(&self) -> Option<Vec<String>> {
        self.guard().map(Guard::issuers)
    }

    /// How people sign in to the console, besides with a key; `None` if nobody is authenticated.
    pub(crate) fn sign_ins(&self) -> Option<Vec<SignIn>> {
        self.guard().map(Guard::sign_ins)
    }

    /// What knows how tenants use the node, and who they are; `None` if there are no quotas.
    pub(super) fn quotas(&self) -> Option<(&QuotaGate, &Guard)> {
        self.guarded.as_deref().map(|guarded| (&guarded.quotas, &guarded.guard))
    }

    /// Reads the file again now.
    pub(crate) fn reload(&self) {
        if let Some(guarded) = &self.guarded {
            guarded.reload.notify_one();
        }
    }

    /// Takes note that this node has changed the keys in the store.
    pub(crate) async fn keys_changed(&self) {
        if let Some(guard) = self.guard() {
            guard.read_keys(Duration::ZERO).await;
        }
    }

    /// How long a token lives whose request does not say.
    pub(crate) fn default_ttl(&self) -> Result<Duration, Problem> {
        let ttl = self.guard().and_then(|guard| guard.with_token_keys(|keys| keys.ttl));
        ttl.ok_or_else(no_token_keys)
    }

    /// Mints a conversation token for a subject with a name.
    pub(crate) fn mint(
        &self,
        (tenant, minter): (Tenant, Option<&Identity>),
        (sub, name): (String, Option<String>),
        grant: TokenGrant,
        expires_at: Timestamp,
    ) -> Result<(String, Timestamp), Problem> {
        let guard = self.guard().ok_or_else(no_token_keys)?;
        let expires_at = Timestamp::from_second(expires_at.as_second()).unwrap_or(expires_at);
        let jti = guard.new_id("tok");
        // What is known of somebody else is their issuer's to say.
        let own = minter.map(Identity::acting).filter(|own| own.sub == sub);
        let minted_by = minter.filter(|_| own.is_none()).map(|minter| TokenMinter {
            iss: minter.subject.iss.clone(),
            sub: minter.subject.sub.clone(),
            key_id: minter.key_id.clone(),
        });
        let (roles, groups) =
            own.map(|own| (own.roles.clone(), own.groups.clone())).unwrap_or_default();
        let request =
            TokenRequest { tenant, sub, name, roles, groups, minted_by, grant, expires_at, jti };
        let minted = guard.with_token_keys(|keys| conversation_token::mint(keys, request));
        let token = minted.ok_or_else(no_token_keys)?;
        let token = token.map_err(|reason| Problem::new(Kind::Internal, reason))?;
        Ok((token, expires_at))
    }

    /// Notices when a caller may no longer read a conversation; `None` if everybody may.
    pub(crate) fn watch<P: Permission>(
        &self,
        allowed: &Allowed<P>,
        participants: Participants,
        created_at: Option<Timestamp>,
    ) -> Option<CredentialWatch> {
        let session = allowed.session().cloned();
        CredentialWatch::new(self.clone(), session, Some(participants), created_at)
    }

    /// Notices when the credential of a caller ends, or permits something else; `None` if everybody may
    /// do everything.
    pub(crate) fn watch_list<P: Permission>(
        &self,
        allowed: &Allowed<P>,
    ) -> Option<CredentialWatch> {
        CredentialWatch::new(self.clone(), allowed.session().cloned(), None, None)
    }

    /// What operators should know: that the newest file is not in force, and where it is wrong.
    pub(crate) fn notes(&self) -> Vec<String> {
        let Some(guarded) = &self.guarded else { return Vec::new() };
        let mistakes = guarded.mistakes.lock().unwrap_or_else(PoisonError::into_inner);
        let note = |Mistakes(mistakes): &Mistakes| {
            // Not the messages: everybody may read this, and they may repeat what the file holds.
            let paths: Vec<&str> = mistakes.iter().map(|mistake| mistake.path.as_str()).collect();
            format!(
                "auth: the file has mistakes, and the one before it holds: {}",
                paths.join(", ")
            )
        };
        mistakes.iter().map(note).collect()
    }

    /// Learns of changes of the keys in the store, and stores when they were last used.
    async fn follow_keys(self) {
        let Some(guard) = self.guard() else { return };
        let mut marked_at = Instant::now();
        loop {
            guard.read_keys(POLL_INTERVAL).await;
            tokio::time::sleep(POLL_INTERVAL).await;
            if marked_at.elapsed() >= MARK_INTERVAL {
                guard.mark_used_keys().await;
                marked_at = Instant::now();
            }
        }
    }

    async fn follow(self, file: AuthFile, mut contents: Contents, hidden: HiddenPaths) {
        let Some(guarded) = self.guarded else { return };
        let file = Arc::new(file);
        loop {
            let is_asked = tokio::select! {
                () = guarded.reload.notified() => true,
                () = tokio::time::sleep(LOOK_INTERVAL) => false,
            };
            let (looked, before) = (file.clone(), contents.clone());
            let look = move || {
                let is_due = is_asked || !before.are_current();
                is_due.then(|| looked.load())
            };
            let Ok(Some(loaded)) = tokio::task::spawn_blocking(look).await else { continue };
            let (Ok((_, read)) | Err((_, read))) = &loaded;
            hidden.add(read.paths());
            let found = match loaded {
                Ok((document, read)) => {
                    contents = read;
                    guarded.guard.replace(document);
                    *guarded.fingerprint.lock().unwrap_or_else(PoisonError::into_inner) =
                        contents.fingerprint();
                    tracing::info!("auth file in force");
                    None
                }
                Err((mistakes, read)) => {
                    contents = read;
                    let text = mistakes.to_string();
                    tracing::error!(
                        mistakes = text,
                        "auth file has mistakes: the one before holds"
                    );
                    Some(mistakes)
                }
            };
            let count = found.as_ref().map_or(0, |mistakes| mistakes.0.len());
            metrics::gauge!("abide_auth_file_mistakes").set(count as f64);
            *guarded.mistakes.lock().unwrap_or_else(PoisonError::into_inner) = found;
        }
    }
}

#[async_trait]
impl Credentials for AccessControl {
    async fn is_revoked(&self, identity: &Identity) -> Result<bool, CredentialsError> {
        let Some(guard) = self.guard() else { return Ok(false) };
        guard.is_revoked(identity, Duration::ZERO).await.map_err(unavailable)
    }

    async fn admits(&self, identity: &Identity) -> Result<bool, CredentialsError> {
        let Some(guard) = self.guard() else { return Ok(true) };
        guard.admits(identity).await.map_err(unavailable)
    }

    fn fingerprint(&self) -> Option<String> {
        let guarded = self.guarded.as_ref()?;
        Some(guarded.fingerprint.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl TenantRules for AccessControl {
    /// A tenant that the file does not name reaches nothing.
    fn outbound(&self, tenant: &Tenant) -> OutboundRules {
        match self.guard().and_then(|guard| guard.tenant_settings(tenant)) {
            Some(TenantSettings { allowed_hosts, variables, .. }) => {
                OutboundRules { hosts: allowed_hosts, variables }
            }
            None => OutboundRules { hosts: Some(Vec::new()), variables: Vec::new() },
        }
    }
}

fn unavailable(_: CredentialError) -> CredentialsError {
    CredentialsError("the store of keys is away".to_owned())
}

fn no_token_keys() -> Problem {
    Problem::new(
        Kind::InvalidRequest,
        "the node has no keys for tokens: its --auth file needs tokens",
    )
}
