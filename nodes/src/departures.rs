//! Tells open streams that their node leaves its conversations to other nodes.

use std::sync::Arc;
use std::time::Duration;

use abide_actors::node_lease::NodeLease;
use abide_registry::member::MemberState;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

/// How often a node looks whether it has its lease again.
const RENEWAL_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Makes the watches of streams. Clients should go on at another node when this one has drained, when
/// its lease has lapsed, and when it stops.
#[derive(Clone, Debug)]
pub(crate) struct Departures(watch::Receiver<()>);

impl Departures {
    /// Follows the state and the lease of this node. Dropping the task announces that the node stops.
    pub(crate) fn follow(
        state: watch::Receiver<MemberState>,
        lease: Arc<NodeLease>,
    ) -> (Self, AbortOnDropHandle<()>) {
        let (announce, announced) = watch::channel(());
        let following = announce_each(announce, state, lease);
        (Self(announced), AbortOnDropHandle::new(tokio::spawn(following)))
    }

    /// Watches for the departures from now on.
    pub(crate) fn watch(&self) -> DepartureWatch {
        let mut announced = self.0.clone();
        announced.mark_unchanged();
        DepartureWatch(announced)
    }
}

/// Learns of the next departure.
pub(crate) struct DepartureWatch(watch::Receiver<()>);

impl DepartureWatch {
    /// Returns when the node departs. May be called again when the call was dropped.
    pub(crate) async fn announced(&mut self) {
        // A node that stops announces nothing more.
        let _ = self.0.changed().await;
    }
}

async fn announce_each(
    announce: watch::Sender<()>,
    mut state: watch::Receiver<MemberState>,
    lease: Arc<NodeLease>,
) {
    let mut has_drained = false;
    loop {
        tokio::select! {
            () = drained(&mut state), if !has_drained => {
                has_drained = true;
                announce.send_replace(());
            }
            () = lease.lapsed() => {
                announce.send_replace(());
                while !lease.is_sound() {
                    sleep(RENEWAL_POLL_INTERVAL).await;
                }
            }
        }
    }
}

/// Returns when the node has drained.
async fn drained(state: &mut watch::Receiver<MemberState>) {
    // A node whose state is gone has stopped.
    let _ = state.wait_for(|state| *state == MemberState::Drained).await;
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use abide_actors::identity::{Incarnation, NodeName};
    use abide_actors::journal::Holder;
    use futures::FutureExt;
    use tokio::time::{Instant, advance, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_learns_of_a_drain_of_each_lapse_and_of_the_end() {
        let me = Holder { node: NodeName::new("n"), incarnation: Incarnation::new("1") };
        let lease = Arc::new(NodeLease::new(me.clone()));
        let second = Duration::from_secs(1);
        let state = watch::Sender::new(MemberState::Up);
        lease.renew(me.clone(), Instant::now() + second);
        let (departures, task) = Departures::follow(state.subscribe(), lease.clone());
        let mut first = departures.watch();
        assert_eq!(first.announced().now_or_never(), None);
        lease.renew(me.clone(), Instant::now() + 3 * second);
        advance(2 * second).await;
        assert_eq!(first.announced().now_or_never(), None, "it was renewed");
        first.announced().await;
        // A stream that is opened after a departure waits for the next.
        let mut second_stream = departures.watch();
        lease.renew(me.clone(), Instant::now() + 3_600 * second);
        advance(second).await;
        assert_eq!(second_stream.announced().now_or_never(), None);
        state.send_replace(MemberState::Draining);
        advance(second).await;
        assert_eq!(second_stream.announced().now_or_never(), None, "work is finished first");
        state.send_replace(MemberState::Drained);
        // Long before the lease lapses.
        timeout(second, second_stream.announced()).await.unwrap();
        let mut last = departures.watch();
        assert_eq!(last.announced().now_or_never(), None);
        drop(task);
        last.announced().await;
        departures.watch().announced().await;
    }
}
