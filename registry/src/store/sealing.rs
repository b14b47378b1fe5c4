//! Encryption at rest: what a store writes is sealed before it is written, and opened after it is
//! read (`operations/encryption.md`).
//!
//! A conversation has a data key of its own, wrapped by a key of the key file, and stored with it. The
//! store has one for what belongs to no conversation or outlives it. A sealed value begins with a byte
//! that no JSON begins with, so that what was written before stays readable.

mod data_key;
mod index_key;
mod key_ring;
mod records;
mod rewrap;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use abide_actors::identity::Epoch;
use abide_actors::journal::StoreError;
use abide_conversation::{ConversationId, Event, Scoped};
use serde::de::DeserializeOwned;

pub(super) use self::data_key::{DataKey, Label};
use self::data_key::{IN_CONVERSATION, IN_STORE};
pub(super) use self::index_key::IndexKey;
pub use self::key_ring::{KeyFileError, KeyId, KeyRing};
pub(super) use self::records::{SealedSummary, open_response, seal_response};
pub(super) use self::rewrap::RewrapPass;
pub use self::rewrap::Rewrapped;
use super::claimed_cache::ClaimedCache;
use super::compression;

/// The name under which the store's data key is noted. No key has it: a `/` is not allowed in ids.
pub(super) const STORE_KEY: &str = "/store";

/// What a store needs to seal and open values.
#[derive(Debug)]
pub(super) struct Sealer {
    ring: KeyRing,
    /// The data key of the store; `None` while nothing was ever sealed in it.
    store_key: Option<DataKey>,
    index_key: Option<IndexKey>,
    /// The data keys of conversations.
    known: ClaimedCache<OwnKey>,
    /// The data keys of journals that are being imported. An import dies with its process.
    staging: Mutex<HashMap<String, CommitKey>>,
}

/// The data key of one conversation, and the form in which it is stored.
#[derive(Clone, Debug)]
pub(super) struct OwnKey {
    id: Scoped<ConversationId>,
    key: Arc<DataKey>,
    wrapped: Arc<[u8]>,
    /// Whether what is written from now on is sealed by it.
    seals: bool,
}

/// What a commit seals by, and whether it stores the wrapped key with it.
#[derive(Clone, Debug)]
pub(super) struct CommitKey {
    pub(super) own: OwnKey,
    pub(super) is_new: bool,
}

/// What a store has noted of the keys in use: their names, and the store's data key under each.
pub(super) type NotedKeys = BTreeMap<String, Vec<u8>>;

/// Refuses a store that is encrypted, for a node without a key file.
pub(super) fn require_none(noted: &NotedKeys) -> Result<(), String> {
    match noted.keys().find(|name| *name != STORE_KEY) {
        None => Ok(()),
        Some(id) => {
            Err(format!("the store is encrypted (key {id}), and --encrypt-key-file is not given"))
        }
    }
}

impl Sealer {
    /// A sealer for a store that has noted these keys. Returns, too, what the store must note before
    /// anything is sealed: the store's data key, unless another node has noted one meanwhile.
    pub(super) fn new(ring: KeyRing, noted: &NotedKeys) -> Result<(Self, Option<Vec<u8>>), String> {
        for (id, wrapped) in noted.iter().filter(|(name, _)| *name != STORE_KEY) {
            ring.require(id, wrapped)?;
        }
        let known = ClaimedCache::default();
        let (store_key, new) = match (noted.get(STORE_KEY), ring.first()) {
            (Some(wrapped), _) => (Some(ring.unwrap(STORE_KEY, wrapped)?), None),
            (None, Some(_)) => {
                let key = DataKey::generate().map_err(|error| error.to_string())?;
                let wrapped = ring.wrap(STORE_KEY, &key).map_err(|error| error.to_string())?;
                (Some(key), Some(wrapped))
            }
            (None, None) => (None, None),
        };
        let index_key = store_key.as_ref().map(IndexKey::of);
        let staging = Mutex::default();
        Ok((Self { ring, store_key, index_key, known, staging }, new))
    }

    /// Takes the store's data key as the store has it, which another node may have noted first.
    pub(super) fn take_store_key(&mut self, wrapped: &[u8]) -> Result<(), String> {
        let store_key = self.ring.unwrap(STORE_KEY, wrapped)?;
        self.index_key = Some(IndexKey::of(&store_key));
        self.store_key = Some(store_key);
        Ok(())
    }

    /// The first key's id and the store's data key under it, which the store notes as in use.
    pub(super) fn note(&self) -> Result<Option<(String, Vec<u8>)>, StoreError> {
        let (Some(first), Some(key)) = (self.ring.first(), &self.store_key) else {
            return Ok(None);
        };
        Ok(Some((first.to_string(), self.ring.wrap(STORE_KEY, key)?)))
    }

    /// Refuses a key that the store has noted, unless the file has it.
    pub(super) fn require(&self, id: &str, wrapped: &[u8]) -> Result<(), String> {
        self.ring.require(id, wrapped)
    }

