//! What a stream does while it cannot read: a node whose store is away soon loses its lease, and its
//! streams then go on elsewhere.

use std::time::Duration;

use abide_actors::live::Signal;
use abide_registry::live::StreamItem;
use tokio::time::{Instant, sleep};

use super::{Break, TurnStream};

/// How long a store may be away: longer than a node keeps a lease that it does not renew, unless an
/// operator has made leases longer.
const MAX_OUTAGE: Duration = Duration::from_secs(20);
/// How long to wait before the next attempt.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Since when nothing could be read.
#[derive(Debug, Default)]
pub(super) struct Outage(Option<Instant>);

impl Outage {
    /// Notes that something was read.
    pub(super) fn end(&mut self) {
        self.0 = None;
    }

    fn is_too_long(&mut self) -> bool {
        self.0.get_or_insert_with(Instant::now).elapsed() >= MAX_OUTAGE
    }
}

impl TurnStream {
    /// Waits for the next attempt to read. Returns why there is none.
    pub(super) async fn wait_for_store(&mut self) -> Option<Break> {
        if self.outage.is_too_long() {
            return Some(Break::StoreUnavailable);
        }
        let next_attempt = sleep(RETRY_INTERVAL);
        tokio::pin!(next_attempt);
        loop {
            let item = tokio::select! {
                item = self.subscription.next() => item,
                () = self.departure.announced() => {
                    self.is_departing = true;
                    return Some(Break::Moved);
                }
                () = &mut next_attempt => return None,
            };
            match item {
                StreamItem::Signal(shared) if matches!(shared.signal, Signal::Deleted) => {
                    return Some(Break::Deleted);
                }
                // The journal has what is not taken now.
                StreamItem::Signal(_) | StreamItem::Missed => self.recover(),
            }
        }
    }
}
