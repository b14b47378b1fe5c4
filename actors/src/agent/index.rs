//! The metadata by which conversations of an agent are found.

use std::sync::Arc;

use super::document::Items;
use super::reader::Mistakes;

const MAX_KEY_BYTES: usize = 128;

/// Reads `index`: different keys of the metadata.
pub(super) fn index(mistakes: &mut Mistakes, items: Option<Items<16>>) -> Arc<[String]> {
    let mut keys: Vec<String> = Vec::new();
    for (at, item) in items.unwrap_or_default().0.into_iter().enumerate() {
        let field = format!("index[{at}]");
        match item.as_str().filter(|key| (1..=MAX_KEY_BYTES).contains(&key.len())) {
            Some(key) if keys.iter().any(|known| known == key) => {
                mistakes.add(&field, "is there already");
            }
            Some(key) => keys.push(key.to_owned()),
            None => mistakes.add(&field, format!("must be a key of 1 to {MAX_KEY_BYTES} bytes")),
        }
    }
    keys.into()
}
