//! Requests that name a tool of an MCP server, before the actor knows what that server lists.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use abide_conversation::command::Answer;
use ractor::ActorRef;

use super::{ConversationMsg, Loaded};
use crate::agent::Definition;
use crate::mcp;
use crate::request::{Delivery, Request};
use crate::tools::Toolbox;

impl Loaded {
    /// Hands the delivery back, unless a listing is needed for it: then it comes again when the
    /// servers have answered or their time is over, and the actor waits for none of them.
    pub(super) async fn when_listed(
        &self,
        myself: &ActorRef<ConversationMsg>,
        delivery: Delivery,
    ) -> Option<Delivery> {
        let definition = match delivery.request() {
            Some(request) => self.unlisted(request).await,
            None => None,
        };
        let Some(definition) = definition else { return Some(delivery) };
        let (runner, depth) = (self.deps.runner.clone(), self.depth.clone());
        let myself = myself.clone();
        tokio::spawn(async move {
            runner.mcp().listings(&definition).await;
            depth.fetch_add(1, Ordering::Relaxed);
            // An actor that has ended drops it, and so it goes back to its sender.
            let _ = myself.cast(ConversationMsg::Deliver(Box::new(delivery)));
        });
        None
    }

    /// The tools of a definition, as far as its MCP servers are known.
    pub(super) fn toolbox_of(&self, definition: Arc<Definition>) -> Toolbox {
        let listings = self.deps.runner.mcp().known(&definition).unwrap_or_default();
        Toolbox::new(definition, &listings, self.own.clone())
    }

    /// The definition whose servers have to be asked first, if any. A store that is away says so
    /// when the request is carried out.
    async fn unlisted(&self, request: &Request) -> Option<Arc<Definition>> {
        let agents = &self.deps.agents;
        let (definition, tool) = match request {
            Request::Dispatch(dispatch) => {
                (agents.newest(self.state.agent.as_ref()?).await.ok()??, &dispatch.tool)
            }
            Request::Resolve(resolve) => match &resolve.answer {
                Answer::Approval { approved: true, args, .. }
                    if args.is_some() || resolve.remember.is_some() =>
                {
                    let revision = &self.state.turn.as_ref()?.revision;
                    let tool = &self.state.call(&resolve.call)?.tool;
                    (agents.revision(revision).await.ok()??, tool)
                }
                Answer::Approval { .. } | Answer::Result(_) | Answer::Error(_) => return None,
            },
            Request::Create(_)
            | Request::Send(_)
            | Request::Cancel
            | Request::Wake
            | Request::Delete
            | Request::Spawn(_)
            | Request::ChildEnded(_)
            | Request::Abandon(_)
            | Request::RevokeDecision(_) => return None,
        };
        let asks =
            mcp::may_have(&definition, tool) && self.deps.runner.mcp().known(&definition).is_none();
        asks.then_some(definition)
    }
}
