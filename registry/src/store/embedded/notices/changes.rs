//! Changes of webhooks, as the file stores them.

use abide_actors::journal::StoreError;
use abide_actors::notices::WebhookKey;
use redb::{Error, ReadableTable, WriteTransaction};

use super::super::super::notices::{WebhookChange, WebhookEdit};
use super::super::super::sealing::Label;
use super::super::{Embedded, tables};

/// A change of webhooks as bytes.
pub(in super::super) struct EncodedWebhooks {
    version: u64,
    /// What is stored of each webhook from now on; nothing of one that is removed.
    changes: Vec<(WebhookKey, Option<Vec<u8>>)>,
}

impl EncodedWebhooks {
    /// Whether the list of webhooks has the version that the change is for.
    pub(super) fn has_target(&self, transaction: &WriteTransaction) -> Result<bool, Error> {
        let meta = transaction.open_table(tables::META)?;
        let version = meta.get(tables::WEBHOOKS_ROW)?.map_or(0, |version| version.value());
        Ok(version == self.version)
    }

    /// Returns whether it was carried out.
    pub(super) fn apply(&self, transaction: &WriteTransaction) -> Result<bool, Error> {
        if !self.has_target(transaction)? {
            return Ok(false);
        }
        let mut webhooks = transaction.open_table(tables::WEBHOOKS)?;
        for (key, stored) in &self.changes {
            match stored {
                Some(stored) => webhooks.insert(key.as_str(), stored.as_slice()).map(drop)?,
                None => webhooks.remove(key.as_str()).map(drop)?,
            }
        }
        let mut meta = transaction.open_table(tables::META)?;
        meta.insert(tables::WEBHOOKS_ROW, self.version.saturating_add(1))?;
        Ok(true)
    }
}

impl Embedded {
    /// A change of webhooks with the bytes that are stored.
    pub(in super::super) fn encoded_webhooks(
        &self,
        change: &WebhookChange,
    ) -> Result<EncodedWebhooks, StoreError> {
        let changes = change.changes.iter().map(|edit| {
            let key = edit.key();
            let stored = match edit {
                WebhookEdit::Put(webhook) => {
                    Some(self.seal_json(Label::webhook(key.as_str()), webhook)?)
                }
                WebhookEdit::Remove(_) => None,
            };
            Ok((key, stored))
        });
        let changes = changes.collect::<Result<_, StoreError>>()?;
        Ok(EncodedWebhooks { version: change.version, changes })
    }
}
