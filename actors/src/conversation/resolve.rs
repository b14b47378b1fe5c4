//! A resolution of a suspended call: checked, edited by hooks, and remembered if asked for.

use std::collections::BTreeSet;
use std::sync::Arc;

use abide_conversation::approval::{SubjectId, Vote};
use abide_conversation::command::{self, ResolutionAnswer};
use abide_conversation::event::{EventData, Voted};
use abide_conversation::ids::{CallId, DecisionId};
use abide_conversation::remembered_decision::{Extent, Scope};
use abide_conversation::{Action, Seq, State, check_resolution};

use super::ask_hooks::edited_args;
use super::not_done::NotDone;
use super::requests::{Proposal, propose};
use super::{HookVerdict, LiveConversation, seq_of, with_store_timeout};
use crate::access::{Access, AccessError};
use crate::blobs::{self, BlobHold, TenantBlobs};
use crate::definition::Tool;
use crate::request::{RememberRequest, Reply, RequestError, ResolveRequest};
use crate::tools::gate::exact_fingerprint;
use crate::tools::mcp;

/// The decisions that one conversation remembers. Each is read with every gated call.
const MAX_DECISIONS: usize = 256;

impl LiveConversation {
    /// Checks a resolution. The call must be open before the answer is looked at, so that a stale
    /// one is refused as stale.
    pub(super) async fn resolve(
        &mut self,
        request: ResolveRequest,
        hook_verdict: Option<HookVerdict>,
        access: &Access,
    ) -> Result<Proposal, NotDone> {
        let edit = edited_args(&request.answer).is_some().then(|| request.clone());
        let ResolveRequest { call, suspension, by, answer, remember } = request;
        self.check_answer(&call, access)?;
        let revoked = self.revoked_voters(&call).await?;
        let mut resolve = command::Resolve {
            call: call.clone(),
            suspension,
            by,
            identity: access.identity().cloned().map(Arc::new),
            mfa_at: access.mfa_at(),
            answer,
            args_fingerprint: String::new(),
            revoked,
            verdict: None,
            remember: None,
            halt: None,
        };
        check_resolution(&self.state, self.services.clock.now(), &resolve)?;
        let open = self.state.call(&call).map(|open| open.tool.clone());
        let toolbox = self.toolbox().await?;
        if let Some(wish) = remember {
            let tool = open.as_deref().zip(toolbox.as_ref());
            let tool = tool.and_then(|(name, toolbox)| toolbox.tool(name));
            if wish.scope == Scope::Agent {
                access.check_agent_decision()?;
            }
            self.check_may_remember(&call, tool, wish.scope)?;
            let tool_digest = tool.map(Tool::action_fingerprint).unwrap_or_default();
            let RememberRequest { scope, matching, for_ms } = wish;
            let id = DecisionId::new(self.services.clock.id("dec"));
            let extent = Extent { scope, matching, for_ms };
            resolve.remember = Some(command::RememberDecision { id, extent, tool_digest });
        }
        if let (Some(toolbox), Some(tool)) = (toolbox, open) {
            if let ResolutionAnswer::Result(value) = &resolve.answer {
                // A running tool's request for input says itself which answers fit.
                let pending = self.state.call(&call).and_then(|open| open.pending_input.as_ref());
                let checked = match pending.filter(|input| input.answer.is_none()) {
                    Some(input) => mcp::check_answer(&input.request.requests, value).await,
                    None => toolbox.check_answer(&tool, value).await,
                };
                checked.map_err(|why| RequestError::invalid("result", why))?;
            }
            if let ResolutionAnswer::Result(value) = &mut resolve.answer {
                let hold = BlobHold::of_conversation(&self.id, self.services.clock.now());
                let blobs = TenantBlobs::new(&*self.services.blobs, &self.id).holding(&hold);
                // Boxed, like the next: an approval that edits nothing needs neither.
                Box::pin(with_store_timeout(blobs::extract_media(blobs, value))).await?;
            }
            if let Some(edit) = edit {
                let judged = self.judge_edited_args(&toolbox, &mut resolve, edit, hook_verdict);
                Box::pin(judged).await?;
            }
        }
        resolve.args_fingerprint = self.fingerprint_to_approve(&call, &resolve);
        let (before, revoked) = (self.state.clone(), resolve.revoked.clone());
        Ok(propose(Action::Resolve(resolve), move |events| {
            let recorded = events.iter().find_map(|event| match &event.data {
                EventData::Voted(voted) => recorded(&before, &revoked, voted, event.seq),
                _ => None,
            });
            let seq = seq_of(events, |event| matches!(event.data, EventData::Resolution(_)));
            recorded.unwrap_or(Reply::Resolved { seq })
        }))
    }

    /// Those who have voted on the call with a credential that was revoked since.
    async fn revoked_voters(&self, call: &CallId) -> Result<BTreeSet<SubjectId>, RequestError> {
        let mut revoked = BTreeSet::new();
        let open = self.state.call(call).and_then(|call| call.open_suspension());
        for vote in open.and_then(|open| open.approval.as_ref()).iter().flat_map(|it| &it.votes) {
            let asked = self.services.credentials.is_revoked(&vote.by.identity).await;
            if asked.map_err(|error| RequestError::Unavailable(error.to_string()))? {
                revoked.insert(vote.by.subject());
            }
        }
        Ok(revoked)
    }

    /// Whether the caller may answer the call, if it waits for an answer. Who may answer any call of the
    /// conversation learns that this one does not wait: somebody was first.
    pub(super) fn check_answer(&self, call: &CallId, access: &Access) -> Result<(), AccessError> {
        let State { participants, created_at, .. } = &*self.state;
        let known = self.state.call(call);
        let Some(open) = known.and_then(|call| call.open_suspension()) else { return Ok(()) };
        access.check_answer(participants, *created_at, (call, open.suspension, open.kind))
    }

    /// The fingerprint of the arguments that an answer is about, which an `exact` decision matches;
    /// empty for an answer that is neither a vote nor remembered.
    fn fingerprint_to_approve(&self, call: &CallId, resolve: &command::Resolve) -> String {
        let Some(open) = self.state.call(call) else { return String::new() };
        let is_vote = open.open_suspension().is_some_and(|open| open.approval.is_some());
        if !is_vote && resolve.remember.is_none() {
            return String::new();
        }
        let args = match &resolve.answer {
            ResolutionAnswer::Approval { args: Some(edited), .. } => edited,
            ResolutionAnswer::Approval { .. }
            | ResolutionAnswer::Result(_)
            | ResolutionAnswer::Error(_)
            | ResolutionAnswer::Retry => open.args_to_approve(),
        };
        exact_fingerprint(&open.tool, args)
    }

    /// Checks that the decision may be remembered: only a tool's own approval, unless it is strict.
    fn check_may_remember(
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
            (Some(tool), _) if scope == Scope::Agent && self.declared_tools.has(&tool.name) => {
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
}

/// The reply to a vote that does not decide.
fn recorded(
    before: &State,
    revoked: &BTreeSet<SubjectId>,
    voted: &Voted,
    seq: Seq,
) -> Option<Reply> {
    let approval = before.call(&voted.call_id)?.open_suspension()?.approval.as_deref()?;
    let agrees = |vote: &&Vote| {
        vote.approved == voted.vote.approved && !revoked.contains(&vote.by.subject())
    };
    let earlier = match voted.args {
        Some(_) => 0,
        None => approval.votes.iter().filter(agrees).count(),
    };
    let votes = u32::try_from(earlier).unwrap_or(u32::MAX).saturating_add(1);
    Some(Reply::Recorded { votes, needed: approval.policy.quorum, seq })
}
