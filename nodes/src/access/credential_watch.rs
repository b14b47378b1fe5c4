//! Notices when the credential of an open stream ends.

use std::sync::Arc;
use std::time::Duration;

use abide_actors::access::Access;
use abide_conversation::Timestamp;
use abide_conversation::identity::Participants;
use tokio::sync::watch;
use tokio::time::sleep;

use super::control::AccessControl;
use super::credential_error::CredentialError;
use super::guard::Guard;
use super::permission::{Permission, Read, Verb, caller_access};
use super::session::Session;

/// How often a credential is verified again that nobody said has changed.
const VERIFY_INTERVAL: Duration = Duration::from_secs(60);

/// The credential of a stream, and the conversation that it must let its caller read.
pub(crate) struct CredentialWatch {
    control: AccessControl,
    session: Arc<Session>,
    /// `None` for a list, which shows whatever its caller may see.
    participants: Option<Participants>,
    created_at: Option<Timestamp>,
    changes: watch::Receiver<u64>,
    /// Whether the credential must be verified, also if that was interrupted.
    is_due: bool,
}

impl CredentialWatch {
    /// `None` if the node authenticates nobody: there is nothing that could end.
    pub(super) fn new(
        control: AccessControl,
        session: Option<Arc<Session>>,
        participants: Option<Participants>,
        created_at: Option<Timestamp>,
    ) -> Option<Self> {
        let (session, changes) = (session?, control.guard()?.watch_changes());
        Some(Self { control, session, participants, created_at, changes, is_due: false })
    }

    /// Notes who the conversation's members are now, of whom the caller may no longer be one.
    pub(crate) fn update_members(&mut self, members: &[String]) {
        if let Some(participants) = &mut self.participants {
            participants.members = members.to_vec();
        }
        self.is_due = true;
    }

    /// Returns when the credential no longer lets its caller read the conversation. May be called again
    /// when the call was dropped.
    pub(crate) async fn ended(&mut self) {
        let control = self.control.clone();
        let Some(guard) = control.guard() else { return std::future::pending().await };
        loop {
            if !self.is_due {
                tokio::select! {
                    () = sleep(self.left(guard)) => {}
                    // The guard lives as long as the watch.
                    _ = self.changes.changed() => {}
                }
                self.is_due = true;
            }
            if !self.still_reads(guard).await {
                return;
            }
            self.is_due = false;
        }
    }

    /// The time until the credential must be verified.
    fn left(&self, guard: &Guard) -> Duration {
        let until = self.session.credential().valid_until;
        let left = until.map(|until| Duration::try_from(until.duration_since(guard.now())));
        left.map_or(VERIFY_INTERVAL, Result::unwrap_or_default).min(VERIFY_INTERVAL)
    }

    async fn still_reads(&mut self, guard: &Guard) -> bool {
        let before = self.session.clone();
        match guard.verify(self.session.presented.clone()).await {
            Ok(session) => self.session = session,
            // Nobody can tell: what was valid a moment ago holds until it expires.
            Err(CredentialError::Unavailable) => {
                let until = self.session.credential().valid_until;
                return until.is_none_or(|until| guard.now() < until);
            }
            Err(_) => return false,
        }
        let Some(participants) = &self.participants else {
            // What a list shows was chosen for the roles of before.
            return self.session.credential().identity == before.credential().identity;
        };
        let access = caller_access(self.session.credential(), Verb::Read, Read::NEEDS);
        let access = Access::Caller(Box::new(access));
        access.check_read(participants, self.created_at).is_ok()
    }
}
