//! Approvals that several people must give.

use std::sync::Arc;

use serde_json::{Value, json};

use super::remembered::remembering;
use super::scenario::*;
use super::voters::*;
use crate::approval::{ApprovalPolicy, DenyRule, Party, VoteRefusal};
use crate::command::{Action, IfBusy, Resolve};
use crate::event::{Event, EventData};
use crate::identity::{AuthMethod, Participants, Subject};
use crate::permission::Decision;
use crate::remembered_decision::Scope;
use crate::state::CallPhase;
use crate::{CallId, Rejection, State, replay};

fn waiting_for(policy: ApprovalPolicy) -> Scenario {
    Scenario::with_calls(vec![with_policy(gated("a"), policy)])
}

fn yes(sub: &str) -> Action {
    voted_by(sub, approve("a", None))
}

fn no(sub: &str) -> Action {
    voted_by(sub, deny("a", None))
}

fn refused(because: VoteRefusal) -> Applied {
    Err(Rejection::VoteRefused(because))
}

/// The one event of this type.
fn data(scenario: &Scenario, of: &str) -> Value {
    let mut events = scenario.journal.iter().filter(|event| kind(event) == of);
    let event = events.next().unwrap();
    assert_eq!(events.next(), None);
    serde_json::to_value(event).unwrap()["data"].clone()
}

#[test]
fn two_of_three_approve_a_call_and_the_last_of_them_answers_it() {
    let mut scenario = waiting_for(two_of_three());
    assert_eq!(scenario.apply(yes("ada")), Ok(vec!["voted"]));
    let by = json!({"iss": "https://login.example.com/", "sub": "ada", "roles": ["approver"],
        "auth": "jwt", "at": "2027-01-15T08:00:00.000Z"});
    assert_eq!(
        data(&scenario, "voted"),
        json!({"call_id": "a", "suspension": 1, "by": by, "approved": true,
            "args_fingerprint": "0123456789abcdef"})
    );
    let pending = serde_json::to_value(&scenario.state.pending_calls()[0]).unwrap();
    assert_eq!(
        pending["votes"],
        json!([{"by": "ada", "iss": "https://login.example.com/",
        "approved": true, "at": "2027-01-15T08:00:00.000Z"}])
    );
    assert_eq!((&pending["needed"], &pending["policy"]["quorum"]), (&json!(2), &json!(2)));
    assert_eq!(scenario.apply(yes("ada")), refused(VoteRefusal::Voted));
    assert_eq!(scenario.apply(no("ada")), refused(VoteRefusal::Voted));
    scenario.advance(1_000);
    assert_eq!(scenario.apply(yes("cy")), Ok(vec!["resolution", "tool_started"]));
    let approvals = json!([
        {"iss": "https://login.example.com/", "sub": "ada", "at": "2027-01-15T08:00:00.000Z"},
        {"iss": "https://login.example.com/", "sub": "cy", "at": "2027-01-15T08:00:01.000Z"},
    ]);
    let resolution = data(&scenario, "resolution");
    assert_eq!((&resolution["by"], &resolution["approvals"]), (&json!("cy"), &approvals));
    let call = scenario.state.call(&CallId::new("a")).unwrap();
    assert_eq!(json!(call.approvals), approvals);
    assert_eq!(call.principal.as_str(), "cy", "it runs as the last approver");
    assert!(not_open(scenario.apply(yes("bob"))));
}

