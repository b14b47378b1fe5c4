//! Reads the golden files, whose first lines are frozen.

use std::fs;
use std::path::PathBuf;

use abide_conversation::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The number of frozen lines of each file, and the beginning of their SHA-256. Appended lines may
/// be frozen, too. A different digest means that a frozen line was changed, and the change must be
/// reverted.
const FROZEN_LINES: [(&str, usize, &str); 3] = [
    ("journals.jsonl", 9, "49bb2e2f4edc3d3b"),
    ("stored.jsonl", 30, "d58cd12d1d585e26"),
    ("wire.jsonl", 116, "1e42784b5d1bdfe4"),
];

/// A file or directory of `tests/golden`.
pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden").join(name)
}

/// The lines of a file, as text.
pub(crate) fn lines(name: &str) -> Vec<String> {
    let text = fs::read_to_string(path(name)).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Whether `whole` contains all of `part`: a program may write more than older ones did.
pub(crate) fn includes(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(key, part)| whole.get(key).is_some_and(|whole| includes(whole, part)))
        }
        (Value::Array(whole), Value::Array(part)) => {
            let mut pairs = whole.iter().zip(part);
            whole.len() == part.len() && pairs.all(|(whole, part)| includes(whole, part))
        }
        (Value::Number(whole), Value::Number(part)) => whole.as_f64() == part.as_f64(),
        (Value::String(whole), Value::String(part)) => whole == part || is_same_time(whole, part),
        (whole, part) => whole == part,
    }
}

/// Whether both texts are the same moment: older programs wrote as few digits of a second as they could.
fn is_same_time(one: &str, other: &str) -> bool {
    let moment = |text: &str| text.parse::<Timestamp>().ok();
    moment(one).is_some_and(|one| moment(other) == Some(one))
}

#[test]
fn what_was_written_once_stays_as_it_is() {
    for (name, count, digest) in FROZEN_LINES {
        let all = lines(name);
        assert!(all.len() >= count, "{name}: lines are gone");
        let frozen = all[..count].join("\n");
        let now: String = Sha256::digest(frozen)[..8].iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(now, digest, "{name}: one of the first {count} lines was changed");
    }
}
