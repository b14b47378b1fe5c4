//! Bounds the memory that the bodies of all requests take together: as bytes while they arrive, and as
//! values once they are parsed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::problem::{Kind, Problem};
use crate::access::BodyShare;

/// The memory of all bodies in progress. A body of 1 MiB that is mostly text takes little more than its
/// size.
const BODY_MEMORY_BYTES: usize = 64 << 20;
/// The memory of one parsed body: `{"":0}` takes a hundred times its size, and half of the budget is
/// left to the others.
const MAX_PARSED_BYTES: usize = 32 << 20;

/// An object with its first entries, as `serde_json` allocates it.
const OBJECT_BYTES: usize = 512;
/// An entry of an object in a list that has grown.
const ENTRY_BYTES: usize = 192;
/// A list with its first items.
const LIST_BYTES: usize = 288;
/// An item of a list that has grown.
const ITEM_BYTES: usize = 108;

/// The memory that bodies may take, shared by all requests; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct BodyBudget {
    used_bytes: Arc<AtomicUsize>,
}

impl BodyBudget {
    /// The memory of one body, which holds nothing yet, and counts against the share of its tenant, if
    /// that has one.
    pub(super) fn begin(&self, share: Option<BodyShare>) -> BodyMemory {
        BodyMemory { budget: self.clone(), share, bytes: 0 }
    }
}

/// What one body takes of the budget; given back on drop.
#[derive(Debug)]
pub(super) struct BodyMemory {
    budget: BodyBudget,
    share: Option<BodyShare>,
    bytes: usize,
}

impl BodyMemory {
    /// Takes more of the budget; a problem if other bodies have it.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), Problem> {
        if let Some(share) = &self.share {
            share.take(bytes)?;
        }
        let sum = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= BODY_MEMORY_BYTES);
        let taken = self.budget.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
        let detail = "the bodies of other requests take the memory that is set aside for bodies";
        if taken.is_err() {
            if let Some(share) = &self.share {
                share.give_back(bytes);
            }
            return Err(Problem::new(Kind::Overloaded, detail));
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Gives a part back.
    pub(super) fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.budget.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(share) = &self.share {
            share.give_back(bytes);
        }
    }

    /// Takes what the text needs once it is parsed; a problem if that is more than one body may take.
    pub(super) fn grow_to_parse(&mut self, text: &str, is_yaml: bool) -> Result<(), Problem> {
        let bytes = if is_yaml { yaml_bytes(text.as_bytes()) } else { json_bytes(text.as_bytes()) };
        if bytes > MAX_PARSED_BYTES {
            let detail = format!(
                "the body has too many values: parsed, it takes over {MAX_PARSED_BYTES} bytes"
            );
            return Err(Problem::new(Kind::PayloadTooLarge, detail));
        }
        self.grow(bytes)
    }
}

impl Drop for BodyMemory {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

/// About how much memory the values of a JSON text take: it counts what opens and separates values
/// outside of strings.
fn json_bytes(json: &[u8]) -> usize {
    let mut bytes = json.len();
    let mut rest = json;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        bytes += match first {
            b'"' => {
                rest = after_string(after);
                0
            }
            other => value_bytes(other),
        };
    }
    bytes
}

/// What follows a string; the text begins behind its opening quote.
fn after_string(text: &[u8]) -> &[u8] {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\')) {
        // An escaped character is part of the string.
        let length = if rest[at] == b'"' { 1 } else { 2 };
        rest = rest.get(at + length..).unwrap_or_default();
        if length == 1 {
            return rest;
        }
    }
    &[]
}

/// About how much memory the values of a YAML text take. What could separate values counts, although it
/// may be part of a text; an alias may repeat all of the document.
fn yaml_bytes(yaml: &[u8]) -> usize {
    let block = |byte: &u8| match byte {
        b':' | b'?' => OBJECT_BYTES + ENTRY_BYTES,
        b'-' => LIST_BYTES,
        other => value_bytes(*other),
    };
    let values = yaml.iter().map(block).sum::<usize>();
    let count = |sign: u8| yaml.iter().filter(|byte| **byte == sign).count();
    let aliases = if count(b'&') > 0 { count(b'*') } else { 0 };
    let repeated = aliases.saturating_mul(yaml.len()).min(MAX_PARSED_BYTES / 2);
    yaml.len().saturating_add(values).saturating_add(repeated)
}

