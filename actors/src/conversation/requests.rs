//! A client's request becomes a command: what it lacks is looked up, what it brings is checked.

use std::sync::Arc;

use abide_conversation::command::{self, Create, IfBusy};
use abide_conversation::event::{Event, EventData};
use abide_conversation::identity::Participants;
use abide_conversation::ids::{AgentName, ConversationId, MessageId, TurnId};
use abide_conversation::{Action, Rejection};
use ractor::ActorRef;
use serde_json::{Map, Value};

use super::not_done::NotDone;
use super::{ConversationMsg, ExitReason, HookVerdict, LiveConversation, seq_of};
use crate::access::{Access, AccessError};
use crate::definition::Definition;
use crate::external::ExternalRequest;
use crate::journal::{ResponseScope, StoreError};
use crate::limits::encoded_len;
use crate::request::{
    ChangeStateRequest, DeletionReason, Delivery, DeliveryContent, DeliveryOutcome,
    FailCallRequest, IdempotencyKey, MAX_MAP_BYTES, Reply, ReplyPort, Request, RequestContext,
    RequestError, SendRequest, SpawnRequest, UpdateRequest,
};
use crate::tools::{NEW_TURN, Toolbox};

/// An action to decide on, and the reply to make of its events.
pub(super) struct Proposal {
    pub(super) action: Action,
    pub(super) reply: ReplyFn,
}

type ReplyFn = Box<dyn FnOnce(&[Event]) -> Reply + Send>;

impl LiveConversation {
    /// Carries out a request and replies. An `Err` means that the actor must die; the caller has
    /// its reply then, too.
    ///
    /// A request that hooks judge passes here twice: first without `hook_verdicts`, and again with
    /// them once the hooks have answered.
    pub(super) async fn deliver(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        delivery: Box<Delivery>,
        mut hook_verdicts: Vec<HookVerdict>,
    ) -> Result<(), ExitReason> {
        if self.is_unclaimed() {
            return self.deliver_first(myself, delivery, hook_verdicts).await;
        }
        let Some(DeliveryContent { request, context, reply }) = delivery.take() else {
            return Ok(());
        };
        if let Err(error) = self.check_access(&request, &context.access) {
            // The caller may be gone.
            let _ = reply.send(DeliveryOutcome::Failed(error.into()));
            return Ok(());
        }
        let done = match self.stored_reply(&context.idempotency_keys).await {
            Ok(Some(first)) if self.state.forking.is_some() => {
                self.reply_when_copied(reply, first);
                return Ok(());
            }
            Ok(Some(first)) => Ok(first),
            Ok(None) => match *request {
                Request::Fork(request) => {
                    return Box::pin(self.fork(request, context, reply)).await;
                }
                Request::Dispatch(request) => {
                    return Box::pin(self.dispatch(
                        myself,
                        request,
                        (context, reply),
                        hook_verdicts.pop(),
                    ))
                    .await;
                }
                _ => self.carry_out(request, &context, hook_verdicts).await,
            },
            Err(error) => Err(NotDone::Failed(error)),
        };
        self.answer(myself, done, context, reply)
    }

    /// Replies with what became of a request, or asks the hooks first. An `Err` means that the actor
    /// must die.
    pub(super) fn answer(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        done: Result<Reply, NotDone>,
        context: RequestContext,
        reply: ReplyPort,
    ) -> Result<(), ExitReason> {
        let (outcome, result) = match done {
            Ok(done) => (DeliveryOutcome::Done(done), Ok(())),
            Err(NotDone::Failed(error)) => (DeliveryOutcome::Failed(error), Ok(())),
            Err(NotDone::AsksHooks(questions)) => {
                self.ask_hooks(myself, *questions, context, reply);
                return Ok(());
            }
            Err(NotDone::Unknown(error)) => {
                (DeliveryOutcome::Failed(error.clone().into()), Err(error.into()))
            }
        };
        // The caller may be gone; the journal has what was done.
        let _ = reply.send(outcome);
        result
    }

    /// The reply to the first request under one of these keys, if this is a repeat.
    pub(super) async fn stored_reply(
        &self,
        keys: &[IdempotencyKey],
    ) -> Result<Option<Reply>, RequestError> {
        let now = self.services.clock.now();
        let scope = ResponseScope::Conversation(self.id.clone());
        for key in keys {
            let stored = self.services.journal.stored_response(&scope, &key.key, now).await?;
            let Some(stored) = stored else { continue };
            if stored.fingerprint != key.fingerprint {
                return Err(RequestError::KeyReused(key.field.clone()));
            }
            let first = serde_json::from_value(stored.body).map_err(|error| {
                StoreError::Unavailable(format!("a stored response cannot be read: {error}"))
            })?;
            return Ok(Some(first));
        }
        Ok(None)
    }

