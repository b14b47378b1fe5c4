//! Tests of `locate`, `place` and `elsewhere`, one for each rule.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_actors::identity::{Incarnation, NodeName};
use abide_conversation::Timestamp;

use super::*;
use crate::member::{LinkState, ProcessId};
use crate::membership::ObservedMember;

fn holder(node: &str) -> Holder {
    Holder { node: NodeName::new(node), incarnation: Incarnation::new(format!("{node}-1")) }
}

fn member(node: &str, live_actors: usize) -> Member {
    Member {
        holder: holder(node),
        process: ProcessId::new(format!("{node}-p")),
        address: "127.0.0.1:7070".to_owned(),
        state: MemberState::Up,
        live_actors,
        version: String::new(),
        protocol_version: 1,
        handshake_version: 1,
        live_directory_version: 1,
        stored_form_version: 1,
        cookie: None,
        auth: None,
        ports: Vec::new(),
        since: Timestamp::UNIX_EPOCH,
        lease_ms: 5_000,
    }
}

/// Node `a` sees `a`, `b` and `c`, and is connected to both.
fn view() -> ClusterView {
    let members = [("a", 9), ("b", 5), ("c", 7)];
    let seen = |(node, live)| ObservedMember { member: member(node, live), silent_ms: 0 };
    let links = ["b-p", "c-p"].map(|process| (ProcessId::new(process), LinkState::Connected));
    ClusterView::new(holder("a"), members.map(seen).into(), Arc::new(BTreeMap::from(links)))
}

fn with_link(process: &str, link: LinkState) -> ClusterView {
    let mut view = view();
    Arc::make_mut(&mut view.links).insert(ProcessId::new(process), link);
    view
}

fn draining(nodes: &[&str]) -> ClusterView {
    let mut view = view();
    for seen in &mut view.members {
        if nodes.contains(&seen.member.holder.node.as_str()) {
            seen.member.state = MemberState::Draining;
        }
    }
    view
}

fn placed(policy: Policy, id: &str, view: &ClusterView) -> Option<String> {
    place(policy, &Scoped::parse(id).unwrap(), view).map(|member| member.holder.node.to_string())
}

fn located(holder: Option<&Holder>, view: &ClusterView) -> Decision {
    let rules = PlacementRules { policy: Policy::Local, only_here: false, draining: false };
    locate(&Scoped::parse("x").unwrap(), holder, None, view, rules)
}

#[test]
fn a_conversation_that_nobody_holds_is_placed() {
    assert_eq!(located(None, &view()), Decision::StartHere { replacing: None });
    let Decision::PlaceOn(member) = located(None, &draining(&["a"])) else { panic!("not placed") };
    assert_ne!(member.holder.node.as_str(), "a");
}

#[test]
fn what_this_node_holds_is_here() {
    let decision = located(Some(&holder("a")), &view());
    assert_eq!(decision, Decision::StartHere { replacing: None });
}

#[test]
fn a_holder_that_is_connected_is_asked_also_while_it_drains() {
    assert_eq!(located(Some(&holder("b")), &view()), Decision::HeldBy(member("b", 5)));
    let view = draining(&["b"]);
    assert!(matches!(located(Some(&holder("b")), &view), Decision::HeldBy(_)));
}

#[test]
fn a_holder_that_lives_and_is_not_connected_is_waited_for() {
    let view = with_link("b-p", LinkState::Lost);
    assert_eq!(located(Some(&holder("b")), &view), Decision::AwaitLink(member("b", 5)));
}

#[test]
fn a_suspect_an_unknown_and_a_former_incarnation_are_confirmed_first() {
    let view = with_link("b-p", LinkState::Refused);
    let former = Holder { node: NodeName::new("a"), incarnation: Incarnation::new("a-0") };
    for who in [holder("b"), holder("d"), former] {
        assert_eq!(located(Some(&who), &view), Decision::ConfirmDead(who.clone()), "{who}");
    }
}

#[test]
fn a_holder_that_was_confirmed_dead_is_replaced() {
    let id = Scoped::parse("x").unwrap();
    let view = view();
    let dead = holder("d");
    let rules = PlacementRules { policy: Policy::Local, only_here: false, draining: false };
    let replaced = Decision::StartHere { replacing: Some(dead.clone()) };
    assert_eq!(locate(&id, Some(&dead), Some(&dead), &view, rules), replaced);
    assert_eq!(locate(&id, None, Some(&dead), &view, rules), replaced, "also when it is free now");
}