fn value_bytes(sign: u8) -> usize {
    match sign {
        b'{' => OBJECT_BYTES,
        b'[' => LIST_BYTES,
        b':' => ENTRY_BYTES,
        b',' => ITEM_BYTES,
        _ => 0,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::response::IntoResponse;

    use super::*;
    use crate::http::extract::MAX_BODY_BYTES;

    fn status(result: Result<(), Problem>) -> u16 {
        result.err().map_or(200, |problem| problem.into_response().status().as_u16())
    }

    #[test]
    fn what_bodies_take_is_given_back() {
        let budget = BodyBudget::default();
        let mut first = budget.begin(None);
        assert_eq!(status(first.grow(BODY_MEMORY_BYTES)), 200);
        let mut second = budget.begin(None);
        assert_eq!(status(second.grow(1)), 429);
        drop(second);
        first.shrink(10);
        assert_eq!(status(budget.begin(None).grow(10)), 200);
        assert_eq!(status(budget.begin(None).grow(11)), 429);
        drop(first);
        assert_eq!(budget.used_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_bodies_of_one_tenant_leave_memory_to_the_others() {
        let budget = BodyBudget::default();
        let (one, other) = (BodyShare::default(), BodyShare::default());
        let largest = MAX_PARSED_BYTES + MAX_BODY_BYTES;
        let mut first = budget.begin(Some(one.clone()));
        assert_eq!(status(first.grow(largest)), 200);
        let mut second = budget.begin(Some(one.clone()));
        assert_eq!(status(second.grow(1)), 429);
        let rest = BODY_MEMORY_BYTES - largest;
        assert_eq!(status(budget.begin(Some(other.clone())).grow(rest)), 200);
        // What the budget refuses does not count against the share.
        let mut third = budget.begin(Some(other));
        assert_eq!(status(third.grow(rest + 1)), 429);
        assert_eq!(status(third.grow(rest)), 200);
        drop(first);
        assert_eq!(status(second.grow(largest)), 200);
    }

    #[test]
    fn a_body_of_too_many_values_is_refused_and_one_of_text_is_not() {
        let parse = |text: &str, is_yaml| {
            status(BodyBudget::default().begin(None).grow_to_parse(text, is_yaml))
        };
        let many = |value: &str| format!("[{}0]", value.repeat((1 << 20) / value.len()));
        for dense in ["{\"\":0},", "{\"a\":{}},", "[[]],", "[0],", "0,"] {
            assert_eq!(parse(&many(dense), false), 413, "{dense}");
        }
        for yaml in ["{a},", "- a\n", "a:\n", "[a],"] {
            assert_eq!(parse(&yaml.repeat((1 << 20) / yaml.len()), true), 413, "{yaml}");
        }
        for plain in
            ["\"{,{,{,{,[[[[\\\"{{\",", "123456,", "{\"name\":\"some text, as people write it\"},"]
        {
            assert_eq!(parse(&many(plain), false), 200, "{plain}");
        }
        let words = "Some words, and a list: one - two; **three**.\n".repeat(2_000);
        assert_eq!(parse(&words, true), 200);
        for cut in ["\"", "\"\\", "{\"a", ""] {
            assert_eq!(parse(cut, false), 200, "{cut}");
        }
    }

    #[test]
    fn the_number_of_values_is_not_underestimated() {
        let list = |value: &str| format!("[{}0]", value.repeat(1_000));
        // The least that 1,000 of them take: a value is 72 bytes, an entry 104, its index 36.
        for (value, least) in [("0,", 72), ("{\"\":0},", 72 + 104 + 36), ("[0],", 72 + 72)] {
            assert!(json_bytes(list(value).as_bytes()) > 1_000 * least, "{value}");
        }
        assert_eq!(std::mem::size_of::<serde_json::Value>(), 72);
    }
}
