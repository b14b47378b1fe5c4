//! The form in which the values of a conversation are stored.

use std::borrow::Cow;

use abide_actors::journal::StoreError;
use abide_conversation::Seq;

use super::compression::Compression;
use super::sealing::OwnKey;

/// How values are stored: compressed first, because nothing is won by compressing what is sealed.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredForm<'k> {
    pub(super) compression: Compression,
    /// What seals them, if anything does.
    pub(super) own: Option<&'k OwnKey>,
}

impl StoredForm<'_> {
    /// Whether values are stored as they are.
    pub(super) fn is_plain(self) -> bool {
        self.compression == Compression::None && self.own.is_none()
    }

    pub(super) fn of<'v>(
        self,
        kind: &'static str,
        part: &str,
        value: Cow<'v, [u8]>,
    ) -> Result<Cow<'v, [u8]>, StoreError> {
        let value = self.compression.compress(value);
        match self.own {
            Some(own) => own.seal(kind, part, &value).map(|sealed| Cow::Owned(sealed.into_owned())),
            None => Ok(value),
        }
    }

    pub(super) fn of_event<'v>(
        self,
        seq: Seq,
        json: Cow<'v, [u8]>,
    ) -> Result<Cow<'v, [u8]>, StoreError> {
        let part = self.own.map(|_| seq.to_string()).unwrap_or_default();
        self.of("event", &part, json)
    }
}
