//! Tests of the node that gives permits.

use super::*;
use crate::cluster_view::tests::seen;
use crate::member::LinkStates;

/// The members as the node that gives the permits of `t` sees them.
fn view_of_giver(names: &[&str]) -> ClusterView {
    let members: Vec<_> = names.iter().map(|name| seen(name)).collect();
    let any = members[0].member.holder.clone();
    let view = ClusterView::new(any, members.clone(), LinkStates::default());
    let giver = giver(&view, "t").unwrap().holder.clone();
    ClusterView::new(giver, members, LinkStates::default())
}

struct Process<'a> {
    table: &'a PermitTable,
    id: ProcessId,
    seq: u64,
}

impl<'a> Process<'a> {
    fn new(table: &'a PermitTable, view: &ClusterView, index: usize) -> Self {
        let id = view.members[index].member.process.clone();
        Self { table, id, seq: 0 }
    }

    fn message(&mut self, held: u32, waiting: u32) -> PermitSync {
        self.seq += 1;
        let (key, seq) = ("t".to_owned(), self.seq);
        PermitSync { key, concurrency: Some(3), rate_count: None, rate_ms: 0, held, waiting, seq }
    }

    fn says(&mut self, view: &ClusterView, held: u32, waiting: u32, at: Instant) -> Option<u32> {
        let message = self.message(held, waiting);
        self.table.sync(view, &self.id, &message, at)
    }
}

fn later(at: Instant, seconds: u64) -> Instant {
    at + Duration::from_secs(seconds)
}

#[tokio::test]
async fn no_more_are_given_than_the_limit_and_those_who_wait_get_theirs_in_order() {
    let (table, at) = (PermitTable::default(), Instant::now());
    let view = view_of_giver(&["a", "b"]);
    let mut a = Process::new(&table, &view, 0);
    let mut b = Process::new(&table, &view, 1);
    assert_eq!(a.says(&view, 0, 2, at), Some(0), "the members are not settled");
    let at = later(at, 5);
    assert_eq!(a.says(&view, 0, 2, at), Some(2));
    assert_eq!(b.says(&view, 0, 4, at), Some(1));
    assert_eq!(a.says(&view, 2, 5, at), Some(0));
    assert_eq!(a.says(&view, 0, 5, at), Some(0), "b was there before");
    assert_eq!(b.says(&view, 1, 3, at), Some(2));
    assert_eq!(b.says(&view, 0, 1, at), Some(1));
    assert_eq!(a.says(&view, 0, 5, at), Some(2));
}

#[tokio::test]
async fn a_process_that_is_gone_keeps_its_permits_for_the_lease_and_a_member_always() {
    let (table, at) = (PermitTable::default(), Instant::now());
    let view = view_of_giver(&["a", "b"]);
    let gone = usize::from(view.members[0].member.holder == view.me);
    let mut runs = Process::new(&table, &view, gone);
    let mut waits = Process::new(&table, &view, 1 - gone);
    runs.says(&view, 0, 3, at);
    let at = later(at, 5);
    assert_eq!(runs.says(&view, 0, 3, at), Some(3));
    assert_eq!(waits.says(&view, 0, 1, later(at, 3_600)), Some(0), "it is silent, and a member");
    let me = view.me.node.as_str();
    let alone = ClusterView::new(view.me.clone(), vec![seen(me)], LinkStates::default());
    let at = later(at, 3_601);
    assert_eq!(waits.says(&alone, 0, 1, at), Some(1), "its lease is over");
}

#[tokio::test]
async fn a_node_that_a_key_moves_to_gives_nothing_until_all_have_told_what_they_run() {
    let (table, at) = (PermitTable::default(), Instant::now());
    let view = view_of_giver(&["a", "b"]);
    let mut a = Process::new(&table, &view, 0);
    let mut b = Process::new(&table, &view, 1);
    assert_eq!(a.says(&view, 0, 1, at), Some(0));
    assert_eq!(b.says(&view, 3, 0, later(at, 2)), Some(0), "what another node gave it counts");
    assert_eq!(a.says(&view, 0, 1, later(at, 5)), Some(0));
    assert_eq!(b.says(&view, 2, 0, later(at, 6)), Some(0));
    assert_eq!(a.says(&view, 0, 1, later(at, 6)), Some(1));
}

#[tokio::test]
async fn a_member_that_joins_does_not_hold_up_the_keys_that_stay() {
    let (table, at) = (PermitTable::default(), Instant::now());
    let view = view_of_giver(&["a", "b"]);
    let mut a = Process::new(&table, &view, 0);
    a.says(&view, 0, 1, at);
    let grown: Vec<_> = ["a", "b", "c"].map(seen).into();
    let grown = ClusterView::new(view.me.clone(), grown, LinkStates::default());
    let stays = giver(&grown, "t").unwrap().holder == view.me;
    let answer = a.says(&grown, 0, 1, later(at, 1));
    assert_eq!(answer, stays.then_some(1));
}

#[tokio::test]
async fn only_one_node_gives_the_permits_of_a_key() {
    let (table, at) = (PermitTable::default(), Instant::now());
    let view = view_of_giver(&["a", "b"]);
    let other = view.members.iter().find(|seen| seen.member.holder != view.me).unwrap();
    let members = view.members.clone();
    let of_other = ClusterView::new(other.member.holder.clone(), members, LinkStates::default());
    let mut a = Process::new(&table, &view, 0);
    assert_eq!(a.says(&of_other, 0, 1, later(at, 60)), None);
}

#[tokio::test]
async fn an_old_message_that_arrives_late_means_nothing() {
    let (table, at) = (PermitTable::default(), Instant::now());
    let view = view_of_giver(&["a"]);
    let mut a = Process::new(&table, &view, 0);
    let old = a.message(0, 3);
    assert_eq!(a.says(&view, 2, 1, at), Some(1));
    assert_eq!(table.sync(&view, &a.id, &old, at), Some(0));
    assert_eq!(a.says(&view, 3, 1, at), Some(0), "all three are held");
}

#[tokio::test]
async fn a_permit_that_got_lost_on_the_way_is_given_again() {
    let (table, at) = (PermitTable::default(), Instant::now());
    let view = view_of_giver(&["a"]);
    let mut a = Process::new(&table, &view, 0);
    assert_eq!(a.says(&view, 0, 3, at), Some(3));
    assert_eq!(a.says(&view, 0, 3, at), Some(3), "it says that it holds none");
}

#[tokio::test]
async fn no_more_begin_within_the_time_than_the_rate_permits() {
    let (table, at) = (PermitTable::default(), Instant::now());
    let view = view_of_giver(&["a"]);
    let a = view.members[0].member.process.clone();
    let ask = |seq: u64, at: Instant| {
        let message = PermitSync {
            key: "t".to_owned(),
            concurrency: None,
            rate_count: Some(2),
            rate_ms: 10_000,
            held: 0,
            waiting: 5,
            seq,
        };
        table.sync(&view, &a, &message, at)
    };
    assert_eq!(ask(1, at), Some(2));
    assert_eq!(ask(2, later(at, 9)), Some(0));
    assert_eq!(ask(3, later(at, 10)), Some(2));
}

#[tokio::test]
async fn a_change_of_the_members_that_was_long_ago_holds_nobody_up() {
    let (table, at) = (PermitTable::default(), Instant::now());
    let view = view_of_giver(&["a", "b"]);
    table.observe(&view, at);
    table.observe(&view, later(at, 4));
    let mut a = Process::new(&table, &view, 0);
    assert_eq!(a.says(&view, 0, 1, later(at, 5)), Some(1));
}
