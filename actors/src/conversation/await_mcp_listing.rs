//! Requests that name a tool of an MCP server, before the actor knows what that server lists.

use std::sync::Arc;

use abide_conversation::command::ResolutionAnswer;
use ractor::ActorRef;
use tokio_util::task::AbortOnDropHandle;

use super::ask_hooks::ASKING;
use super::{ConversationMsg, LiveConversation};
use crate::definition::Definition;
use crate::request::{Delivery, Request};
use crate::tools::Toolbox;
use crate::tools::mcp;

impl LiveConversation {
    /// Hands the delivery back, unless a listing is needed for it: then it comes again when the
    /// servers have answered or their time is over, and the actor waits for none of them. When too
    /// much waits already, it is carried out with what is known.
    pub(super) async fn when_listed(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        delivery: Delivery,
    ) -> Option<Delivery> {
        let definition = match delivery.request() {
            Some(request) => self.unlisted(request).await,
            None => None,
        };
        let Some(definition) = definition.filter(|_| self.asking.len() < ASKING) else {
            return Some(delivery);
        };
        let (runner, myself) = (self.deps.runner.clone(), myself.clone());
        self.asked += 1;
        let number = self.asked;
        let task = tokio::spawn(async move {
            runner.mcp().listings(&definition).await;
            // An actor that has ended drops it, and so it goes back to its sender.
            let _ = myself.cast(ConversationMsg::ToolsListed(number, Box::new(delivery)));
        });
        self.asking.insert(number, AbortOnDropHandle::new(task));
        None
    }

    /// The tools of a definition, as its MCP servers last told of them.
    pub(super) fn toolbox_of(&self, definition: Arc<Definition>) -> Toolbox {
        let listings = self.deps.runner.mcp().last_listings(&definition);
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
                ResolutionAnswer::Approval { approved: true, args, .. }
                    if args.is_some() || resolve.remember.is_some() =>
                {
                    let revision = &self.state.turn.as_ref()?.revision;
                    let tool = &self.state.call(&resolve.call)?.tool;
                    (agents.revision(revision).await.ok()??, tool)
                }
                ResolutionAnswer::Approval { .. }
                | ResolutionAnswer::Result(_)
                | ResolutionAnswer::Error(_) => return None,
            },
            Request::Create(_)
            | Request::Fork(_)
            | Request::Send(_)
            | Request::Cancel
            | Request::Wake
            | Request::Delete
            | Request::Spawn(_)
            | Request::ChildEnded(_)
            | Request::Abandon(_)
            | Request::FailCall(_)
            | Request::RevokeDecision(_) => return None,
        };
        let asks = mcp::may_list(&definition, tool)
            && self.deps.runner.mcp().cached_listings(&definition).is_none();
        asks.then_some(definition)
    }
}
