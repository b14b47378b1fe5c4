//! Finds the blobs that a text names.

use std::sync::LazyLock;

use abide_conversation::BlobId;
use memchr::memmem::Finder;

/// The beginning of every id of a blob.
const ID_PREFIX: &[u8] = b"blob_";
/// The bytes of an id of a blob.
const ID_BYTES: usize = 69;

/// Finds the beginnings of ids. It is made once, since each event is searched.
static PREFIXES: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(ID_PREFIX));

/// The ids of blobs in a JSON text, wherever they stand: a tool may name a blob in a field of its own,
/// and a model in a link.
pub fn named_blobs(json: &[u8]) -> impl Iterator<Item = BlobId> {
    let found = PREFIXES.find_iter(json);
    let ids = found.filter_map(|start| json.get(start..start + ID_BYTES));
    ids.filter_map(|id| std::str::from_utf8(id).ok().and_then(BlobId::parse))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_are_found_wherever_they_are_named() {
        let id = |digit: &str| format!("blob_{}", digit.repeat(64));
        let (a, b) = (id("0"), id("f"));
        let json = format!(r#"_"a_b":"{a}","b":["blob_1","see {b}.","{a}{b}"],"é":"blob_"#);
        let found: Vec<_> = named_blobs(json.as_bytes()).map(|id| id.to_string()).collect();
        assert_eq!(found, [&*a, &*b, &*a, &*b]);
        for text in ["", "_", "blob_", "lob_", &a[1..], &a[..68], &a.to_uppercase()] {
            assert_eq!(named_blobs(text.as_bytes()).count(), 0, "{text}");
        }
    }
}
