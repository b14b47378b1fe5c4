//! Calls one hook, within its time, whatever it does.

use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;

use super::notifier::Notifier;
use super::{Hook, HookContext, HookEvent, HookPayload, Hooks, Reply};
use crate::clock::Clock;
use crate::definition::{HookSpec, HookTarget};
use crate::environment::Env;
use crate::signed_post::SignedClient;

/// Calls hooks; one for the whole program, since it keeps the connections.
pub struct HookCaller {
    hooks: Hooks,
    poster: SignedClient,
    clock: Arc<dyn Clock>,
    pub(crate) teller: Notifier,
}

/// A hook failed, was late, or answered what cannot be; the log says how.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("hook {0} failed")]
pub(crate) struct HookCallError(pub(crate) String);

impl HookCaller {
    pub(crate) fn new(
        hooks: Hooks,
        clock: Arc<dyn Clock>,
        variables: Env,
    ) -> Result<Self, reqwest::Error> {
        let poster = SignedClient::new("the hook", clock.clone(), variables)?;
        Ok(Self { hooks, poster, clock, teller: Notifier::default() })
    }

    /// Returns when every hook that was to be told by now has been.
    pub async fn told(&self) {
        self.teller.told().await;
    }

    /// What the hook answers; of one that is only told nothing is read.
    pub(crate) async fn ask(
        &self,
        hook: &HookSpec,
        occasion: &HookContext,
        what: HookPayload,
    ) -> Result<Reply, HookCallError> {
        let (name, on, occasion) = (hook.name.clone(), hook.on, occasion.clone());
        let event = HookEvent { hook: name, on, occasion, what };
        let conversation = event.occasion.conversation_id.clone();
        let asked = match &hook.target {
            HookTarget::Http(_) => tokio::time::timeout(hook.timeout, self.post(hook, event)).await,
            HookTarget::Native(name) => match self.hooks.get(name) {
                Some(native) => {
                    tokio::time::timeout(hook.timeout, run(native.clone(), event)).await
                }
                None => Ok(Err("no such native hook".to_owned())),
            },
        };
        let why = match asked {
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(why)) => why,
            Err(_) => format!("no answer within {:?}", hook.timeout),
        };
        tracing::warn!(%conversation, hook = hook.name, %on, said = why, "a hook failed");
        Err(HookCallError(hook.name.clone()))
    }

    async fn post(&self, hook: &HookSpec, event: HookEvent) -> Result<Reply, String> {
        let HookTarget::Http(to) = &hook.target else { return Err("is no server".to_owned()) };
        let body = serde_json::to_string(&event).map_err(|error| error.to_string())?;
        // Every call is another one; a server tells repeats of the network by it.
        let key = self.clock.id("hook");
        let response = self.poster.post(to, &hook.name, &key, body, None).await?;
        let body = self.poster.whole(response).await?;
        match hook.on.is_told() {
            true => Ok(Reply::GoOn),
            false => Reply::read(hook.on, &body),
        }
    }
}

/// In a task of its own, so that a panic ends there, and a hook that never yields blocks no other.
async fn run(native: Arc<dyn Hook>, event: HookEvent) -> Result<Reply, String> {
    let on = event.on;
    let task = AbortOnDropHandle::new(tokio::spawn(async move { native.call(&event).await }));
    let reply = task.await.map_err(|error| format!("it crashed: {error}"))?;
    match on.is_told() {
        true => Ok(Reply::GoOn),
        false => reply.checked(on),
    }
}
