//! A client's request becomes a command: what it lacks is looked up, what it brings is checked.

use std::sync::Arc;

use abide_conversation::command::{self, Create, IfBusy, ResolutionAnswer};
use abide_conversation::event::{Event, EventData};
use abide_conversation::ids::{AgentName, CallId, DecisionId, MessageId, TurnId};
use abide_conversation::remembered_decision::Scope;
use abide_conversation::{Action, Rejection};
use ractor::ActorRef;

use super::ask_hooks::edited_args;
use super::not_done::NotDone;
use super::{
    ConversationMsg, ExitReason, HookAnswers, LiveConversation, STORE_TIMEOUT, seq_of,
    with_store_timeout,
};
use crate::agent::Definition;
use crate::blobs;
use crate::journal::StoreError;
use crate::live::Signal;
use crate::mcp;
use crate::recent_events::RecentEvents;
use crate::request::{
    Delivery, DeliveryContent, DeliveryOutcome, FailCallRequest, IdempotencyKey, RememberRequest,
    Reply, Request, RequestError, ResolveRequest, SendRequest, SpawnRequest,
};
use crate::tools::gate::exact_fingerprint;
use crate::tools::{Tool, Toolbox};
use crate::workspace::WorkspaceRef;

/// The decisions that one conversation remembers. Each is read with every gated call.
const MAX_DECISIONS: usize = 256;

/// An action to decide on, and the reply to make of its events.
struct Proposal {
    action: Action,
    reply: ReplyFn,
}

type ReplyFn = Box<dyn FnOnce(&[Event]) -> Reply + Send>;