#[test]
fn what_another_node_sent_here_is_placed_here_or_nowhere() {
    let (id, view) = (Scoped::parse("x").unwrap(), view());
    let decision = |holder: Option<&Holder>, view: &ClusterView, draining| {
        let rules = PlacementRules { policy: Policy::LeastLoaded, only_here: true, draining };
        locate(&id, holder, None, view, rules)
    };
    assert_eq!(decision(None, &view, false), Decision::StartHere { replacing: None });
    assert_eq!(decision(None, &view, true), Decision::NoNode);
    assert_eq!(
        decision(Some(&holder("b")), &with_link("b-p", LinkState::Lost), false),
        Decision::NoNode
    );
}

#[test]
fn a_drain_that_the_view_does_not_show_yet_is_waited_for() {
    let rules = PlacementRules { policy: Policy::Local, only_here: false, draining: true };
    assert_eq!(
        locate(&Scoped::parse("x").unwrap(), None, None, &view(), rules),
        Decision::AwaitView
    );
}

#[test]
fn local_places_where_it_is_asked_for() {
    for id in ["x", "y", "z"] {
        assert_eq!(placed(Policy::Local, id, &view()).as_deref(), Some("a"));
    }
}

#[test]
fn local_places_elsewhere_when_this_node_drains() {
    let view = draining(&["a"]);
    let chosen = placed(Policy::Local, "x", &view).unwrap();
    assert!(["b", "c"].contains(&chosen.as_str()));
}

#[test]
fn rendezvous_spreads_and_moves_only_what_lived_on_the_node_that_went() {
    let ids: Vec<String> = (0..300).map(|n| format!("conv_{n}")).collect();
    let mut counts = BTreeMap::new();
    let without_c = draining(&["c"]);
    for id in &ids {
        let before = placed(Policy::Rendezvous, id, &view()).unwrap();
        let after = placed(Policy::Rendezvous, id, &without_c).unwrap();
        assert!(before == "c" || before == after, "{id}: {before} to {after}");
        *counts.entry(before).or_insert(0) += 1;
    }
    assert!(counts.len() == 3 && counts.values().all(|count| *count > 60), "{counts:?}");
}

#[test]
fn least_loaded_places_where_the_fewest_live() {
    assert_eq!(placed(Policy::LeastLoaded, "x", &view()).as_deref(), Some("b"));
    let view = draining(&["b"]);
    assert_eq!(placed(Policy::LeastLoaded, "x", &view).as_deref(), Some("c"));
}

#[test]
fn nothing_is_placed_on_a_node_that_cannot_be_reached() {
    let view = with_link("b-p", LinkState::Lost);
    assert_eq!(placed(Policy::LeastLoaded, "x", &view).as_deref(), Some("c"));
}

#[test]
fn when_all_drain_there_is_no_place() {
    for policy in [Policy::Local, Policy::Rendezvous, Policy::LeastLoaded] {
        assert_eq!(placed(policy, "x", &draining(&["a", "b", "c"])), None);
    }
}

#[test]
fn a_conversation_that_moves_is_placed_on_another_node() {
    let (id, view) = (Scoped::parse("x").unwrap(), view());
    for policy in [Policy::Local, Policy::Rendezvous, Policy::LeastLoaded] {
        for node in ["a", "b", "c"] {
            let to = elsewhere(policy, &id, &view, Some(&holder(node))).unwrap();
            assert_ne!(to.holder.node.as_str(), node);
        }
    }
    let from_b = elsewhere(Policy::Local, &id, &view, Some(&holder("b"))).unwrap();
    assert_eq!(from_b.holder.node.as_str(), "a", "where it is asked for");
    let drains = draining(&["a", "c"]);
    assert_eq!(elsewhere(Policy::Local, &id, &drains, Some(&holder("b"))), None);
}

#[test]
fn a_conversation_is_an_orphan_if_nobody_runs_it() {
    let (view, [a, b, unknown]) = (view(), ["a", "b", "d"].map(holder));
    for (holder, lives_here, expected) in [
        (None, false, Orphan::Yes),
        (Some(&a), true, Orphan::No),
        (Some(&a), false, Orphan::Yes),
        (Some(&b), false, Orphan::No),
        (Some(&b), true, Orphan::No),
        (Some(&unknown), false, Orphan::IfDead(&unknown)),
        (Some(&unknown), true, Orphan::IfDead(&unknown)),
    ] {
        let judged = is_orphan(holder, &view.me, lives_here, &view);
        assert_eq!(judged, expected, "{holder:?}, {lives_here}");
    }
}

#[test]
fn a_policy_is_parsed_by_its_name() {
    for (name, policy) in [
        ("local", Policy::Local),
        ("rendezvous", Policy::Rendezvous),
        ("least-loaded", Policy::LeastLoaded),
    ] {
        assert_eq!(name.parse(), Ok(policy));
    }
    assert!("Local".parse::<Policy>().is_err());
}
