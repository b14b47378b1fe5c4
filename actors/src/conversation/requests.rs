//! A client's request becomes a command: what it lacks is looked up, what it brings is checked.

use std::sync::Arc;

use abide_conversation::command::{self, Create, IfBusy, ResolutionAnswer};
use abide_conversation::event::{Event, EventData};
use abide_conversation::ids::{AgentName, CallId, DecisionId, MessageId, TurnId};
use abide_conversation::remembered_decision::Scope;
use abide_conversation::{Action, Rejection};
use ractor::ActorRef;

use super::ask_hooks::{HookQuestion, edit};
use super::{
    ConversationMsg, DEADLINE, ExitReason, HookAnswers, LiveConversation, RecentEvents, in_time,
    seq_of,
};
use crate::blobs;
use crate::definition::Definition;
use crate::definition::Tool;
use crate::journal::StoreError;
use crate::live::Signal;
use crate::request::{
    Delivery, DeliveryContent, DeliveryOutcome, FailCallRequest, IdempotencyKey, RememberRequest,
    Reply, Request, RequestError, ResolveRequest, SendRequest, SpawnRequest,
};
use crate::tools::Toolbox;
use crate::tools::gate::exact_fingerprint;
use crate::tools::mcp;
use crate::workspace::WorkspaceRef;

/// Decisions that one conversation remembers; each is read with every gated call.
const MOST_DECISIONS: usize = 256;

/// An action to decide on, and how its events answer the request.
struct Ask {
    action: Action,
    reply: Answering,
}

type Answering = Box<dyn FnOnce(&[Event]) -> Reply + Send>;

/// Why a request was not carried out, as far as is known.
pub(super) enum NotDone {
    Failed(RequestError),
    /// Hooks must be asked first; nothing was done.
    Asks(Box<HookQuestion>),
    /// A write was refused; whether it was done is unknown, and the actor must die and replay.
    Unsure(StoreError),
}

impl<F: Into<RequestError>> From<F> for NotDone {
    fn from(failure: F) -> Self {
        Self::Failed(failure.into())
    }
}

impl LiveConversation {
    /// Answers a request. An `Err` means that the actor must die; the request was told before.
    pub(super) async fn deliver(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        delivery: Delivery,
        heard: Option<HookAnswers>,
    ) -> Result<(), ExitReason> {
        let Some(DeliveryContent { request, repeats, reply }) = delivery.take() else {
            return Ok(());
        };
        let done = match self.repeated(&repeats).await {
            Ok(Some(first)) if self.state.forking.is_some() => {
                self.when_whole(reply, first);
                return Ok(());
            }
            Ok(Some(first)) => Ok(first),
            Ok(None) => match request {
                Request::Fork(request) => {
                    return Box::pin(self.fork(myself, request, (repeats, reply))).await;
                }
                Request::Dispatch(request) => {
                    let asked = (repeats, reply);
                    return Box::pin(self.dispatch(myself, request, asked, heard)).await;
                }
                request => self.carry_out(myself, request, &repeats, heard).await,
            },
            Err(failure) => Err(NotDone::Failed(failure)),
        };
        let (answer, died) = match done {
            Ok(done) => (DeliveryOutcome::Done(done), Ok(())),
            Err(NotDone::Failed(failure)) => (DeliveryOutcome::Failed(failure), Ok(())),
            Err(NotDone::Asks(question)) => {
                self.ask_hooks(myself, *question, repeats, reply);
                return Ok(());
            }
            Err(NotDone::Unsure(refusal)) => {
                (DeliveryOutcome::Failed(refusal.clone().into()), Err(refusal.into()))
            }
        };
        // Who asked may have gone; the journal has what was done.
        let _ = reply.send(answer);
        died
    }