impl LiveConversation {
    /// Carries out a request and replies. An `Err` means that the actor must die; the caller has
    /// its reply then, too.
    ///
    /// A request that hooks judge passes here twice: first without `answers`, and when the hooks
    /// have answered, again with them.
    pub(super) async fn deliver(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        delivery: Delivery,
        answers: Option<HookAnswers>,
    ) -> Result<(), ExitReason> {
        let Some(DeliveryContent { request, idempotency_keys: keys, reply }) = delivery.take()
        else {
            return Ok(());
        };
        let done = match self.stored_reply(&keys).await {
            Ok(Some(first)) if self.state.forking.is_some() => {
                self.reply_when_copied(reply, first);
                return Ok(());
            }
            Ok(Some(first)) => Ok(first),
            Ok(None) => match request {
                Request::Fork(request) => {
                    return Box::pin(self.fork(request, keys, reply)).await;
                }
                Request::Dispatch(request) => {
                    return Box::pin(self.dispatch(myself, request, (keys, reply), answers)).await;
                }
                request => self.carry_out(request, &keys, answers).await,
            },
            Err(error) => Err(NotDone::Failed(error)),
        };
        let (outcome, result) = match done {
            Ok(done) => (DeliveryOutcome::Done(done), Ok(())),
            Err(NotDone::Failed(error)) => (DeliveryOutcome::Failed(error), Ok(())),
            Err(NotDone::AsksHooks(question)) => {
                self.ask_hooks(myself, *question, keys, reply);
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
    async fn stored_reply(&self, keys: &[IdempotencyKey]) -> Result<Option<Reply>, RequestError> {
        let now = self.services.clock.now();
        for key in keys {
            let stored = self.services.journal.answer(self.id.as_str(), &key.key, now).await?;
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

    async fn carry_out(
        &mut self,
        request: Request,
        keys: &[IdempotencyKey],
        answers: Option<HookAnswers>,
    ) -> Result<Reply, NotDone> {
        let proposal = match request {
            Request::Create(create) => self.create(create).await?,
            Request::Send(send) => self.send(send).await?,
            Request::Resolve(resolve) => self.resolve(resolve, answers).await?,
            Request::Cancel => self.cancel(),
            Request::Wake => propose(Action::Wake, |_| Reply::Woken),
            Request::Delete => return self.delete(keys).await,
            Request::Spawn(spawn) => self.spawn(*spawn).await?,
            Request::ChildEnded(ended) => propose(Action::ChildEnded(*ended), |_| Reply::Noted),
            Request::Abandon(create) => {
                let usage = self.state.usage;
                propose(Action::Abandon(*create), move |_| Reply::Abandoned { usage })
            }
            Request::FailCall(fail) => fail_call(fail),
            Request::RevokeDecision(id) => propose(Action::RevokeDecision(id), |_| Reply::Revoked),
            Request::Dispatch(dispatch) => {
                return Err(RequestError::ToolNotFound(dispatch.tool).into());
            }
            Request::Fork(_) => return Err(Rejection::ConversationExists.into()),
        };
        let transition = self.decide(proposal.action)?;
        let reply = (proposal.reply)(&transition.events);
        let responses = self.responses(keys, &reply);
        let is_new = !self.state.exists();
        self.commit(transition, responses).await.map_err(NotDone::Unknown)?;
        if is_new {
            self.compile_client_tools().await;
        }
        Ok(reply)
    }

    async fn create(&mut self, create: Create) -> Result<Proposal, RequestError> {
        let definition = self.newest_definition(&create.agent).await?;
        let reply = Reply::Created {
            id: self.id.clone(),
            agent: create.agent.clone(),
            revision: definition.revision.clone(),
        };
        Ok(propose(Action::Create(create), |_| reply))
    }

    async fn send(&mut self, request: SendRequest) -> Result<Proposal, RequestError> {
        let SendRequest { agent, content, message_id, principal, assigns, shape, if_busy } =
            request;
        let create = |agent| Create {
            agent,
            assigns: Default::default(),
            metadata: Default::default(),
            tools: Vec::new(),
            parent: None,
            fork: None,
        };
        let current = self.state.agent.clone().or_else(|| agent.clone());
        let current = current.ok_or(Rejection::NotFound)?;
        let definition = self.newest_definition(&current).await?;
        let turn_id = TurnId::new(self.services.clock.id("turn"));
        let action = Action::Send(command::Send {
            create: agent.map(create),
            basis: definition.basis(),
            turn_id: turn_id.clone(),
            id: MessageId::new(self.services.clock.id("msg")),
            content,
            message_id,
            principal,
            assigns,
            shape,
            if_busy,
            partial: match if_busy {
                IfBusy::Interrupt => self.activities.stream.partial(),
                IfBusy::Reject | IfBusy::Queue => None,
            },
        });
        let conversation_id = self.id.clone();
        Ok(propose(action, move |events| {
            let seq = seq_of(events, |event| matches!(event.data, EventData::UserMsg(_)));
            Reply::Sent { conversation_id, turn_id, seq }
        }))
    }

    /// Begins a child. Its parent may repeat the request.
    async fn spawn(&mut self, request: SpawnRequest) -> Result<Proposal, RequestError> {
        let SpawnRequest { parent, agent, content, principal, assigns } = request;
        let definition = self.newest_definition(&agent).await?;
        let create = Create {
            agent,
            assigns,
            metadata: Default::default(),
            tools: Vec::new(),
            parent: Some(Box::new(parent)),
            fork: None,
        };
        let action = Action::Spawn(command::Send {
            create: Some(create),
            basis: definition.basis(),
            turn_id: TurnId::new(self.services.clock.id("turn")),
            id: MessageId::new(self.services.clock.id("msg")),
            content,
            message_id: None,
            principal,
            assigns: Default::default(),
            shape: Default::default(),
            if_busy: IfBusy::Reject,
            partial: None,
        });
        Ok(propose(action, |_| Reply::Noted))
    }

    /// Checks a resolution. The call must be open before the answer is looked at, so that a stale
    /// one is refused as stale.
    async fn resolve(
        &mut self,
        request: ResolveRequest,
        answers: Option<HookAnswers>,
    ) -> Result<Proposal, NotDone> {
        let edit = edited_args(&request.answer).is_some().then(|| request.clone());
        let ResolveRequest { call, suspension, by, answer, remember } = request;
        let mut resolve = command::Resolve {
            call: call.clone(),
            suspension,
            by,
            answer,
            gate: None,
            remember: None,
            halt: None,
        };
        self.decide(Action::Resolve(resolve.clone()))?;
        let open = self.state.call(&call).map(|open| open.tool.clone());
        let toolbox = self.toolbox().await?;
        if let Some(wish) = remember {
            let tool = open.as_deref().zip(toolbox.as_ref());
            let tool = tool.and_then(|(name, toolbox)| toolbox.tool(name));
            self.may_remember(&call, tool, wish.scope)?;
            let does = tool.map(Tool::does).unwrap_or_default();
            let RememberRequest { scope, matching, for_ms } = wish;
            let id = DecisionId::new(self.services.clock.id("dec"));
            let fingerprint = self.approved_fingerprint(&call, &resolve.answer);
            let remember =
                command::RememberDecision { id, scope, matching, does, fingerprint, for_ms };
            resolve.remember = Some(remember);
        }
        if let (Some(toolbox), Some(tool)) = (toolbox, open) {
            if let ResolutionAnswer::Result(value) = &resolve.answer {
                // A running tool's request for input says itself which answers fit.
                let pending = self.state.call(&call).and_then(|open| open.input.as_ref());
                let checked = match pending.filter(|input| input.answer.is_none()) {
                    Some(input) => mcp::check_answer(&input.asks.requests, value),
                    None => toolbox.check_answer(&tool, value),
                };
                checked.map_err(|why| RequestError::invalid("result", why))?;
            }
            if let ResolutionAnswer::Result(value) = &mut resolve.answer {
                with_store_timeout(blobs::stored(&*self.services.blobs, value)).await?;
            }
            self.judge_edited_args(&toolbox, &mut resolve, edit, answers)?;
        }
        Ok(propose(Action::Resolve(resolve), |events| {
            let seq = seq_of(events, |event| matches!(event.data, EventData::Resolution(_)));
            Reply::Resolved { seq }
        }))
    }

    /// The fingerprint that an `exact` decision matches: that of the arguments as approved.
    fn approved_fingerprint(&self, call: &CallId, answer: &ResolutionAnswer) -> String {
        let Some(open) = self.state.call(call) else { return String::new() };
        let args = match answer {
            ResolutionAnswer::Approval { args: Some(edited), .. } => edited,
            ResolutionAnswer::Approval { .. }
            | ResolutionAnswer::Result(_)
            | ResolutionAnswer::Error(_) => &open.args,
        };
        exact_fingerprint(&open.tool, args)
    }

    /// Checks that the decision may be remembered: only a tool's own approval, unless it is strict.
    fn may_remember(
        &self,
        call: &CallId,
        tool: Option<&Tool>,
        scope: Scope,
    ) -> Result<(), RequestError> {
        let refused = |why: &str| Err(RequestError::invalid("remember", why));
        let now = self.services.clock.now();
        let valid = self.state.decisions.values().filter(|decision| now < decision.expires_at);
        let gate = self.state.call(call).and_then(|call| call.gate.as_ref());
        match (tool, gate) {
            (None, _) => refused("the tool no longer exists"),
            (Some(tool), _)
                if scope == Scope::Agent
                    && self.client_tools.iter().any(|other| other.name == tool.name) =>
            {
                refused(
                    "the client declared the tool for this conversation only: scope must be conversation",
                )
            }
            (Some(tool), _) if tool.strict => {
                refused("the tool is strict: it needs an approval every time")
            }
            (_, Some(gate)) if !gate.rule.starts_with("approval") => {
                refused("the approval was asked for by a rule, not by the tool itself")
            }
            _ if valid.count() >= MAX_DECISIONS => {
                refused("the conversation remembers too many decisions")
            }
            _ => Ok(()),
        }
    }

    fn cancel(&self) -> Proposal {
        let partial = self.activities.stream.partial();
        propose(Action::Cancel(command::Cancel { partial }), |events| {
            let ended = |event: &Event| matches!(event.data, EventData::TurnEnded(_));
            Reply::Cancelled { cancelled: events.iter().any(ended) }
        })
    }

    async fn delete(&mut self, keys: &[IdempotencyKey]) -> Result<Reply, NotDone> {
        if !self.state.exists() {
            return Err(Rejection::NotFound.into());
        }
        let response = self.responses(keys, &Reply::Deleted).pop();
        // First what runs, then the files, then the journal: after a failure in between, the caller
        // can repeat the request.
        self.activities.abort_all();
        self.discard_workspace().await;
        let journal = self.services.journal.clone();
        let deletion = with_store_timeout(journal.delete(&self.id, &self.claim, response)).await;
        deletion.map_err(NotDone::Unknown)?;
        // The claim was deleted, too; the next request may create the conversation anew.
        let me = self.services.lease.me();
        let claim = with_store_timeout(journal.claim(&self.id, &me, None)).await;
        self.claim = claim.map_err(NotDone::Unknown)?;
        let before = std::mem::take(&mut self.state);
        self.notify_session_end(&before);
        self.client_tools = Arc::default();
        self.recent_events = RecentEvents::default();
        self.cached_seq = 0;
        self.activities.stream = Default::default();
        self.activities.progress = Default::default();
        self.waiters.fail_callers(&Rejection::NotFound.into());
        self.services.live.publish(&self.id, Signal::Deleted);
        Ok(Reply::Deleted)
    }

    /// Discards the conversation's own files, whether they were ever journalled or not, so that a
    /// new conversation of the same id finds none. A child's files belong to its root.
    async fn discard_workspace(&self) {
        if self.state.parent.is_some() {
            return;
        }
        let definition = match &self.state.agent {
            Some(agent) => self.services.agents.newest(agent).await.ok().flatten(),
            None => None,
        };
        // Whether a deleted agent had another root is unknown; the default one is taken.
        let default = WorkspaceRef { owner: self.id.to_string(), ..WorkspaceRef::default() };
        let workspace = definition.map_or(default, |definition| definition.site(&self.id));
        let storage = self.state.storages.get(&workspace.root_name()).cloned();
        let workspaces = self.services.workspaces.clone();
        let discarding =
            tokio::task::spawn_blocking(move || workspaces.discard(&workspace, storage.as_deref()));
        match tokio::time::timeout(STORE_TIMEOUT, discarding).await {
            Ok(Ok(Ok(Some(discarded)))) => {
                drop(tokio::task::spawn_blocking(|| discarded.remove()));
            }
            Ok(Ok(Ok(None))) => {}
            Ok(Ok(Err(why))) => {
                tracing::warn!(conversation = %self.id, %why, "workspace not discarded");
            }
            Ok(Err(_)) | Err(_) => {
                tracing::error!(conversation = %self.id, "workspace not discarded");
            }
        }
    }

    /// Looks up the newest definition of an agent, and remembers it.
    pub(super) async fn newest_definition(
        &mut self,
        name: &AgentName,
    ) -> Result<Arc<Definition>, RequestError> {
        self.newest_definition = self.services.agents.newest(name).await?;
        self.newest_definition.clone().ok_or_else(|| RequestError::AgentMissing(name.clone()))
    }

    /// The tools of the open turn; `None` when no turn is open or its revision is gone.
    async fn toolbox(&self) -> Result<Option<Toolbox>, StoreError> {
        let Some(turn) = &self.state.turn else { return Ok(None) };
        let definition = self.services.agents.revision(&turn.revision).await?;
        Ok(definition.map(|definition| self.toolbox_of(definition)))
    }
}

fn fail_call(request: FailCallRequest) -> Proposal {
    let FailCallRequest { call, by, error } = request;
    let failed = call.clone();
    propose(Action::FailCall(command::FailCall { call, by, error }), move |events| {
        let closes = |event: &Event| match &event.data {
            EventData::ToolResult(result) => result.call_id == failed,
            EventData::Dispatch(done) => done.call_id == failed,
            _ => false,
        };
        Reply::Resolved { seq: seq_of(events, closes) }
    })
}

fn propose(action: Action, reply: impl FnOnce(&[Event]) -> Reply + Send + 'static) -> Proposal {
    Proposal { action, reply: Box::new(reply) }
}
