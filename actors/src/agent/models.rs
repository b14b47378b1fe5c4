//! The models that a tool of another agent may choose for this one.

use super::document::Items;
use super::reader::Mistakes;

const MAX_NAME_BYTES: usize = 256;

/// Reads `models`: names at the provider of the agent's own model.
pub(super) fn models(mistakes: &mut Mistakes, items: Option<Items<64>>) -> Vec<String> {
    let mut models = Vec::new();
    for (at, item) in items.unwrap_or_default().0.into_iter().enumerate() {
        match item.as_str().filter(|name| (1..=MAX_NAME_BYTES).contains(&name.len())) {
            Some(name) => models.push(name.to_owned()),
            None => {
                let message = format!("must be a name of 1 to {MAX_NAME_BYTES} bytes");
                mistakes.add(&format!("models[{at}]"), message);
            }
        }
    }
    models
}
