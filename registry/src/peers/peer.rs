//! What is known of another process, and the connection to it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::connector::{LinkEvent, LinkEvents};
use super::handshake::{Authenticated, Handshake, Target};
use super::stream::Keepalive;
use crate::member::LinkState;

/// Before the second attempt; it doubles with every other, and the first is made at once.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A session that lasted this long was no accident: it is dialled again at once.
const STEADY: Duration = Duration::from_millis(250);
/// For a session to become ready, and for one that is closed to end: a few messages each.
const SESSION: Duration = Duration::from_secs(3);

/// Another process.
pub(super) struct Peer {
    pub(super) name: String,
    /// Only of a member.
    pub(super) address: Option<String>,
    pub(super) session: Option<Session>,
    /// Takes the place of the session as soon as that has ended.
    pub(super) next: Option<Authenticated>,
    /// It was connected.
    pub(super) met: bool,
    /// It was met, and then nobody was there.
    pub(super) refused: bool,
    /// Attempts since it was connected for a while.
    pub(super) tries: u32,
    /// Under way, or about to be.
    pub(super) attempt: Option<AbortOnDropHandle<()>>,
}

impl Peer {
    pub(super) fn new(name: &str) -> Self {
        let (address, session, next, attempt) = Default::default();
        let (name, met, refused, tries) = (name.to_owned(), false, false, 0);
        Self { name, address, session, next, met, refused, tries, attempt }
    }

    pub(super) fn link(&self) -> LinkState {
        match &self.session {
            Some(session) if session.is_connected() => LinkState::Connected,
            _ if self.refused => LinkState::Refused,
            _ => LinkState::Lost,
        }
    }

    /// Dials it after a pause that grows, and says what came of it.
    pub(super) fn attempt(
        &mut self,
        process: &str,
        probe: bool,
        door: Arc<Handshake>,
        happened: LinkEvents,
    ) {
        let Some(address) = self.address.clone() else { return };
        let (name, process, pause) = (self.name.clone(), process.to_owned(), pause(self.tries));
        self.attempt = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            sleep(pause).await;
            let target = Target { name, process: process.clone(), address, probe };
            let outcome = door.dial(&target).await;
            // If nobody listens any more, the process ends.
            let _ = happened.send(LinkEvent::Tried { process, outcome });
        })));
    }
}

fn pause(tries: u32) -> Duration {
    let Some(doublings) = tries.checked_sub(1) else { return Duration::ZERO };
    FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST_PAUSE)
}

/// A connection in the hands of ractor_cluster. Dropping it closes it.
pub(super) struct Session {
    pub(super) label: String,
    pub(super) pulse: Arc<Keepalive>,
    /// Calls can be made.
    ready: bool,
    close: CancellationToken,
    happened: LinkEvents,
    /// Says that it has ended if it is not ready, or has not ended, in time.
    overdue: Option<AbortOnDropHandle<()>>,
}

impl Session {
    pub(super) fn new(
        label: String,
        pulse: Arc<Keepalive>,
        close: CancellationToken,
        happened: LinkEvents,
    ) -> Self {
        let mut session = Self { label, pulse, ready: false, close, happened, overdue: None };
        session.hurry();
        session
    }

    pub(super) fn ready(&mut self) {
        self.ready = true;
        self.overdue = None;
    }

    /// Whether calls could ever be made.
    pub(super) fn was_ready(&self) -> bool {
        self.ready
    }

    pub(super) fn is_connected(&self) -> bool {
        self.ready && !self.close.is_cancelled()
    }

    pub(super) fn was_steady(&self) -> bool {
        self.ready && self.pulse.age() > STEADY
    }

    pub(super) fn close(&mut self, why: &'static str) {
        self.pulse.ended(why);
        self.close.cancel();
        self.hurry();
    }

    fn hurry(&mut self) {
        let (late, happened) = (self.label.clone(), self.happened.clone());
        self.overdue = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            sleep(SESSION).await;
            // If nobody listens any more, the process ends.
            let _ = happened.send(LinkEvent::Ended { label: late });
        })));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close.cancel();
        let end = self.pulse.end();
        metrics::counter!("abide_peer_sessions_total", "end" => end).increment(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_from_50_ms_to_2_s_and_the_first_attempt_has_none() {
        let pauses: Vec<_> = (0..9).map(|tries| pause(tries).as_millis()).collect();
        assert_eq!(pauses, [0, 50, 100, 200, 400, 800, 1_600, 2_000, 2_000]);
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
    }
}
