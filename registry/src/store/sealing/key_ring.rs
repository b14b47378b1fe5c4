//! The key file: the keys that wrap data keys.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use abide_actors::journal::StoreError;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::data_key::{DataKey, KEY_BYTES, Label};

/// The line of a key file after which new values are not sealed.
const PLAIN: &str = "plain";
const MAX_ID_CHARS: usize = 64;
/// The permissions of those who are neither the owner of the file nor in its group.
const OTHERS: u32 = 0o007;

/// The name of a key of the file: 1 to 64 of `A-Z a-z 0-9 _ . -`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyId(String);

impl KeyId {
    fn parse(text: &str) -> Option<Self> {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        let is_id = (1..=MAX_ID_CHARS).contains(&text.len()) && text.chars().all(legal);
        is_id.then(|| Self(text.to_owned()))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What is wrong with a key file. It never shows a key.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    #[error("others than its owner and group may use it (mode {0:o}): chmod 600")]
    Open(u32),
    #[error("line {0}: must be ID:KEY, with an ID of 1 to 64 of A-Z a-z 0-9 _ . -")]
    Form(usize),
    #[error(
        "line {line}: the key {id} must be 32 bytes in base64, as `openssl rand -base64 32` makes"
    )]
    Key { line: usize, id: KeyId },
    #[error("line {line}: the ID {id} is there twice")]
    DoubledId { line: usize, id: KeyId },
    #[error("line {line}: {id} is the same key as {other}")]
    DoubledKey { line: usize, id: KeyId, other: KeyId },
    #[error("line {0}: `plain` must be the first line")]
    Plain(usize),
    #[error("has no key")]
    Empty,
}

/// The keys of a key file. The first one wraps new data keys; all of them unwrap.
#[derive(Debug)]
pub struct KeyRing {
    keys: Vec<(KeyId, DataKey)>,
    /// Whether the file begins with `plain`: what is sealed is read, and nothing is sealed.
    is_plain: bool,
}

impl KeyRing {
    /// Reads a key file.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        let mode = fs::metadata(path)?.mode();
        if mode & OTHERS != 0 {
            return Err(KeyFileError::Open(mode & 0o777));
        }
        Self::parse(&fs::read_to_string(path)?)
    }

    /// Parses the text of a key file. Empty lines and those that begin with `#` are skipped.
    pub fn parse(text: &str) -> Result<Self, KeyFileError> {
        let mut ring = Self { keys: Vec::new(), is_plain: false };
        let lines = (1..).zip(text.lines().map(str::trim));
        for (line, text) in lines.filter(|(_, it)| !it.is_empty() && !it.starts_with('#')) {
            if text == PLAIN {
                if !ring.keys.is_empty() || ring.is_plain {
                    return Err(KeyFileError::Plain(line));
                }
                ring.is_plain = true;
                continue;
            }
            let (id, key) = text.split_once(':').ok_or(KeyFileError::Form(line))?;
            let id = KeyId::parse(id).ok_or(KeyFileError::Form(line))?;
            let Some(key) = parse_key(key) else { return Err(KeyFileError::Key { line, id }) };
            if ring.key(&id.0).is_some() {
                return Err(KeyFileError::DoubledId { line, id });
            }
            if let Some((other, _)) = ring.keys.iter().find(|(_, it)| it.bytes() == key.bytes()) {
                return Err(KeyFileError::DoubledKey { line, id, other: other.clone() });
            }
            ring.keys.push((id, key));
        }
        if ring.keys.is_empty() { Err(KeyFileError::Empty) } else { Ok(ring) }
    }

    /// The key that wraps new data keys; `None` if nothing is sealed.
    pub(super) fn first(&self) -> Option<&KeyId> {
        self.keys.first().filter(|_| !self.is_plain).map(|(id, _)| id)
    }

    fn key(&self, id: &str) -> Option<&DataKey> {
        self.keys.iter().find(|(it, _)| it.0 == id).map(|(_, key)| key)
    }

    /// Refuses a store that has noted this key as in use, unless the file has it.
    pub(super) fn require(&self, id: &str, wrapped: &[u8]) -> Result<(), String> {
        if self.key(id).is_none() {
            return Err(format!("the store uses the key {id}, which --encrypt-key-file lacks"));
        }
        self.unwrap(super::STORE_KEY, wrapped).map(drop)
    }

    /// The data key of this owner, under the first key: the length of its id, its id, what is sealed.
    pub(super) fn wrap(&self, owner: &str, key: &DataKey) -> Result<Vec<u8>, StoreError> {
        let Some((id, first)) = self.keys.first() else {
            return Err(StoreError::Unavailable("--encrypt-key-file has no key".to_owned()));
        };
        let length = u8::try_from(id.0.len()).unwrap_or(u8::MAX);
        let sealed = first.seal(length, label(owner), key.bytes())?;
        let mut wrapped = vec![length];
        wrapped.extend_from_slice(id.0.as_bytes());
        wrapped.extend_from_slice(sealed.get(1..).unwrap_or_default());
        Ok(wrapped)
    }

    /// The data key of this owner. An error says why there is none.
    pub(super) fn unwrap(&self, owner: &str, wrapped: &[u8]) -> Result<DataKey, String> {
        let (id, sealed) = split(wrapped).ok_or("its data key is damaged")?;
        let Some(key) = self.key(id) else {
            return Err(format!("its data key needs the key {id}, which --encrypt-key-file lacks"));
        };
        let opened = key.open_text(label(owner), &[&[0], sealed].concat());
        let bytes = opened.and_then(|bytes| <[u8; KEY_BYTES]>::try_from(bytes).ok());
        bytes.and_then(DataKey::new).ok_or_else(|| {
            format!(
                "its data key was changed, or the key {id} of --encrypt-key-file is not its key"
            )
        })
    }

    pub(super) fn is_wrapped_by_first(&self, wrapped: &[u8]) -> bool {
        let id = split(wrapped).map(|(id, _)| id);
        self.keys.first().is_some_and(|(first, _)| Some(first.0.as_str()) == id)
    }
}