    /// The key of the index of lists, by which entries may be found.
    pub(super) fn index_key(&self) -> Option<&IndexKey> {
        self.index_key.as_ref()
    }

    /// The key of the index of lists, by which new entries are written.
    pub(super) fn new_index_key(&self) -> Option<&IndexKey> {
        self.index_key().filter(|_| self.seals())
    }

    /// Whether new values are sealed.
    pub(super) fn seals(&self) -> bool {
        self.ring.first().is_some()
    }

    /// The data key of a conversation, from the form in which it is stored.
    pub(super) fn own_key(
        &self,
        id: &Scoped<ConversationId>,
        wrapped: &[u8],
    ) -> Result<OwnKey, StoreError> {
        let key = self.ring.unwrap(id.as_str(), wrapped);
        let key = Arc::new(key.map_err(|why| unreadable(id.as_str(), &why))?);
        Ok(OwnKey { id: id.clone(), key, wrapped: wrapped.into(), seals: self.seals() })
    }

    /// The data key of a conversation that has one, given what is stored of it.
    pub(super) fn own_key_if_any(
        &self,
        id: &Scoped<ConversationId>,
        wrapped: &[u8],
    ) -> Result<Option<OwnKey>, StoreError> {
        if wrapped.is_empty() { Ok(None) } else { self.own_key(id, wrapped).map(Some) }
    }

    /// What a commit seals by, if the wrapped key that the conversation has is this one or, if it is
    /// empty, none. A key that is not wrapped by the first key of the file is wrapped anew.
    pub(super) fn commit_key(
        &self,
        id: &Scoped<ConversationId>,
        wrapped: &[u8],
    ) -> Result<Option<CommitKey>, StoreError> {
        let Some(own) = self.own_key_if_any(id, wrapped)? else {
            return if self.seals() { self.new_key(id).map(Some) } else { Ok(None) };
        };
        self.renewed(own).map(Some)
    }

    /// The data key of a journal that is being imported, by the name of its import; `None` if it is not
    /// sealed.
    pub(super) fn staging_key(
        &self,
        import: &str,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<CommitKey>, StoreError> {
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = staging.get(import) {
            return Ok(Some(key.clone()));
        }
        let key = self.commit_key(id, b"")?;
        if let Some(key) = &key {
            staging.insert(import.to_owned(), key.clone());
        }
        Ok(key)
    }

    pub(super) fn end_staging(&self, import: &str) {
        self.staging.lock().unwrap_or_else(PoisonError::into_inner).remove(import);
    }

    fn new_key(&self, id: &Scoped<ConversationId>) -> Result<CommitKey, StoreError> {
        let key = DataKey::generate()?;
        let wrapped = self.ring.wrap(id.as_str(), &key)?.into();
        let own = OwnKey { id: id.clone(), key: Arc::new(key), wrapped, seals: true };
        Ok(CommitKey { own, is_new: true })
    }

    fn renewed(&self, own: OwnKey) -> Result<CommitKey, StoreError> {
        if !self.seals() || self.ring.is_wrapped_by_first(&own.wrapped) {
            return Ok(CommitKey { own, is_new: false });
        }
        let wrapped = self.ring.wrap(own.id.as_str(), &own.key)?.into();
        Ok(CommitKey { own: OwnKey { wrapped, ..own }, is_new: true })
    }

    /// What a commit under this claim seals by, if this process has loaded or written the
    /// conversation under it.
    pub(super) fn known_key(
        &self,
        id: &Scoped<ConversationId>,
        epoch: Epoch,
    ) -> Result<Option<CommitKey>, StoreError> {
        self.known.under_claim(id, epoch).map(|own| self.renewed(own)).transpose()
    }

    /// The key that a conversation had when this process saw it last. It may be another one by now.
    pub(super) fn recent_key(&self, id: &Scoped<ConversationId>) -> Option<OwnKey> {
        self.known.recent(id)
    }

    /// Notes which key a conversation has under this claim, if any.
    pub(super) fn learn(&self, id: &Scoped<ConversationId>, epoch: Epoch, own: Option<&OwnKey>) {
        match own {
            Some(own) => self.known.learn(id, epoch, own.clone()),
            None => self.known.forget(id),
        }
    }

    /// Notes what became of a commit that was sealed by this key.
    pub(super) fn committed(&self, epoch: Epoch, key: &CommitKey, is_done: bool) {
        if is_done {
            self.known.learn(&key.own.id, epoch, key.own.clone());
        } else {
            self.known.forget(&key.own.id);
        }
    }

    pub(super) fn forget(&self, id: &Scoped<ConversationId>) {
        self.known.forget(id);
    }

    /// Seals a value by the store's data key, if new values are sealed.
    pub(super) fn seal<'v>(
        &self,
        label: Label<'_>,
        value: Cow<'v, [u8]>,
    ) -> Result<Cow<'v, [u8]>, StoreError> {
        match &self.store_key {
            Some(key) if self.seals() => Ok(Cow::Owned(key.seal(IN_STORE, label, &value)?)),
            Some(_) | None => Ok(value),
        }
    }

    /// Opens a value that may be sealed by the store's data key.
    pub(super) fn open<'v>(
        &self,
        label: Label<'_>,
        value: Cow<'v, [u8]>,
    ) -> Result<Cow<'v, [u8]>, StoreError> {
        match (value.first(), &self.store_key) {
            (Some(&IN_STORE), Some(key)) => key.open(label, &value).map(Cow::Owned),
            _ => Ok(value),
        }
    }
}