#[test]
fn every_journal_of_two_votes_cut_anywhere_goes_on_to_the_same_end() {
    let mut scenario = waiting_for(two_of_three());
    scenario.then(voted_by("ada", approve_with("a", json!({"n": 2})))).then(yes("bob"));
    scenario.then(returned("a", 1)).reply(Vec::new()).unwrap();
    let whole = scenario.journal;
    for cut in 0..=whole.len() {
        let state = replay(State::default(), &whole[..cut]);
        let mut rest = Scenario { state, journal: whole[..cut].to_vec(), at: scenario.at };
        match cut {
            0 | 1 => rest.then(send("turn_1")),
            2 => rest.then(start("turn_1")),
            _ => rest.then(Action::Revive),
        };
        for _ in 0..10 {
            let Some(turn) = rest.state.turn.clone() else { break };
            let action = match turn.calls.first().map(|call| (&call.phase, call.next_attempt())) {
                None if cut < 4 => rest.model_reply(vec![with_policy(gated("a"), two_of_three())]),
                None | Some((CallPhase::Done, _)) => rest.model_reply(Vec::new()),
                Some((CallPhase::Running { attempt, .. }, _)) => returned("a", attempt.get()),
                Some((CallPhase::Suspended(open), _)) => {
                    let votes = &open.approval.as_ref().unwrap().votes;
                    let has_voted =
                        |sub: &&str| votes.iter().any(|vote| vote.by.subject() == subject_id(sub));
                    yes(VOTERS.into_iter().find(|sub| !has_voted(sub)).unwrap())
                }
                // The journal was cut between the events of one commit.
                Some((CallPhase::Requested | CallPhase::Approved, _)) => Action::Revive,
                Some((CallPhase::AwaitingRetry { .. }, _)) => Action::Wake,
                Some((CallPhase::Delegated { .. } | CallPhase::External(_), _)) => {
                    unreachable!("it has no child, and runs here")
                }
            };
            rest.then(action);
        }
        assert!(rest.state.turn.is_none(), "cut after {cut}");
        let approved = rest.journal.iter().filter_map(|event| match &event.data {
            EventData::Resolution(resolution) => Some(resolution.approvals.len()),
            _ => None,
        });
        let is_resolved = approved.collect::<Vec<_>>();
        let was_interrupted = rest.result("a").is_some_and(|result| !result.outcome.is_ok());
        assert!(is_resolved == [2] || was_interrupted, "cut after {cut}: {is_resolved:?}");
    }
}

#[test]
fn edited_arguments_begin_the_count_anew() {
    let mut scenario = waiting_for(two_of_three());
    scenario.then(yes("ada"));
    let edit = |sub: &str, n: u32| voted_by(sub, approve_with("a", json!({"n": n})));
    assert_eq!(scenario.apply(edit("bob", 2)), Ok(vec!["voted"]));
    let pending = &scenario.state.pending_calls()[0];
    assert_eq!(pending.args, json!({"n": 2}));
    assert_eq!(pending.original_args, Some(json!({"n": 1}).into()));
    assert_eq!(pending.votes.as_ref().unwrap().len(), 1);
    let call = scenario.state.call(&CallId::new("a")).unwrap();
    assert_eq!(call.args, json!({"n": 1}), "the call has other arguments when they are approved");
    // The same arguments are no edit, and whoever edits may have voted before.
    assert_eq!(scenario.apply(edit("bob", 2)), refused(VoteRefusal::Voted));
    assert_eq!(scenario.apply(edit("bob", 3)), Ok(vec!["voted"]));
    assert_eq!(scenario.apply(yes("ada")), Ok(vec!["resolution", "tool_started"]));
    let call = scenario.state.call(&CallId::new("a")).unwrap();
    assert_eq!(call.args, json!({"n": 3}), "a vote without arguments is for those edited last");
    assert!(call.permit().is_some_and(|gate| gate.decision == Decision::Allow));
    let resolution = data(&scenario, "resolution");
    assert_eq!(resolution["args"], json!({"n": 3}), "older programs read them here");
}

#[test]
fn arguments_that_the_gate_refuses_end_the_call_at_once() {
    let mut scenario = waiting_for(two_of_three());
    let edit = match voted_by("ada", approve_with("a", json!({"n": 2}))) {
        Action::Resolve(resolve) => {
            Action::Resolve(Resolve { verdict: Some(verdict(Decision::Deny)), ..resolve })
        }
        other => other,
    };
    assert_eq!(scenario.apply(edit), Ok(vec!["resolution", "tool_result"]));
    assert_eq!(scenario.error("a")[1], "PERMISSION_DENIED");
}