fn label(owner: &str) -> Label<'_> {
    Label { kind: "key", owner, part: "" }
}

/// The id of the key that wraps a data key.
pub(super) fn key_of(wrapped: &[u8]) -> Option<String> {
    split(wrapped).map(|(id, _)| id.to_owned())
}

/// The id of the key that wraps, and what it has sealed.
fn split(wrapped: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = wrapped.split_first()?;
    let (id, sealed) = rest.split_at_checked(usize::from(*length))?;
    Some((std::str::from_utf8(id).ok()?, sealed))
}

fn parse_key(text: &str) -> Option<DataKey> {
    let bytes = BASE64_STANDARD.decode(text.trim()).ok()?;
    DataKey::new(bytes.try_into().ok()?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const ONE: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn ring(text: &str) -> KeyRing {
        KeyRing::parse(text).unwrap()
    }

    #[test]
    fn a_key_file_has_a_key_in_each_line() {
        let two = ring(&format!("# keys\n\nk2:{}\n  k1:{ONE}  \n", key_text(7)));
        assert_eq!(two.first().unwrap().to_string(), "k2");
        assert!(two.key("k1").is_some());
        let plain = ring(&format!("plain\nk1:{ONE}\n"));
        assert!(plain.first().is_none() && plain.key("k1").is_some());
    }

    fn key_text(byte: u8) -> String {
        BASE64_STANDARD.encode([byte; KEY_BYTES])
    }

    #[test]
    fn a_mistake_is_named_by_its_line_and_no_key_is_shown() {
        let cases = [
            ("".to_owned(), "has no key"),
            ("# none\n".to_owned(), "has no key"),
            ("plain\n".to_owned(), "has no key"),
            (ONE.to_owned(), "line 1: must be ID:KEY"),
            (format!("a b:{ONE}"), "line 1: must be ID:KEY"),
            (format!(":{ONE}"), "line 1: must be ID:KEY"),
            (format!("{}:{ONE}", "k".repeat(65)), "line 1: must be ID:KEY"),
            ("\nk1:AAAA".to_owned(), "line 2: the key k1 must be 32 bytes"),
            (format!("k1:{ONE}{ONE}"), "line 1: the key k1 must be 32 bytes"),
            (format!("k1:{}", &ONE[1..]), "line 1: the key k1 must be 32 bytes"),
            (format!("k1:{ONE}\nk1:{}", key_text(7)), "line 2: the ID k1 is there twice"),
            (format!("k1:{ONE}\nk2:{ONE}"), "line 2: k2 is the same key as k1"),
            (format!("k1:{ONE}\nplain"), "line 2: `plain` must be the first line"),
        ];
        for (text, expected) in cases {
            let error = KeyRing::parse(&text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
            assert!(!error.contains("AAECAw"), "{error}");
        }
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        assert!(matches!(KeyRing::read(&path), Err(KeyFileError::Unreadable(_))));
        fs::write(&path, format!("k1:{ONE}\n")).unwrap();
        for (mode, is_fine) in [(0o600, true), (0o440, true), (0o644, false), (0o602, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let read = KeyRing::read(&path);
            assert_eq!(read.is_ok(), is_fine, "{mode:o}");
            assert!(is_fine || matches!(read, Err(KeyFileError::Open(it)) if it == mode));
        }
    }

    #[test]
    fn a_data_key_is_unwrapped_only_by_its_key_and_for_its_owner() {
        let (one, other) = (ring(&format!("k1:{ONE}")), ring(&format!("k1:{}", key_text(7))));
        let key = DataKey::generate().unwrap();
        let wrapped = one.wrap("acme/c", &key).unwrap();
        assert_eq!(one.unwrap("acme/c", &wrapped).unwrap().bytes(), key.bytes());
        assert!(one.unwrap("c", &wrapped).unwrap_err().contains("was changed"));
        assert!(other.unwrap("acme/c", &wrapped).unwrap_err().contains("is not its key"));
        let third = ring(&format!("k3:{ONE}"));
        assert!(third.unwrap("acme/c", &wrapped).unwrap_err().contains("needs the key k1"));
        for length in 0..wrapped.len() {
            assert!(one.unwrap("acme/c", &wrapped[..length]).is_err());
        }
        let both = ring(&format!("k2:{}\nk1:{ONE}", key_text(7)));
        assert!(one.is_wrapped_by_first(&wrapped) && !both.is_wrapped_by_first(&wrapped));
        assert_eq!(both.unwrap("acme/c", &wrapped).unwrap().bytes(), key.bytes());
    }
}