impl OwnKey {
    /// Whether new values are sealed.
    pub(super) fn seals(&self) -> bool {
        self.seals
    }

    /// The key as it is stored.
    pub(super) fn wrapped(&self) -> &[u8] {
        &self.wrapped
    }

    /// Seals a value of the conversation, if new values are sealed.
    pub(super) fn seal<'v>(
        &self,
        kind: &'static str,
        part: &str,
        value: &'v [u8],
    ) -> Result<Cow<'v, [u8]>, StoreError> {
        if !self.seals {
            return Ok(Cow::Borrowed(value));
        }
        let label = Label { kind, owner: self.id.as_str(), part };
        self.key.seal(IN_CONVERSATION, label, value).map(Cow::Owned)
    }

    /// Whether this key has sealed the value.
    pub(super) fn fits(&self, kind: &'static str, part: &str, value: &[u8]) -> bool {
        let label = Label { kind, owner: self.id.as_str(), part };
        value.first() == Some(&IN_CONVERSATION) && self.key.open_text(label, value).is_some()
    }

    /// Opens a value of the conversation that may be sealed.
    pub(super) fn open<'v>(
        &self,
        kind: &'static str,
        part: &str,
        value: &'v [u8],
    ) -> Result<Cow<'v, [u8]>, StoreError> {
        if value.first() != Some(&IN_CONVERSATION) {
            return Ok(Cow::Borrowed(value));
        }
        let label = Label { kind, owner: self.id.as_str(), part };
        self.key.open(label, value).map(Cow::Owned)
    }
}

/// Whether this is sealed.
pub(super) fn is_sealed(value: &[u8]) -> bool {
    matches!(value.first(), Some(&(IN_CONVERSATION | IN_STORE)))
}

/// Seals a value of a conversation, if it has a key.
pub(super) fn seal_own<'v>(
    own: Option<&OwnKey>,
    kind: &'static str,
    part: &str,
    value: &'v [u8],
) -> Result<Cow<'v, [u8]>, StoreError> {
    match own {
        Some(own) => own.seal(kind, part, value),
        None => Ok(Cow::Borrowed(value)),
    }
}

/// Events of a conversation as they are stored, given their JSON.
pub(super) fn sealed_events(
    events: &[Event],
    json: &Arc<[Vec<u8>]>,
    own: Option<&OwnKey>,
) -> Result<Arc<[Vec<u8>]>, StoreError> {
    let Some(own) = own else { return Ok(Arc::clone(json)) };
    let sealed = events
        .iter()
        .zip(json.iter())
        .map(|(event, json)| own.seal("event", &event.seq.to_string(), json).map(Cow::into_owned));
    sealed.collect()
}

/// Opens a value of a conversation, if it has a key.
pub(super) fn open_own<'v>(
    own: Option<&OwnKey>,
    kind: &'static str,
    part: &str,
    value: &'v [u8],
) -> Result<Cow<'v, [u8]>, StoreError> {
    match own {
        Some(own) => own.open(kind, part, value),
        None => Ok(Cow::Borrowed(value)),
    }
}

/// What a list has of a value: nothing if it cannot be opened, so that the others are listed.
pub(super) fn listed<T>(read: Result<Option<T>, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Err(StoreError::Unreadable(reason)) => {
            tracing::warn!(reason, "unreadable in the store: missing in a list");
            Ok(None)
        }
        read => read,
    }
}

/// What cannot be opened, by its name, and why.
pub(super) fn unreadable(name: &str, why: &str) -> StoreError {
    metrics::counter!("abide_store_unreadable_total").increment(1);
    StoreError::Unreadable(format!("{name}: {why}"))
}

/// Reads JSON that this program wrote, compressed or not; `name` names it in the error. A value that
/// cannot be read was changed, or is sealed and was read without its key: the store itself answers.
pub(super) fn parse<T: DeserializeOwned>(name: &str, value: &[u8]) -> Result<T, StoreError> {
    match read(value) {
        Ok(parsed) => Ok(parsed),
        Err(_) if is_sealed(value) => Err(without_key(name)),
        Err(why) => Err(unreadable(name, &why)),
    }
}

/// Reads JSON that may be compressed; else says why it cannot be read.
pub(super) fn read<T: DeserializeOwned>(value: &[u8]) -> Result<T, String> {
    let json = compression::decompress(value).map_err(|error| error.to_string())?;
    abide_conversation::from_json(&json).map_err(|error| error.to_string())
}

/// The error of what is sealed and has no key here.
pub(super) fn without_key(name: &str) -> StoreError {
    unreadable(name, "it is encrypted, and its key is not there: see --encrypt-key-file")
}