    pub(super) async fn carry_out(
        &mut self,
        request: Box<Request>,
        context: &RequestContext,
        mut hook_verdicts: Vec<HookVerdict>,
    ) -> Result<Reply, NotDone> {
        let RequestContext { access, idempotency_keys: keys } = context;
        // Large futures that few requests need are boxed: the future of every request has room for the
        // largest that is not, and is copied to the heap.
        let Proposal { action, reply } = match *request {
            Request::Create(create) => self.create(create).await?,
            Request::Send(send) => self.send(send, access).await?,
            Request::Resolve(resolve) => self.resolve(resolve, hook_verdicts.pop(), access).await?,
            Request::ResolveAll(answers) => {
                return Box::pin(self.resolve_all(answers, hook_verdicts, context)).await;
            }
            Request::Cancel => self.cancel(),
            Request::Wake if self.state.is_expired(self.services.clock.now()) => {
                self.end_of_its_time();
                return Ok(Reply::Woken);
            }
            Request::Wake => self.wake(),
            Request::Schedule(request) => Box::pin(self.schedule(*request, access)).await?,
            Request::Unschedule(request) => self.unschedule(request, access),
            Request::Withdraw(request) => self.withdraw(request, access),
            Request::CancelTurn(request) => self.cancel_turn(request, access),
            Request::Rewind(request) => self.rewind(*request, access),
            Request::Regenerate(request) => Box::pin(self.regenerate(*request, access)).await?,
            Request::Extend(request) => self.extend(request, access)?,
            Request::Delete => return self.delete(keys, DeletionReason::Request).await,
            Request::DeleteFor(reason) => return self.delete(keys, reason).await,
            Request::DeleteIf(condition) => return self.delete_if(keys, condition).await,
            Request::EraseSubject(alias) => {
                return Box::pin(self.erase_subject(&alias)).await;
            }
            Request::Spawn(spawn) => Box::pin(self.spawn(*spawn)).await?,
            Request::ChildEnded(ended) => propose(Action::ChildEnded(*ended), |_| Reply::Noted),
            Request::Abandon(create) => {
                let usage = self.state.usage;
                propose(Action::Abandon(*create), move |_| Reply::Abandoned { usage })
            }
            Request::FailCall(fail) => fail_call(fail),
            Request::Update(update) => self.update(update, access)?,
            Request::ChangeState(change) => change_state(change, access),
            Request::Operate(operated) => propose(Action::Operate(operated), |_| Reply::Noted),
            Request::RevokeDecision(id) => propose(Action::RevokeDecision(id), |_| Reply::Revoked),
            Request::External(ExternalRequest::Progress { call, proof, progress }) => {
                return self.external_progress(&call, &proof, progress);
            }
            Request::External(request) => Box::pin(self.external(request)).await?,
            Request::Dispatch(dispatch) => {
                return Err(RequestError::ToolNotFound(dispatch.tool).into());
            }
            Request::Fork(_) => return Err(Rejection::ConversationExists.into()),
        };
        let transition = self.decide(action)?;
        let reply = reply(&transition.events);
        let responses = self.responses(keys, &reply);
        let is_new = !self.state.exists();
        self.commit(transition, responses).await.map_err(NotDone::Unknown)?;
        if is_new {
            if self.delete_if_unawaited().await.map_err(NotDone::Unknown)? {
                return Err(Rejection::NotFound.into());
            }
            self.compile_client_tools().await;
        }
        Ok(reply)
    }

    /// Whether the request may be made, as far as is known before it is looked at. What may not be
    /// read does not exist, and neither do the stored replies to it.
    pub(super) fn check_access(
        &self,
        request: &Request,
        access: &Access,
    ) -> Result<(), AccessError> {
        match request {
            // Whether somebody may create is known at the border; a fork is judged by its original.
            Request::Create(_) | Request::Fork(_) => Ok(()),
            _ if self.state.exists() => {
                access.check(&self.state.participants, self.state.created_at)
            }
            Request::Send(SendRequest { agent: Some(agent), .. }) => access.check_create(agent),
            Request::Schedule(request) => {
                request.message.agent.iter().try_for_each(|agent| access.check_create(agent))
            }
            _ => Ok(()),
        }
    }

