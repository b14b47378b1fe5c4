//! A client's request becomes a command: what it lacks is looked up, what it brings is checked.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_conversation::command::{self, Answer, Create};
use abide_conversation::event::{Data, Event};
use abide_conversation::ids::{AgentName, CallId, MessageId, TurnId};
use abide_conversation::{Action, decide};
use ractor::ActorRef;

use super::{ConversationMsg, Death, Loaded, seq_of};
use crate::agent::{self, Definition};
use crate::journal::Refusal;
use crate::request::{
    Answered, Delivery, DispatchRequest, Failure, Parcel, RepeatKey, Reply, ReplyPort, Request,
    ResolveRequest, SendRequest,
};
use crate::tools::{Scope, Toolbox, merged};

/// An action to decide on, and how its events answer the request.
struct Ask {
    action: Action,
    reply: Answering,
}

type Answering = Box<dyn FnOnce(&[Event]) -> Reply + Send>;

impl Loaded {
    /// Answers a request. An `Err` means that the actor must die; the request was told before.
    pub(super) async fn deliver(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        delivery: Delivery,
    ) -> Result<(), Death> {
        let Some(Parcel { request, repeats, reply }) = delivery.take() else { return Ok(()) };
        let answered = match self.repeated(&repeats).await {
            Ok(Some(first)) => Ok(first),
            Ok(None) => match request {
                Request::Dispatch(request) => {
                    return self.dispatch(myself, request, &repeats, reply).await;
                }
                request => self.carry_out(myself, request, &repeats).await,
            },
            Err(failure) => Err(failure),
        };
        let deadly = match &answered {
            Err(Failure::Refused(refusal)) => Some(refusal.clone()),
            _ => None,
        };
        // Who asked may have gone; the journal has what was done.
        let _ = reply.send(answered.into());
        deadly.map_or(Ok(()), |refusal| Err(refusal.into()))
    }

    /// The first answer, if this is a repeat.
    async fn repeated(&self, repeats: &[RepeatKey]) -> Result<Option<Reply>, Failure> {
        let now = self.deps.clock.now();
        for repeat in repeats {
            let kept = self.deps.journal.answer(self.id.as_str(), &repeat.key, now).await?;
            let Some(kept) = kept else { continue };
            if kept.fingerprint != repeat.fingerprint {
                return Err(Failure::KeyReused(repeat.field));
            }
            if let Ok(first) = serde_json::from_value(kept.body) {
                return Ok(Some(first));
            }
        }
        Ok(None)
    }

    async fn carry_out(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        request: Request,
        repeats: &[RepeatKey],
    ) -> Result<Reply, Failure> {
        let ask = match request {
            Request::Create(create) => self.create(create).await?,
            Request::Send(send) => self.send(send).await?,
            Request::Resolve(resolve) => self.resolve(resolve).await?,
            Request::Cancel => self.cancel(),
            Request::Wake => ask(Action::Wake, |_| Reply::Woken),
            Request::Delete => return self.delete(repeats).await,
            Request::Dispatch(dispatch) => return Err(Failure::ToolNotFound(dispatch.tool)),
        };
        let events = decide(&self.state, self.command(ask.action))?;
        let reply = (ask.reply)(&events);
        let answers = self.remember(repeats, &reply);
        self.commit(myself, events, answers).await?;
        Ok(reply)
    }

    async fn create(&self, create: Create) -> Result<Ask, Failure> {
        let definition = self.newest(&create.agent).await?;
        let reply = Reply::Created {
            id: self.id.clone(),
            agent: create.agent.clone(),
            revision: definition.revision.clone(),
        };
        Ok(ask(Action::Create(create), |_| reply))
    }

    async fn send(&self, request: SendRequest) -> Result<Ask, Failure> {
        let SendRequest { agent, content, message_id, principal, assigns, shape, if_busy } =
            request;
        let create = |agent| Create {
            agent,
            assigns: Default::default(),
            metadata: Default::default(),
            tools: Vec::new(),
        };
        let of = self.state.agent.clone().or_else(|| agent.clone());
        let of = of.ok_or(abide_conversation::Rejection::NotFound)?;
        let definition = self.newest(&of).await?;
        let turn_id = TurnId::new(self.deps.clock.id("turn"));
        let action = Action::Send(command::Send {
            create: agent.map(create),
            basis: definition.basis(),
            turn_id: turn_id.clone(),
            id: MessageId::new(self.deps.clock.id("msg")),
            content,
            message_id,
            principal,
            assigns,
            shape,
            if_busy,
            partial: self.stream.partial(),
        });
        let conversation_id = self.id.clone();
        Ok(ask(action, move |events| {
            let seq = seq_of(events, |event| matches!(event.data, Data::UserMsg(_)));
            Reply::Sent { conversation_id, turn_id, seq }
        }))
    }

    /// The call must be open before its answer is looked at: a stale one is told so.
    async fn resolve(&mut self, request: ResolveRequest) -> Result<Ask, Failure> {
        let ResolveRequest { call, suspension, by, answer } = request;
        let action = Action::Resolve(command::Resolve {
            call: call.clone(),
            suspension,
            by,
            answer: answer.clone(),
        });
        decide(&self.state, self.command(action.clone()))?;
        let open = self.state.call(&call).map(|open| open.tool.clone());
        let toolbox = self.toolbox().await?;
        if let (Some(toolbox), Some(tool)) = (toolbox, open) {
            let checked = match &answer {
                Answer::Approval { approved: true, args: Some(args), .. } => {
                    match toolbox.tool(&tool) {
                        Some(tool) => toolbox.check_args(tool, args),
                        None => Ok(()),
                    }
                    .map_err(|why| Failure::invalid("args", why))
                }

                Answer::Result(value) => toolbox
                    .check_answer(&tool, value)
                    .map_err(|why| Failure::invalid("result", why)),
                Answer::Approval { .. } | Answer::Error(_) => Ok(()),
            };
            checked?;
        }
        Ok(ask(action, |events| {
            let seq = seq_of(events, |event| matches!(event.data, Data::Resolution(_)));
            Reply::Resolved { seq }
        }))
    }

