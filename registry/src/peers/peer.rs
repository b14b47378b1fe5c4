//! What is known of another process, and the connection to it.

use std::sync::Arc;
use std::time::Duration;

use abide_actors::identity::NodeName;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::event::{LinkEvent, LinkEvents};
use super::handshake::{Authenticated, DialError, Handshake, Target};
use super::stream::Keepalive;
use crate::member::{LinkState, ProcessId};

/// The delay before the second attempt to dial, which doubles with each further one. The first is
/// made at once.
const FIRST_DIAL_DELAY: Duration = Duration::from_millis(50);
/// It bounds how long the death of a member goes unnoticed whose address refuses connections.
const MAX_DIAL_DELAY: Duration = Duration::from_millis(500);
/// A session that lasted this long was established properly: its peer is dialled again at once.
const STEADY_AGE: Duration = Duration::from_millis(250);
/// How long a session may take to become ready, or to end once it is closed: a few messages each.
const SESSION_TIMEOUT: Duration = Duration::from_secs(3);

/// Another process.
pub(super) struct Peer {
    pub(super) name: NodeName,
    /// Known of members only.
    pub(super) address: Option<String>,
    /// It is of a build that knows handshake version 0 only.
    pub(super) legacy: bool,
    pub(super) session: Option<Session>,
    /// The connection that replaces the session as soon as that has ended.
    pub(super) next: Option<Authenticated>,
    /// It was connected at least once.
    pub(super) was_connected: bool,
    /// It was declared dead before and goes on as another incarnation.
    pub(super) has_rejoined: bool,
    /// Its address refuses connections.
    pub(super) is_refusing: bool,
    /// Attempts to dial it since it last had a steady connection.
    pub(super) failed_dials: u32,
    /// The running or delayed attempt to dial it.
    pub(super) attempt: Option<AbortOnDropHandle<()>>,
}

impl Peer {
    pub(super) fn new(name: &NodeName) -> Self {
        Self {
            name: name.clone(),
            address: None,
            legacy: false,
            session: None,
            next: None,
            was_connected: false,
            has_rejoined: false,
            is_refusing: false,
            failed_dials: 0,
            attempt: None,
        }
    }

    /// Whether an attempt to dial that failed in this way shows that the process is gone. A member
    /// that was never connected may have a wrong address: another process answers there, or the
    /// member has rejoined after it was declared dead for it.
    pub(super) fn is_gone(&self, error: DialError) -> bool {
        match error {
            DialError::Refused => self.was_connected || !self.has_rejoined,
            DialError::OtherProcess => self.was_connected,
            DialError::Unreachable => false,
        }
    }

    pub(super) fn link(&self) -> LinkState {
        match &self.session {
            Some(session) if session.is_connected() => LinkState::Connected,
            _ if self.is_refusing => LinkState::Refused,
            _ => LinkState::Lost,
        }
    }

    /// Dials it after a growing delay, and reports the outcome.
    pub(super) fn dial(
        &mut self,
        process: &ProcessId,
        probe: bool,
        handshake: Arc<Handshake>,
        events: LinkEvents,
    ) {
        let Some(address) = self.address.clone() else { return };
        let name = self.name.clone();
        let process = process.clone();
        let legacy = self.legacy;
        let delay = dial_delay(self.failed_dials);
        self.attempt = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            sleep(delay).await;
            let target = Target { name, process: process.clone(), address, probe, legacy };
            let outcome = handshake.dial(&target).await;
            // Without a receiver the process is ending.
            let _ = events.send(LinkEvent::Dialled { process, outcome });
        })));
    }
}

fn dial_delay(failed_dials: u32) -> Duration {
    let Some(doublings) = failed_dials.checked_sub(1) else { return Duration::ZERO };
    FIRST_DIAL_DELAY.saturating_mul(2_u32.saturating_pow(doublings)).min(MAX_DIAL_DELAY)
}

/// A connection that ractor_cluster uses. Dropping it closes it.
pub(super) struct Session {
    pub(super) label: String,
    pub(super) keepalive: Arc<Keepalive>,
    /// Whether calls could ever be made.
    ready: bool,
    close: CancellationToken,
    events: LinkEvents,
    /// Reports the end of a session that does not become ready, or does not end, in time.
    timeout: Option<AbortOnDropHandle<()>>,
}

impl Session {
    pub(super) fn new(
        label: String,
        keepalive: Arc<Keepalive>,
        close: CancellationToken,
        events: LinkEvents,
    ) -> Self {
        let mut session = Self { label, keepalive, ready: false, close, events, timeout: None };
        session.start_timeout();
        session
    }

    pub(super) fn set_ready(&mut self) {
        self.ready = true;
        self.timeout = None;
    }

    /// Whether calls could ever be made.
    pub(super) fn is_ready(&self) -> bool {
        self.ready
    }

    pub(super) fn is_connected(&self) -> bool {
        self.ready && !self.close.is_cancelled()
    }

    pub(super) fn is_steady(&self) -> bool {
        self.ready && self.keepalive.age() > STEADY_AGE
    }

    pub(super) fn close(&mut self, cause: &'static str) {
        self.keepalive.set_end_cause(cause);
        self.close.cancel();
        self.start_timeout();
    }

    fn start_timeout(&mut self) {
        let label = self.label.clone();
        let events = self.events.clone();
        self.timeout = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            sleep(SESSION_TIMEOUT).await;
            // Without a receiver the process is ending.
            let _ = events.send(LinkEvent::Ended { label });
        })));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close.cancel();
        let end = self.keepalive.end_cause();
        metrics::counter!("abide_peer_sessions_total", "end" => end).increment(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_from_50_ms_to_500_ms_and_the_first_attempt_has_none() {
        let delays: Vec<_> =
            (0..7).map(|failed_dials| dial_delay(failed_dials).as_millis()).collect();
        assert_eq!(delays, [0, 50, 100, 200, 400, 500, 500]);
        assert_eq!(dial_delay(u32::MAX), MAX_DIAL_DELAY);
    }

    #[test]
    fn a_member_is_gone_when_its_address_refuses_even_before_it_was_connected() {
        let mut peer = Peer::new(&NodeName::new("b"));
        let outcomes = [DialError::Refused, DialError::OtherProcess, DialError::Unreachable];
        assert_eq!(outcomes.map(|error| peer.is_gone(error)), [true, false, false]);
        peer.has_rejoined = true;
        assert_eq!(outcomes.map(|error| peer.is_gone(error)), [false; 3]);
        peer.was_connected = true;
        assert_eq!(outcomes.map(|error| peer.is_gone(error)), [true, true, false]);
    }
}