    async fn create(&mut self, create: Create) -> Result<Proposal, RequestError> {
        let definition = self.next_definition(&create.agent).await?;
        let reply = Reply::Created {
            id: self.id.local(),
            agent: create.agent.clone(),
            revision: definition.revision.clone(),
        };
        Ok(propose(Action::Create(create), |_| reply))
    }

    async fn send(
        &mut self,
        request: SendRequest,
        access: &Access,
    ) -> Result<Proposal, RequestError> {
        let send = self.compose_send(request, access).await?;
        let reply = sent_reply(self.id.local(), send.turn_id.clone());
        Ok(propose(Action::Send(send), reply))
    }

    /// The command that sends a message now, with the ids that it will have.
    pub(super) async fn compose_send(
        &mut self,
        request: SendRequest,
        access: &Access,
    ) -> Result<command::Send, RequestError> {
        let SendRequest { agent, content, message_id, principal, assigns, .. } = request;
        let SendRequest { answer_format, tools, context, if_busy, .. } = request;
        let owner = access.identity().map(|identity| identity.acting().sub.clone());
        let create = |agent| Create {
            agent,
            assigns: Default::default(),
            metadata: Default::default(),
            tools: Vec::new(),
            parent: None,
            fork: None,
            title: None,
            expires_at: None,
            participants: Participants { owner, members: Vec::new() },
        };
        let current = self.state.agent.clone().or_else(|| agent.clone());
        let current = current.ok_or(Rejection::NotFound)?;
        let definition = self.next_definition(&current).await?;
        self.check_tool_names(&definition, &tools)?;
        Ok(command::Send {
            create: agent.map(create),
            settings: definition.basis(),
            turn_id: TurnId::new(self.services.clock.id(NEW_TURN)),
            id: MessageId::new(self.services.clock.id("msg")),
            content,
            message_id,
            principal,
            identity: access.identity().cloned().map(Arc::new),
            assigns,
            answer_format,
            tools,
            context,
            if_busy,
            partial: match if_busy {
                IfBusy::Interrupt => self.activities.stream.partial(),
                IfBusy::Reject | IfBusy::Queue | IfBusy::Steer => None,
            },
        })
    }

    /// Whether none of these definitions of tools has the name of one of the agent's.
    pub(super) fn check_tool_names(
        &self,
        agent: &Arc<Definition>,
        tools: &[Value],
    ) -> Result<(), RequestError> {
        if tools.is_empty() {
            return Ok(());
        }
        let toolbox = self.toolbox_of(agent.clone());
        for (index, tool) in tools.iter().enumerate() {
            if tool["name"].as_str().is_some_and(|name| toolbox.is_of_agent(name)) {
                let message = "is the name of a tool of the agent";
                return Err(RequestError::invalid(format!("tools[{index}].name"), message));
            }
        }
        Ok(())
    }

    /// Begins a child. Its parent may repeat the request.
    async fn spawn(&mut self, request: SpawnRequest) -> Result<Proposal, RequestError> {
        let SpawnRequest {
            parent,
            agent,
            content,
            principal,
            identity,
            participants,
            assigns,
            message_assigns,
        } = request;
        let definition = self.next_definition(&agent).await?;
        if let Some(name) = parent.model.as_ref().filter(|it| !definition.models.contains(it)) {
            let message = format!("{name} is not among the models of agent {agent}");
            return Err(RequestError::invalid("model", message));
        }
        let create = Create {
            agent,
            assigns,
            metadata: Default::default(),
            tools: Vec::new(),
            parent: Some(Box::new(parent)),
            fork: None,
            title: None,
            expires_at: None,
            participants,
        };
        let action = Action::Spawn(command::Send {
            create: Some(create),
            settings: definition.basis(),
            turn_id: TurnId::new(self.services.clock.id(NEW_TURN)),
            id: MessageId::new(self.services.clock.id("msg")),
            content,
            message_id: None,
            principal,
            identity,
            assigns: message_assigns,
            answer_format: Default::default(),
            tools: Default::default(),
            context: Vec::new(),
            if_busy: IfBusy::Reject,
            partial: None,
        });
        Ok(propose(action, |_| Reply::Noted))
    }