    /// The first answer, if this is a repeat.
    async fn repeated(&self, repeats: &[IdempotencyKey]) -> Result<Option<Reply>, RequestError> {
        let now = self.deps.clock.now();
        for repeat in repeats {
            let kept = self.deps.journal.answer(self.id.as_str(), &repeat.key, now).await?;
            let Some(kept) = kept else { continue };
            if kept.fingerprint != repeat.fingerprint {
                return Err(RequestError::KeyReused(repeat.field.clone()));
            }
            let first = serde_json::from_value(kept.body).map_err(|error| {
                StoreError::Unavailable(format!("a kept answer cannot be read: {error}"))
            })?;
            return Ok(Some(first));
        }
        Ok(None)
    }

    async fn carry_out(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        request: Request,
        repeats: &[IdempotencyKey],
        heard: Option<HookAnswers>,
    ) -> Result<Reply, NotDone> {
        let ask = match request {
            Request::Create(create) => self.create(create).await?,
            Request::Send(send) => self.send(send).await?,
            Request::Resolve(resolve) => self.resolve(resolve, heard).await?,
            Request::Cancel => self.cancel(),
            Request::Wake => ask(Action::Wake, |_| Reply::Woken),
            Request::Delete => return self.delete(repeats).await,
            Request::Spawn(spawn) => self.spawn(*spawn).await?,
            Request::ChildEnded(ended) => ask(Action::ChildEnded(*ended), |_| Reply::Noted),
            Request::Abandon(create) => {
                let usage = self.state.usage;
                ask(Action::Abandon(*create), move |_| Reply::Abandoned { usage })
            }
            Request::FailCall(fail) => fail_call(fail),
            Request::RevokeDecision(id) => ask(Action::RevokeDecision(id), |_| Reply::Revoked),
            Request::Dispatch(dispatch) => {
                return Err(RequestError::ToolNotFound(dispatch.tool).into());
            }
            Request::Fork(_) => return Err(Rejection::ConversationExists.into()),
        };
        let decided = self.decide(ask.action)?;
        let reply = (ask.reply)(&decided.events);
        let answers = self.remember(repeats, &reply);
        let born = !self.state.exists();
        self.commit(myself, decided, answers).await.map_err(NotDone::Unsure)?;
        if born {
            self.compile_own().await;
        }
        Ok(reply)
    }

    async fn create(&mut self, create: Create) -> Result<Ask, RequestError> {
        let definition = self.newest(&create.agent).await?;
        let reply = Reply::Created {
            id: self.id.clone(),
            agent: create.agent.clone(),
            revision: definition.revision.clone(),
        };
        Ok(ask(Action::Create(create), |_| reply))
    }

    async fn send(&mut self, request: SendRequest) -> Result<Ask, RequestError> {
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
        let of = self.state.agent.clone().or_else(|| agent.clone());
        let of = of.ok_or(Rejection::NotFound)?;
        let definition = self.newest(&of).await?;
        let turn_id = TurnId::new(self.deps.clock.id("turn"));
        let action = Action::Send(command::Send {
            create: agent.map(create),
            settings: definition.basis(),
            turn_id: turn_id.clone(),
            id: MessageId::new(self.deps.clock.id("msg")),
            content,
            message_id,
            principal,
            assigns,
            answer_format: shape,
            if_busy,
            partial: match if_busy {
                IfBusy::Interrupt => self.stream.partial(),
                IfBusy::Reject | IfBusy::Queue => None,
            },
        });
        let conversation_id = self.id.clone();
        Ok(ask(action, move |events| {
            let seq = seq_of(events, |event| matches!(event.data, EventData::UserMsg(_)));
            Reply::Sent { conversation_id, turn_id, seq }
        }))
    }