    fn cancel(&self) -> Ask {
        let partial = self.stream.partial();
        ask(Action::Cancel(command::Cancel { partial }), |events| {
            let ended = |event: &Event| matches!(event.data, Data::TurnEnded(_));
            Reply::Cancelled { cancelled: events.iter().any(ended) }
        })
    }

    async fn delete(&mut self, repeats: &[RepeatKey]) -> Result<Reply, Failure> {
        if !self.state.exists() {
            return Err(abide_conversation::Rejection::NotFound.into());
        }
        let answer = self.remember(repeats, &Reply::Deleted).pop();
        self.deps.journal.delete(&self.id, &self.held, answer).await?;
        // The claim went with it; what comes next may create the conversation anew.
        self.held = self.deps.journal.claim(&self.id, &self.deps.me, None).await?;
        self.running.clear();
        self.state = Default::default();
        self.cached_seq = 0;
        self.stream = Default::default();
        self.deps.live.publish(&self.id, crate::live::Signal::Deleted);
        Ok(Reply::Deleted)
    }

    async fn dispatch(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        request: DispatchRequest,
        repeats: &[RepeatKey],
        reply: ReplyPort,
    ) -> Result<(), Death> {
        match self.joins(repeats) {
            Ok(Some(call)) => {
                self.dispatched.entry(call).or_default().push(reply);
                return Ok(());
            }
            Ok(None) => {}
            Err(failure) => {
                let _ = reply.send(Answered::Failed(failure));
                return Ok(());
            }
        }
        let begun = match self.begin_dispatch(request, repeats).await {
            Ok((call, events)) => {
                self.dispatched.entry(call.clone()).or_default().push(reply);
                let committed = self.commit(myself, events, Vec::new()).await;
                committed.map_err(|refusal| (self.dispatched.remove(&call), refusal))
            }
            Err(failure) => {
                let _ = reply.send(Answered::Failed(failure));
                return Ok(());
            }
        };
        begun.map_err(|(waiting, refusal)| {
            for reply in waiting.unwrap_or_default() {
                let _ = reply.send(Answered::Failed(refusal.clone().into()));
            }
            refusal.into()
        })
    }

    /// The running call that a repeated request means.
    fn joins(&self, repeats: &[RepeatKey]) -> Result<Option<CallId>, Failure> {
        for (id, run) in &self.state.dispatches {
            for repeat in repeats {
                match run.requests.get(&repeat.key) {
                    Some(fingerprint) if *fingerprint == repeat.fingerprint => {
                        return Ok(Some(id.clone()));
                    }
                    Some(_) => return Err(Failure::KeyReused(repeat.field)),
                    None => {}
                }
            }
        }
        Ok(None)
    }

    async fn begin_dispatch(
        &self,
        request: DispatchRequest,
        repeats: &[RepeatKey],
    ) -> Result<(CallId, Vec<Event>), Failure> {
        let DispatchRequest { tool, input, approved, principal } = request;
        let agent = self.state.agent.clone().ok_or(abide_conversation::Rejection::NotFound)?;
        let definition = self.newest(&agent).await?;
        let toolbox = self.box_of(definition.clone());
        let found = toolbox.dispatchable(&tool).ok_or(Failure::ToolNotFound(tool))?;
        let invalid = |why| Failure::invalid("input", why);
        toolbox.check_args(found, &input).map_err(invalid)?;
        let scope = Scope {
            conversation: self.id.clone(),
            principal: principal.clone(),
            assigns: merged(&definition.assigns, &self.state.assigns, &Default::default()),
            metadata: self.state.metadata.clone(),
        };
        if !approved && toolbox.gated(found, &input, &scope) {
            return Err(Failure::ApprovalRequired(found.name.clone()));
        }
        let call = CallId::new(self.deps.clock.id("call"));
        let requests: BTreeMap<_, _> =
            repeats.iter().map(|repeat| (repeat.key.clone(), repeat.fingerprint.clone())).collect();
        let action = Action::Dispatch(command::Dispatch {
            call: call.clone(),
            tool: found.name.clone(),
            input,
            principal,
            revision: definition.revision.clone(),
            on_interrupt: found.on_interrupt,
            requests,
        });
        Ok((call, decide(&self.state, self.command(action))?))
    }

    async fn newest(&self, name: &AgentName) -> Result<Arc<Definition>, Failure> {
        let newest = self.deps.agents.newest(name).await?;
        newest.ok_or_else(|| Failure::AgentMissing(name.clone()))
    }

    /// The tools of the open turn; `None` when no turn is open or its revision is gone.
    async fn toolbox(&self) -> Result<Option<Toolbox>, Refusal> {
        let Some(turn) = &self.state.turn else { return Ok(None) };
        let definition = self.deps.agents.revision(&turn.revision).await?;
        Ok(definition.map(|definition| self.box_of(definition)))
    }

    fn box_of(&self, definition: Arc<Definition>) -> Toolbox {
        // They were checked when the conversation was created.
        let own = agent::client_tools(&self.state.tools).unwrap_or_default();
        Toolbox::new(definition, own)
    }
}

fn ask(action: Action, reply: impl FnOnce(&[Event]) -> Reply + Send + 'static) -> Ask {
    Ask { action, reply: Box::new(reply) }
}
