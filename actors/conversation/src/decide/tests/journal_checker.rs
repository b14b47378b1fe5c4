//! Checks a whole journal against `reference/semantics.md` and `reference/journal.md` alone,
//! without folding it.

use std::collections::{BTreeMap, BTreeSet};

use crate::approval::SubjectId;
use crate::event::{
    AssistantMsg, DecisionRemembered, DispatchFinished, DispatchStarted, Event, EventData,
    Resolution, Summarized, Suspension, SuspensionKind, ToolResult, ToolStarted, Voted,
};
use crate::message::{ErrorType, Outcome};
use crate::permission::Decision;
use crate::remembered_decision::Scope;
use crate::{Attempt, CallId, ConversationId, DecisionId, Seq, Timestamp, TurnId};

#[derive(Default)]
struct CallRecord {
    open: Option<(SuspensionKind, u32)>,
    suspensions: u32,
    approvals: u32,
    /// How many must approve, where that is asked of those who answer.
    quorum: Option<u32>,
    /// Those who voted on the arguments as they are.
    voters: BTreeSet<SubjectId>,
    denied: bool,
    last_attempt: Option<Attempt>,
    /// When the open suspension expires.
    expires_at: Option<Timestamp>,
    done: bool,
    /// Whether a worker has it, or it waits for a callback.
    is_outside: bool,
}

#[derive(Default)]
pub(super) struct JournalChecker {
    seq: Seq,
    calls: BTreeMap<CallId, CallRecord>,
    dispatches: BTreeMap<CallId, bool>,
    waiting_turns: BTreeSet<TurnId>,
    open_turn: Option<TurnId>,
    ended: BTreeSet<TurnId>,
    /// Children that need attention: those of open calls, and those that must be stopped.
    children: BTreeSet<ConversationId>,
    owed_report: Option<TurnId>,
    is_child: bool,
    /// Whether the events are a prefix of another conversation's.
    is_copying: bool,
    /// Decisions that are not published to the agent yet.
    unpublished: BTreeSet<DecisionId>,
    /// The last event that a summary covers.
    covered: Seq,
}

impl JournalChecker {
    /// Checks a journal that may go on.
    pub(super) fn check(journal: &[Event]) -> Self {
        let mut checker = Self::default();
        journal.iter().for_each(|event| checker.check_event(event));
        checker
    }

    /// Asserts that nothing is open in a fork, whose children and decisions are the original's.
    pub(super) fn assert_all_ended(&self) {
        assert!(self.open_turn.is_none() && self.waiting_turns.is_empty(), "every turn ended");
        assert!(self.calls.values().all(|record| record.done), "every call has its result");
        assert!(self.dispatches.values().all(|done| *done), "every dispatch has its result");
    }

    /// Asserts that nothing is left to do.
    pub(super) fn assert_nothing_left(&self) {
        assert!(self.open_turn.is_none() && self.waiting_turns.is_empty(), "every turn ended");
        assert!(self.calls.values().all(|record| record.done), "every call has its result");
        assert!(self.dispatches.values().all(|done| *done), "every dispatch has its result");
        assert!(self.children.is_empty(), "every child ended or was stopped");
        assert!(self.owed_report.is_none(), "the parent has its report");
        assert!(self.unpublished.is_empty(), "the agent has its decisions");
    }

