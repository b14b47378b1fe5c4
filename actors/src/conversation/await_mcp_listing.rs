//! Requests that name an MCP tool wait until its server has listed its tools.

use std::sync::Arc;

use abide_conversation::command::ResolutionAnswer;
use ractor::ActorRef;

use super::{ConversationMsg, LiveConversation};
use crate::definition::Definition;
use crate::request::{Delivery, Request, ResolveRequest, SendRequest};
use crate::tools::Toolbox;
use crate::tools::mcp;

impl LiveConversation {
    /// Returns the delivery, unless it needs a listing that is not known. Then the delivery returns
    /// as a message when the servers have answered or their time is up, and the actor waits for
    /// none of them. When too many requests are deferred, it is carried out with what is known.
    pub(super) async fn defer_until_listed(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        delivery: Box<Delivery>,
    ) -> Option<Box<Delivery>> {
        let definition = match delivery.request() {
            Some(request) => self.unlisted_definition(request).await,
            None => None,
        };
        let Some(definition) = definition.filter(|_| self.waiters.can_defer()) else {
            return Some(delivery);
        };
        let (mcp, tenant) = (self.services.mcp.clone(), self.id.tenant());
        let myself = myself.clone();
        self.waiters.defer(|number| async move {
            mcp.listings(&tenant, &definition).await;
            // An actor that has ended drops the delivery, which thereby returns to its sender.
            let _ = myself.cast(ConversationMsg::ToolsListed(number, delivery));
        });
        None
    }

    /// The tools of a definition, those of its MCP servers as they last listed them.
    pub(super) fn toolbox_of(&self, definition: Arc<Definition>) -> Toolbox {
        let listings = self.services.mcp.last_listings(&self.id.tenant(), &definition);
        Toolbox::with_declared(definition, &listings, self.declared_tools.clone())
    }

    /// The definition whose servers must be asked before the request is carried out, if any. A
    /// store that is unavailable is reported when the request is carried out.
    async fn unlisted_definition(&self, request: &Request) -> Option<Arc<Definition>> {
        let agents = &self.services.agents;
        let (definition, tool) = match request {
            Request::Dispatch(dispatch) => {
                let agent = self.state.agent.as_ref()?;
                (agents.choose(agent, &self.id).await.ok()??.definition, &dispatch.tool)
            }
            Request::Resolve(resolve) => {
                return self.unlisted_for(std::slice::from_ref(resolve)).await;
            }
            Request::ResolveAll(answers) => return self.unlisted_for(answers).await,
            Request::Send(send) => return self.unlisted_for_own_tools(send).await,
            Request::Schedule(later) => return self.unlisted_for_own_tools(&later.message).await,
            Request::Create(_)
            | Request::Fork(_)
            | Request::Cancel
            | Request::Wake
            | Request::Delete
            | Request::DeleteFor(_)
            | Request::DeleteIf(_)
            | Request::Spawn(_)
            | Request::ChildEnded(_)
            | Request::Abandon(_)
            | Request::FailCall(_)
            | Request::Update(_)
            | Request::ChangeState(_)
            | Request::Operate(_)
            | Request::External(_)
            | Request::Unschedule(_)
            | Request::Extend(_)
            | Request::Withdraw(_)
            | Request::CancelTurn(_)
            | Request::Rewind(_)
            | Request::Regenerate(_)
            | Request::EraseSubject(_)
            | Request::RevokeDecision(_) => return None,
        };
        self.is_unlisted(&definition, tool).then_some(definition)
    }

    /// The next definition, if a tool that the message brings may have the name of one of its tools
    /// that is not listed.
    async fn unlisted_for_own_tools(&self, send: &SendRequest) -> Option<Arc<Definition>> {
        let agent = self.state.agent.as_ref().or(send.agent.as_ref());
        let agent = agent.filter(|_| !send.tools.is_empty())?;
        let definition = self.services.agents.choose(agent, &self.id).await.ok()??.definition;
        let mut names = send.tools.iter().filter_map(|tool| tool["name"].as_str());
        names.any(|name| self.is_unlisted(&definition, name)).then_some(definition)
    }

    /// The definition of the open turn, if one of the answers needs a listing of it.
    async fn unlisted_for(&self, answers: &[ResolveRequest]) -> Option<Arc<Definition>> {
        let needs_tool = |request: &&ResolveRequest| match &request.answer {
            ResolutionAnswer::Approval { approved: true, args, .. } => {
                args.is_some() || request.remember.is_some()
            }
            ResolutionAnswer::Approval { .. }
            | ResolutionAnswer::Result(_)
            | ResolutionAnswer::Error(_)
            | ResolutionAnswer::Retry => false,
        };
        let calls = answers.iter().filter(needs_tool);
        let calls: Vec<_> = calls.filter_map(|answer| self.state.call(&answer.call)).collect();
        let revision = &self.state.turn.as_ref().filter(|_| !calls.is_empty())?.revision;
        let definition = self.services.agents.revision(&self.id.sibling(revision)).await.ok()??;
        let is_unlisted = calls.iter().any(|call| self.is_unlisted(&definition, &call.tool));
        is_unlisted.then_some(definition)
    }

    /// Whether the tool may be one of an MCP server whose listing is not known.
    fn is_unlisted(&self, definition: &Arc<Definition>, tool: &str) -> bool {
        mcp::may_list(definition, tool)
            && self.services.mcp.cached_listings(&self.id.tenant(), definition).is_none()
    }
}