#[test]
fn one_denial_ends_it_unless_the_policy_asks_a_quorum_of_them() {
    let mut scenario = waiting_for(two_of_three());
    assert_eq!(scenario.apply(no("ada")), Ok(vec!["resolution", "tool_result"]));
    assert_eq!(scenario.error("a")[1], "DENIED");
    let mut scenario = waiting_for(ApprovalPolicy { deny: DenyRule::Quorum, ..two_of_three() });
    assert_eq!(scenario.apply(no("ada")), Ok(vec!["voted"]));
    assert_eq!(scenario.apply(yes("bob")), Ok(vec!["voted"]));
    assert_eq!(scenario.apply(no("cy")), Ok(vec!["resolution", "tool_result"]));
    let resolution = data(&scenario, "resolution");
    assert_eq!((&resolution["by"], resolution.get("approvals")), (&json!("cy"), None));
}

#[test]
fn a_credential_that_was_revoked_takes_its_vote_along() {
    let revoking = |sub: &str, action: Action| match action {
        Action::Resolve(resolve) => {
            Action::Resolve(Resolve { revoked: [subject_id(sub)].into(), ..resolve })
        }
        other => other,
    };
    let mut scenario = waiting_for(two_of_three());
    scenario.then(yes("ada"));
    assert_eq!(scenario.apply(revoking("ada", yes("bob"))), Ok(vec!["voted"]));
    // Ada has another credential.
    assert_eq!(scenario.apply(revoking("ada", yes("ada"))), Ok(vec!["resolution", "tool_started"]));
    let subs: Vec<Value> = data(&scenario, "resolution")["approvals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|approver| approver["sub"].clone())
        .collect();
    assert_eq!(subs, ["bob", "ada"]);
}

fn sent_by(identity: crate::identity::Identity) -> Action {
    let mut sent = message("turn_1", IfBusy::Reject);
    sent.identity = Some(Arc::new(identity));
    Action::Send(sent)
}

#[test]
fn nobody_approves_what_they_or_those_they_act_for_have_asked() {
    let gateway = |person: &str| {
        let mut gateway = identity("shop");
        gateway.auth = AuthMethod::Key;
        gateway.on_behalf_of = Some(Box::new(identity(person).subject));
        gateway
    };
    for (sender, requesters) in
        [(identity("ada"), &["ada"][..]), (gateway("bob"), &["bob", "shop"][..])]
    {
        let mut scenario = Scenario::empty();
        scenario.then(sent_by(sender));
        scenario.reply(vec![with_policy(gated("a"), ApprovalPolicy::default())]).unwrap();
        for sub in requesters {
            assert_eq!(scenario.apply(yes(sub)), refused(VoteRefusal::Requester), "{sub}");
        }
        assert_eq!(scenario.apply(yes("cy")), Ok(vec!["resolution", "tool_started"]));
    }
}

#[test]
fn the_requesters_of_a_parent_are_those_of_its_child() {
    let mut scenario = Scenario::empty();
    let mut first = message("turn_1", IfBusy::Reject);
    let requesters = [subject_id("ada")].into();
    let parent = crate::parent::Parent { requesters, ..parent() };
    first.create.as_mut().unwrap().parent = Some(Box::new(parent));
    first.identity = Some(Arc::new(identity("bob")));
    scenario.then(Action::Spawn(first));
    scenario.reply(vec![with_policy(gated("a"), ApprovalPolicy::default())]).unwrap();
    for sub in ["ada", "bob"] {
        assert_eq!(scenario.apply(yes(sub)), refused(VoteRefusal::Requester), "{sub}");
    }
    let shown = &scenario.state.pending_calls()[0].requesters;
    assert_eq!(*shown, [subject_id("ada"), subject_id("bob")].into());
    scenario.then(yes("cy"));
}

#[test]
fn the_owner_may_not_approve_where_the_policy_says_so() {
    let mut scenario = Scenario::empty();
    let mut first = message("turn_1", IfBusy::Reject);
    let owner = Some("ada".to_owned());
    first.create.as_mut().unwrap().participants = Participants { owner, members: Vec::new() };
    scenario.then(Action::Send(first));
    let policy = ApprovalPolicy { not: [Party::Owner].into(), ..ApprovalPolicy::default() };
    scenario.reply(vec![with_policy(gated("a"), policy)]).unwrap();
    assert_eq!(scenario.apply(yes("ada")), refused(VoteRefusal::Owner));
    scenario.then(yes("bob"));
}

#[test]
fn where_nobody_is_authenticated_the_first_answer_decides() {
    let mut scenario = waiting_for(two_of_three());
    assert_eq!(scenario.apply(approve("a", None)), Ok(vec!["resolution", "tool_started"]));
    let mut scenario = Scenario::with_calls(vec![gated("a")]);
    assert_eq!(scenario.apply(yes("ada")), Ok(vec!["resolution", "tool_started"]));
    assert_eq!(data(&scenario, "resolution").get("approvals"), None);
}

#[test]
fn a_decision_is_remembered_as_far_as_all_voters_want() {
    let mut scenario = waiting_for(two_of_three());
    scenario.then(remembering(yes("ada"), Scope::Agent, 1_000));
    let last = remembering(yes("bob"), Scope::Conversation, 9_000);
    assert_eq!(scenario.apply(last), Ok(vec!["resolution", "decision_remembered", "tool_started"]));
    let decision = scenario.state.decisions.values().next().unwrap();
    let voters: Vec<_> = decision.voters.iter().map(|voter| voter.subject.clone()).collect();
    assert_eq!(voters, [subject_id("ada"), subject_id("bob")]);
    assert_eq!(decision.expires_at, scenario.after(1_000));
    assert!(scenario.state.unpublished.is_empty(), "the scope is the conversation");
    for (requester, quorum, covers) in [("cy", 2, true), ("cy", 3, false), ("bob", 2, false)] {
        assert_eq!(decision.covers(&[subject_id(requester)].into(), quorum), covers);
    }
    assert!(decision.covers(&Default::default(), 3), "nobody is authenticated");
    let mut scenario = waiting_for(two_of_three());
    scenario.then(yes("ada")).then(remembering(yes("bob"), Scope::Conversation, 1_000));
    assert!(scenario.state.decisions.is_empty(), "one of them did not want it");
}

#[test]
fn votes_end_with_their_suspension() {
    let mut scenario = waiting_for(two_of_three());
    scenario.then(yes("ada")).advance(TIMEOUT_MS).then(Action::Wake);
    assert_eq!(scenario.error("a")[1], "EXPIRED");
    assert!(not_open(scenario.apply(yes("bob"))));
    assert_eq!(scenario.state.pending_calls(), []);
}

#[test]
fn a_dispatch_keeps_whose_it_is() {
    let mut scenario = Scenario::with_turn();
    let Action::Dispatch(dispatch) = super::dispatch::dispatch("d", Default::default()) else {
        unreachable!()
    };
    let identity = Some(Arc::new(identity("ada")));
    let dispatch = crate::command::Dispatch { identity: identity.clone(), ..dispatch };
    scenario.then(Action::Dispatch(dispatch)).then(Action::Revive);
    assert_eq!(scenario.state.dispatches[&CallId::new("d")].identity, identity);
}

/// A subject is known by its issuer, too.
#[test]
fn a_namesake_of_another_issuer_is_somebody_else() {
    let mut scenario = waiting_for(two_of_three());
    scenario.then(yes("ada"));
    let namesake = match yes("ada") {
        Action::Resolve(resolve) => {
            let mut identity = identity("ada");
            let iss = "https://elsewhere.example.com/".to_owned();
            identity.subject = Subject { iss, ..identity.subject };
            Action::Resolve(Resolve { identity: Some(Arc::new(identity)), ..resolve })
        }
        other => other,
    };
    scenario.then(namesake);
    let started = |event: &Event| matches!(event.data, EventData::ToolStarted(_));
    assert!(scenario.journal.iter().any(started));
}