    fn check_event(&mut self, event: &Event) {
        self.seq = self.seq.next();
        assert_eq!(event.seq, self.seq, "seq has no gap");
        match &event.data {
            EventData::Created(created) => {
                assert_eq!(event.seq, Seq::FIRST, "it is created once, first");
                self.is_child = created.parent.is_some();
                self.is_copying = created.fork.is_some();
            }
            EventData::UserMsg(_) => {
                assert!(self.waiting_turns.insert(event.turn_id.clone().unwrap()));
            }
            EventData::TurnStarted(_) => self.check_turn_start(event),
            EventData::TurnEnded(_) => self.check_turn_end(event),
            EventData::AssistantMsg(spoken) => self.check_assistant_msg(event, spoken),
            EventData::RepairRequested(_)
            | EventData::ContextAdded(_)
            | EventData::ContextReduced(_) => self.assert_in_turn(event),
            EventData::Summarized(summarized) => self.check_summary(event, summarized),
            EventData::Forked(_) => {
                assert_eq!(event.turn_id, None);
                self.is_copying = false;
            }
            EventData::SummaryFailed(_) => assert_eq!(event.turn_id, None),
            EventData::MessageRefused(_) => {
                self.assert_in_turn(event);
                assert!(self.all_calls_done(), "no model request has a call without its result");
            }
            EventData::InputRequired(required) => {
                let record = self.call_record(event, &required.call_id);
                assert_eq!(record.open, None, "it asks for input while it runs");
            }
            EventData::DecisionRemembered(remembered) => {
                self.check_remembered_decision(event, remembered);
            }
            EventData::DecisionPublished(published) => {
                assert!(self.unpublished.remove(&published.decision_id))
            }
            EventData::DecisionRevoked(revoked) => {
                let is_unpublished = self.unpublished.contains(&revoked.decision_id);
                assert!(!is_unpublished, "a decision about to be published is not revoked here");
            }
            EventData::DispatchStarted(started) => self.check_dispatch_start(event, started),
            EventData::DispatchFinished(done) => self.check_dispatch_end(done),
            EventData::ToolCall(call) => drop(self.call_record(event, &call.call_id)),
            EventData::ChildStarted(started) => {
                self.children.insert(started.conversation_id.clone());
            }
            EventData::ChildEnded(ended) => {
                self.children.remove(&ended.conversation_id);
            }
            EventData::ChildReleased(released) => {
                self.children.remove(&released.conversation_id);
            }
            // The report of the original, which is a child.
            EventData::ParentNotified(_) if self.is_copying => {}
            EventData::ParentNotified(notified) => {
                assert_eq!(self.owed_report.take().as_ref(), Some(&notified.turn_id))
            }
            EventData::Abandoned {} => (self.owed_report, self.is_child) = (None, false),
            EventData::Updated(updated) => {
                assert!(updated.metadata.is_some() || updated.members.is_some());
            }
            EventData::PhaseChanged(_)
            | EventData::TodosChanged(_)
            | EventData::WorkspaceOpened(_)
            | EventData::ToolAttemptFailed(_)
            | EventData::Operated(_)
            | EventData::ToolLeased(_)
            | EventData::MessageScheduled(_)
            | EventData::ScheduleEnded(_)
            | EventData::SuspensionExpiring(_)
            | EventData::SuspensionEscalated(_) => {}
            EventData::TurnWithdrawn(_) => {
                let turn = event.turn_id.as_ref().unwrap();
                assert!(self.waiting_turns.remove(turn), "a turn is withdrawn while it waits");
            }
            EventData::Steered(_) => self.assert_in_turn(event),
            EventData::Rewound(rewound) => {
                assert!(self.open_turn.is_none() && self.waiting_turns.is_empty(), "it is at rest");
                let summary = rewound.point.context.summary;
                self.covered = summary.map_or(Seq::ZERO, |summary| summary.upto);
            }
            EventData::StateChanged(changed) => assert!(!changed.changes.is_empty()),
            EventData::ToolQueued(queued) => {
                self.call_record(event, &queued.call_id).is_outside = true;
            }
            EventData::CallbackAwaited(awaited) => {
                self.call_record(event, &awaited.call_id).is_outside = true;
            }
            EventData::Unknown(unknown) => panic!("no command leads to this: {unknown:?}"),
            EventData::SuspensionExtended(extended) => {
                let record = self.call_record(event, &extended.call_id);
                let is_open = record.open.is_some_and(|(_, number)| number == extended.suspension);
                let before = record.expires_at.replace(extended.expires_at);
                assert!(is_open && before < Some(extended.expires_at), "it waits longer");
                assert!(before > Some(event.at), "an expired suspension is not extended");
            }
            EventData::Suspension(suspension) => self.check_suspension(event, suspension),
            EventData::Voted(voted) => self.check_vote(event, voted),
            EventData::Resolution(resolution) => self.check_resolution(event, resolution),
            EventData::ToolStarted(started) => self.check_tool_start(event, started),
            EventData::ToolResult(result) => self.check_tool_result(event, result),
        }
    }

    fn check_turn_start(&mut self, event: &Event) {
        let turn = event.turn_id.clone().unwrap();
        assert!(self.waiting_turns.remove(&turn), "it has one message, and starts once");
        assert_eq!(self.open_turn.replace(turn), None, "one turn at a time");
    }

    fn check_turn_end(&mut self, event: &Event) {
        self.assert_in_turn(event);
        assert!(self.all_calls_done(), "a turn ends after its calls");
        let turn = self.open_turn.take().unwrap();
        if self.is_child && self.ended.is_empty() {
            self.owed_report = Some(turn.clone());
        }
        assert!(self.ended.insert(turn), "a turn ends once");
    }

    fn check_assistant_msg(&mut self, event: &Event, spoken: &AssistantMsg) {
        self.assert_in_turn(event);
        assert!(self.all_calls_done(), "no model request has a call without its result");
        for named in &spoken.message.tool_calls {
            assert!(!self.dispatches.contains_key(&named.id), "an id of a dispatch is not reused");
            let before = self.calls.insert(named.id.clone(), CallRecord::default());
            assert!(before.is_none(), "an id is used once: {}", named.id);
        }
    }

    fn check_summary(&mut self, event: &Event, summarized: &Summarized) {
        let Summarized { upto, .. } = summarized;
        assert!(*upto > self.covered && *upto < event.seq, "summaries only grow");
        self.covered = *upto;
    }

