//! The stored responses to requests.

use abide_actors::journal::StoredResponse;
use abide_conversation::Timestamp;
use redb::{Error, ReadableTable};

use super::super::encode::EncodedResponse;
use super::super::tables::{self, nanos};
use super::OpenTables;

/// Expired responses that one commit removes: more than the few that it can add, so that they never
/// pile up, and few enough not to be noticed.
const MAX_EXPIRED_PER_COMMIT: usize = 8;

impl OpenTables<'_> {
    pub(in super::super) fn keep<'k>(
        &mut self,
        responses: impl IntoIterator<Item = &'k EncodedResponse>,
    ) -> Result<(), Error> {
        for response in responses {
            let (scope, key) = (response.scope.as_str(), response.key.as_str());
            let old = self.responses.insert((scope, key), response.json.as_slice())?;
            let old = old
                .map(|json| tables::parse::<StoredResponse>("answer", json.value()))
                .transpose()?;
            if let Some(old) = old {
                self.expiries.remove((nanos(old.expires_at), scope, key))?;
            }
            self.expiries.insert((nanos(response.expires_at), scope, key), ())?;
        }
        Ok(())
    }

    pub(super) fn remove_expired(&mut self, now: Timestamp) -> Result<(), Error> {
        for _ in 0..MAX_EXPIRED_PER_COMMIT {
            let Some(first) = self.expiries.first()? else { break };
            let (at, scope, key) = first.0.value();
            if at > nanos(now) {
                break;
            }
            self.responses.remove((scope, key))?;
            drop(first);
            self.expiries.pop_first()?;
        }
        Ok(())
    }

    pub(super) fn forget_responses(&mut self, scope: &str) -> Result<(), Error> {
        let mut found = Vec::new();
        for row in self.responses.range((scope, "")..)? {
            let row = row?;
            if row.0.value().0 != scope {
                break;
            }
            let response: StoredResponse = tables::parse("answer", row.1.value())?;
            found.push((response.key, nanos(response.expires_at)));
        }
        for (key, at) in found {
            self.responses.remove((scope, key.as_str()))?;
            self.expiries.remove((at, scope, key.as_str()))?;
        }
        Ok(())
    }
}