    fn update(&self, request: UpdateRequest, access: &Access) -> Result<Proposal, RequestError> {
        let UpdateRequest { metadata: patch, members, title, expires_at, by } = request;
        let metadata = patch.map(|patch| merge_patch(&self.state.metadata, patch));
        if metadata.as_ref().is_some_and(|it| encoded_len(it) > MAX_MAP_BYTES) {
            let message = format!("would be larger than {MAX_MAP_BYTES} bytes");
            return Err(RequestError::invalid("metadata", message));
        }
        let identity = access.identity().cloned().map(Arc::new);
        let update = command::Update { metadata, members, title, expires_at, by, identity };
        Ok(propose(Action::Update(update), |_| Reply::Updated))
    }

    fn cancel(&self) -> Proposal {
        let partial = self.activities.stream.partial();
        propose(Action::Cancel(command::Cancel { partial }), |events| {
            let ended = |event: &Event| matches!(event.data, EventData::TurnEnded(_));
            Reply::Cancelled { cancelled: events.iter().any(ended) }
        })
    }

    /// Looks up the definition of an agent that the conversation runs on next, and remembers it.
    pub(super) async fn next_definition(
        &mut self,
        name: &AgentName,
    ) -> Result<Arc<Definition>, RequestError> {
        self.choice = self.services.agents.choose(name, &self.id).await?;
        let choice = self.choice.as_ref().map(|choice| choice.definition.clone());
        choice.ok_or_else(|| RequestError::AgentMissing(name.clone()))
    }

    /// The tools of the open turn; `None` when no turn is open or its revision is gone.
    pub(super) async fn toolbox(&self) -> Result<Option<Toolbox>, StoreError> {
        let Some(turn) = &self.state.turn else { return Ok(None) };
        let definition = self.services.agents.revision(&self.id.sibling(&turn.revision)).await?;
        Ok(definition.map(|definition| self.toolbox_of(definition)))
    }
}

/// The object after a JSON Merge Patch (RFC 7396).
fn merge_patch(object: &Map<String, Value>, patch: Map<String, Value>) -> Map<String, Value> {
    let mut merged = Value::Object(object.clone());
    json_patch::merge(&mut merged, &Value::Object(patch));
    match merged {
        Value::Object(merged) => merged,
        // A patch that is an object results in one.
        _ => Map::new(),
    }
}

fn change_state(request: ChangeStateRequest, access: &Access) -> Proposal {
    let ChangeStateRequest { changes, by } = request;
    let identity = access.identity().cloned().map(Arc::new);
    let change = command::ChangeState { changes, by, identity };
    propose(Action::ChangeState(change), |_| Reply::Noted)
}

fn fail_call(request: FailCallRequest) -> Proposal {
    let FailCallRequest { call, by, identity, reason, error } = request;
    let failed = call.clone();
    let action = Action::FailCall(command::FailCall { call, by, identity, reason, error });
    propose(action, move |events| {
        let closes = |event: &Event| match &event.data {
            EventData::ToolResult(result) => result.call_id == failed,
            EventData::DispatchFinished(done) => done.call_id == failed,
            _ => false,
        };
        Reply::Resolved { seq: seq_of(events, closes) }
    })
}

/// The reply to a message, which begins this turn or steers the one that runs.
pub(super) fn sent_reply(
    conversation_id: ConversationId,
    turn: TurnId,
) -> impl FnOnce(&[Event]) -> Reply {
    let is_message =
        |data: &EventData| matches!(data, EventData::UserMsg(_) | EventData::Steered(_));
    move |events| {
        let message = events.iter().find(|event| is_message(&event.data));
        let seq = message.map(|event| event.seq).unwrap_or_default();
        let turn_id = message.and_then(|event| event.turn_id.clone()).unwrap_or(turn);
        Reply::Sent { conversation_id, turn_id, seq }
    }
}

pub(super) fn propose(
    action: Action,
    reply: impl FnOnce(&[Event]) -> Reply + Send + 'static,
) -> Proposal {
    Proposal { action, reply: Box::new(reply) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::tests::future_size;

    type Live = &'static mut LiveConversation;
    type Myself = &'static ActorRef<ConversationMsg>;

    /// It is copied to the heap for each request.
    #[test]
    fn the_future_of_a_request_stays_small() {
        let size = future_size(|(live, myself, delivery): (Live, Myself, Box<Delivery>)| {
            live.deliver(myself, delivery, Vec::new())
        });
        assert!(size < 3_600, "{size} bytes: box what few requests need");
    }
}
