//! Calls one hook, within its timeout, whatever the hook does.

use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;

use super::notifier::Notifier;
use super::{Hook, HookContext, HookEvent, HookPayload, HookReply, Hooks};
use crate::clock::Clock;
use crate::definition::{HookSpec, HookTarget};
use crate::environment::Env;
use crate::signed_post::SignedClient;

/// Calls hooks. There is one for the whole program, since it pools the connections.
pub struct HookCaller {
    hooks: Hooks,
    client: SignedClient,
    clock: Arc<dyn Clock>,
    pub(super) notifier: Notifier,
}

/// A hook failed, was late, or gave an invalid reply; the log has the details.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("hook {0} failed")]
pub(crate) struct HookCallError(pub(crate) String);

impl HookCaller {
    pub(crate) fn new(
        hooks: Hooks,
        clock: Arc<dyn Clock>,
        env: Env,
    ) -> Result<Self, reqwest::Error> {
        let client = SignedClient::new("the hook", clock.clone(), env)?;
        Ok(Self { hooks, client, clock, notifier: Notifier::default() })
    }

    /// Returns when every notification that was queued until now has been delivered.
    pub async fn flush(&self) {
        self.notifier.flush().await;
    }

    /// Calls a hook and returns its reply; always `GoOn` from a hook that is only notified.
    pub(crate) async fn ask(
        &self,
        hook: &HookSpec,
        context: &HookContext,
        payload: HookPayload,
    ) -> Result<HookReply, HookCallError> {
        let event =
            HookEvent { hook: hook.name.clone(), on: hook.on, context: context.clone(), payload };
        let reply = match &hook.target {
            HookTarget::Http(_) => tokio::time::timeout(hook.timeout, self.post(hook, event)).await,
            HookTarget::Native(name) => match self.hooks.get(name) {
                Some(native) => {
                    tokio::time::timeout(hook.timeout, call_native(native.clone(), event)).await
                }
                None => Ok(Err("no such native hook".to_owned())),
            },
        };
        let why = match reply {
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(why)) => why,
            Err(_) => format!("no answer within {:?}", hook.timeout),
        };
        let conversation = &context.conversation_id;
        tracing::warn!(%conversation, hook = hook.name, on = %hook.on, content = why, "hook failed");
        Err(HookCallError(hook.name.clone()))
    }

    async fn post(&self, hook: &HookSpec, event: HookEvent) -> Result<HookReply, String> {
        let HookTarget::Http(endpoint) = &hook.target else {
            return Err("is not a server".to_owned());
        };
        let body = serde_json::to_string(&event).map_err(|error| error.to_string())?;
        // Every call gets its own key, by which a server recognises repeats made by the network.
        let key = self.clock.id("hook");
        let response = self.client.post(endpoint, &hook.name, &key, body, None).await?;
        let body = self.client.body(response).await?;
        if hook.on.is_notified() { Ok(HookReply::GoOn) } else { HookReply::parse(hook.on, &body) }
    }
}

/// Runs the hook in its own task: a panic ends there, and a hook that never yields blocks no other.
async fn call_native(native: Arc<dyn Hook>, event: HookEvent) -> Result<HookReply, String> {
    let on = event.on;
    let task = AbortOnDropHandle::new(tokio::spawn(async move { native.call(&event).await }));
    let reply = task.await.map_err(|error| format!("it crashed: {error}"))?;
    if on.is_notified() { Ok(HookReply::GoOn) } else { reply.check(on) }
}
