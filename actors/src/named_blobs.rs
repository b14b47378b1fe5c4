//! Finds the blobs that a text names.

use abide_conversation::BlobId;

/// The beginning of every id of a blob.
const ID_PREFIX: &[u8] = b"blob_";
/// The bytes of an id of a blob.
const ID_BYTES: usize = 69;

/// The ids of blobs in a JSON text, wherever they stand: a tool may name a blob in a field of its own,
/// and a model in a link.
pub fn named_blobs(json: &[u8]) -> impl Iterator<Item = BlobId> {
    let mut rest = json;
    std::iter::from_fn(move || {
        loop {
            // An underscore is rarer than a letter, and the search for one byte is fast: each event
            // is read to its end.
            let underscore = memchr::memchr(b'_', rest)?;
            let start = (underscore + 1).saturating_sub(ID_PREFIX.len());
            let found = rest.get(start..start + ID_BYTES);
            let found = found.filter(|id| id.starts_with(ID_PREFIX));
            rest = rest.get(underscore + 1..)?;
            let id = found.and_then(|id| std::str::from_utf8(id).ok()).and_then(BlobId::parse);
            if id.is_some() {
                return id;
            }
        }
    })
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