    /// A child begins; its parent may send the same again.
    async fn spawn(&mut self, request: SpawnRequest) -> Result<Ask, RequestError> {
        let SpawnRequest { parent, agent, content, principal, assigns } = request;
        let definition = self.newest(&agent).await?;
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
            settings: definition.basis(),
            turn_id: TurnId::new(self.deps.clock.id("turn")),
            id: MessageId::new(self.deps.clock.id("msg")),
            content,
            message_id: None,
            principal,
            assigns: Default::default(),
            answer_format: Default::default(),
            if_busy: IfBusy::Reject,
            partial: None,
        });
        Ok(ask(action, |_| Reply::Noted))
    }

    /// The call must be open before its answer is looked at: a stale one is told so.
    async fn resolve(
        &mut self,
        request: ResolveRequest,
        heard: Option<HookAnswers>,
    ) -> Result<Ask, NotDone> {
        let edits = edit(&request.answer).is_some().then(|| request.clone());
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
            let does = tool.map(Tool::action_fingerprint).unwrap_or_default();
            let RememberRequest { scope, matching, for_ms } = wish;
            let id = DecisionId::new(self.deps.clock.id("dec"));
            let fingerprint = self.exactly(&call, &resolve.answer);
            let remember =
                command::RememberDecision { id, scope, matching, does, fingerprint, for_ms };
            resolve.remember = Some(remember);
        }
        if let (Some(toolbox), Some(tool)) = (toolbox, open) {
            if let ResolutionAnswer::Result(value) = &resolve.answer {
                // What a running tool asked for says itself what it takes.
                let asked = self.state.call(&call).and_then(|open| open.pending_input.as_ref());
                let checked = match asked.filter(|input| input.answer.is_none()) {
                    Some(input) => mcp::check_answer(&input.request.requests, value),
                    None => toolbox.check_answer(&tool, value),
                };
                checked.map_err(|why| RequestError::invalid("result", why))?;
            }
            if let ResolutionAnswer::Result(value) = &mut resolve.answer {
                in_time(blobs::extract_media(&*self.deps.blobs, value)).await?;
            }
            self.edited(&toolbox, &mut resolve, edits, heard)?;
        }
        Ok(ask(Action::Resolve(resolve), |events| {
            let seq = seq_of(events, |event| matches!(event.data, EventData::Resolution(_)));
            Reply::Resolved { seq }
        }))
    }

    /// What an `exact` decision about the call matches: its arguments as they are approved.
    fn exactly(&self, call: &CallId, answer: &ResolutionAnswer) -> String {
        let Some(open) = self.state.call(call) else { return String::new() };
        let args = match answer {
            ResolutionAnswer::Approval { args: Some(edited), .. } => edited,
            ResolutionAnswer::Approval { .. }
            | ResolutionAnswer::Result(_)
            | ResolutionAnswer::Error(_) => &open.args,
        };
        exact_fingerprint(&open.tool, args)
    }

    /// Only a tool's own approval may be remembered, and not one that is strict.
    fn may_remember(
        &self,
        call: &CallId,
        tool: Option<&Tool>,
        of: Scope,
    ) -> Result<(), RequestError> {
        let refused = |why: &str| Err(RequestError::invalid("remember", why));
        let now = self.deps.clock.now();
        let live = self.state.decisions.values().filter(|decision| now < decision.expires_at);
        let gate = self.state.call(call).and_then(|call| call.gate.as_ref());
        match (tool, gate) {
            (None, _) => refused("the tool is gone"),
            (Some(tool), _)
                if of == Scope::Agent && self.own.iter().any(|own| own.name == tool.name) =>
            {
                refused("a conversation's own tool is no other's: scope must be conversation")
            }
            (Some(tool), _) if tool.strict => refused("the tool is strict: ask every time"),
            (_, Some(gate)) if !gate.rule.starts_with("approval") => {
                refused("what asks here is not the tool's own approval")
            }
            _ if live.count() >= MOST_DECISIONS => {
                refused("the conversation remembers too many decisions")
            }
            _ => Ok(()),
        }
    }

    fn cancel(&self) -> Ask {
        let partial = self.stream.partial();
        ask(Action::Cancel(command::Cancel { partial }), |events| {
            let ended = |event: &Event| matches!(event.data, EventData::TurnEnded(_));
            Reply::Cancelled { cancelled: events.iter().any(ended) }
        })
    }

    async fn delete(&mut self, repeats: &[IdempotencyKey]) -> Result<Reply, NotDone> {
        if !self.state.exists() {
            return Err(Rejection::NotFound.into());
        }
        let answer = self.remember(repeats, &Reply::Deleted).pop();
        // First what runs, then its files, then the truth: whoever fails on the way asks again.
        self.running.clear();
        self.discard_workspace().await;
        let journal = self.deps.journal.clone();
        let gone = in_time(journal.delete(&self.id, &self.held, answer)).await;
        gone.map_err(NotDone::Unsure)?;
        // The claim went with it; what comes next may create the conversation anew.
        let claimed = in_time(journal.claim(&self.id, &self.deps.standing.me(), None)).await;
        self.held = claimed.map_err(NotDone::Unsure)?;
        let was = std::mem::take(&mut self.state);
        self.tell_end(&was);
        self.own = Arc::default();
        self.tail = RecentEvents::default();
        self.cached_seq = 0;
        self.stream = Default::default();
        self.progress = Default::default();
        for (reply, _) in self.forks.drain(..) {
            let _ = reply.send(DeliveryOutcome::Failed(Rejection::NotFound.into()));
        }
        for reply in std::mem::take(&mut self.dispatched).into_values().flatten() {
            let _ = reply.send(DeliveryOutcome::Failed(Rejection::NotFound.into()));
        }
        self.deps.live.publish(&self.id, Signal::Deleted);
        Ok(Reply::Deleted)
    }

    /// Takes the conversation's own files along, whether they were ever journalled or not, so that
    /// whoever takes the id anew finds none. A child's files are its root's.
    async fn discard_workspace(&self) {
        if self.state.parent.is_some() {
            return;
        }
        let newest = match &self.state.agent {
            Some(agent) => self.deps.agents.newest(agent).await.ok().flatten(),
            None => None,
        };
        // Of an agent that is gone nobody knows whether it had another root.
        let here = WorkspaceRef { owner: self.id.to_string(), ..WorkspaceRef::default() };
        let site = newest.map_or(here, |newest| newest.site(&self.id));
        let storage = self.state.storages.get(&site.root_name()).cloned();
        let workspaces = self.deps.runner.workspaces().clone();
        let discarding =
            tokio::task::spawn_blocking(move || workspaces.discard(&site, storage.as_deref()));
        match tokio::time::timeout(DEADLINE, discarding).await {
            Ok(Ok(Ok(Some(discarded)))) => {
                drop(tokio::task::spawn_blocking(|| discarded.remove()));
            }
            Ok(Ok(Ok(None))) => {}
            Ok(Ok(Err(why))) => tracing::warn!(conversation = %self.id, %why, "its files stay"),
            Ok(Err(_)) | Err(_) => tracing::error!(conversation = %self.id, "its files stay"),
        }
    }

    pub(super) async fn newest(
        &mut self,
        name: &AgentName,
    ) -> Result<Arc<Definition>, RequestError> {
        self.newest = self.deps.agents.newest(name).await?;
        self.newest.clone().ok_or_else(|| RequestError::AgentMissing(name.clone()))
    }

    /// The tools of the open turn; `None` when no turn is open or its revision is gone.
    async fn toolbox(&self) -> Result<Option<Toolbox>, StoreError> {
        let Some(turn) = &self.state.turn else { return Ok(None) };
        let definition = self.deps.agents.revision(&turn.revision).await?;
        Ok(definition.map(|definition| self.toolbox_of(definition)))
    }
}

fn fail_call(request: FailCallRequest) -> Ask {
    let FailCallRequest { call, by, error } = request;
    let ended = call.clone();
    ask(Action::FailCall(command::FailCall { call, by, error }), move |events| {
        let closes = |event: &Event| match &event.data {
            EventData::ToolResult(result) => result.call_id == ended,
            EventData::DispatchFinished(done) => done.call_id == ended,
            _ => false,
        };
        Reply::Resolved { seq: seq_of(events, closes) }
    })
}

fn ask(action: Action, reply: impl FnOnce(&[Event]) -> Reply + Send + 'static) -> Ask {
    Ask { action, reply: Box::new(reply) }
}