    fn check_remembered_decision(&mut self, event: &Event, remembered: &DecisionRemembered) {
        self.call_record(event, &remembered.call_id);
        if remembered.scope == Scope::Agent {
            self.unpublished.insert(remembered.decision.id.clone());
        }
    }

    fn check_dispatch_start(&mut self, event: &Event, started: &DispatchStarted) {
        assert_eq!(event.turn_id, None);
        let done = self.dispatches.insert(started.call_id.clone(), false);
        assert_eq!(done, (started.attempt > Attempt::FIRST).then_some(false));
    }

    fn check_dispatch_end(&mut self, done: &DispatchFinished) {
        let before = self.dispatches.insert(done.call_id.clone(), true);
        let refused = done.verdict.is_some();
        assert_eq!(before, (!refused).then_some(false), "a dispatch ends once");
    }

    fn check_suspension(&mut self, event: &Event, suspension: &Suspension) {
        let record = self.call_record(event, &suspension.call_id);
        record.suspensions += 1;
        assert_eq!(suspension.suspension, record.suspensions);
        let opened = record.open.replace((suspension.kind, suspension.suspension));
        assert_eq!(opened, None, "one suspension at a time");
        assert!(suspension.expires_at >= event.at);
        record.expires_at = Some(suspension.expires_at);
        record.quorum = suspension.policy.as_ref().map(|policy| policy.quorum);
    }

    fn check_vote(&mut self, event: &Event, voted: &Voted) {
        let record = self.call_record(event, &voted.call_id);
        assert_eq!(record.open, Some((SuspensionKind::Approval, voted.suspension)));
        if voted.args.is_some() {
            record.voters.clear();
        }
        assert!(record.voters.insert(voted.vote.by.subject()), "a subject votes once");
        let voters = u32::try_from(record.voters.len()).unwrap();
        assert!(record.quorum.is_some_and(|quorum| voters < quorum), "the last vote decides");
    }

    fn check_resolution(&mut self, event: &Event, resolution: &Resolution) {
        let record = self.call_record(event, &resolution.call_id);
        let closed = record.open.take();
        assert_eq!(closed, Some((resolution.kind, resolution.suspension)), "closed once");
        let is_denied =
            resolution.verdict.as_ref().is_some_and(|gate| gate.decision == Decision::Deny);
        if let (Some(quorum), Some(by), Some(true), false) =
            (record.quorum, &resolution.identity, resolution.approved, is_denied)
        {
            let mut voters: BTreeSet<_> =
                resolution.approvals.iter().map(|approver| approver.subject.clone()).collect();
            assert_eq!(voters.len(), resolution.approvals.len(), "each approves once");
            assert_eq!(u32::try_from(voters.len()).unwrap(), quorum, "no fewer, and no more");
            assert!(voters.remove(&by.acting().into()), "the last one decides");
            assert!(voters.is_subset(&record.voters), "the others have voted");
        }
        record.approvals += u32::from(resolution.approved == Some(true));
        record.denied = resolution.approved == Some(false);
        assert!(record.approvals <= 1, "one approval is enough");
    }

    fn check_tool_start(&mut self, event: &Event, started: &ToolStarted) {
        let record = self.call_record(event, &started.call_id);
        assert!(record.open.is_none() && !record.denied, "nothing runs after a denial");
        assert!(Some(started.attempt) > record.last_attempt, "attempts grow");
        record.last_attempt = Some(started.attempt);
    }

    fn check_tool_result(&mut self, event: &Event, result: &ToolResult) {
        let record = self.call_record(event, &result.call_id);
        record.done = true;
        let closed = record.open.take();
        match &result.outcome {
            Outcome::Err(_, ErrorType::Expired | ErrorType::NoClient) => {
                assert!(
                    closed.is_some() || record.is_outside,
                    "only a suspension and what a program outside has expire"
                );
            }
            Outcome::Err(_, ErrorType::Cancelled) => {}
            // The tool says what becomes of a call that expires.
            Outcome::Ok(_) | Outcome::Err(_, ErrorType::Denied)
                if closed.is_some() && record.expires_at.is_some_and(|at| at <= event.at) => {}
            Outcome::Ok(_) | Outcome::Err(..) => {
                assert_eq!(closed, None, "no result leaves a suspension open");
            }
        }
    }

    fn assert_in_turn(&self, event: &Event) {
        assert!(event.turn_id.is_some());
        assert_eq!(event.turn_id, self.open_turn, "it belongs to the open turn");
    }

    fn all_calls_done(&self) -> bool {
        self.calls.values().all(|record| record.done)
    }

    fn call_record(&mut self, event: &Event, call: &CallId) -> &mut CallRecord {
        self.assert_in_turn(event);
        let record = self.calls.get_mut(call).expect("an assistant message has the call");
        assert!(!record.done, "a call has one result, and nothing after it");
        record
    }
}
