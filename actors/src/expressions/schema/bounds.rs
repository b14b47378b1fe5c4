//! The bounds of a schema, checked before it is compiled.
//!
//! The library compiles and evaluates any schema, whatever that takes. The bounds keep a compiled
//! schema small, and the work between two reads of a checked value short.

use std::collections::HashMap;

use serde_json::Value;

use super::patterns::{self, MatchCost};
use super::references::{self, Position};
use crate::limits::encoded_len;

/// The longest schema, of an agent's, a message's or an MCP server's.
const MAX_SCHEMA_BYTES: usize = 128 * 1024;
/// The deepest nesting of JSON; its parser accepts no deeper text.
const MAX_DEPTH: usize = 128;
/// Subschemas of one schema, each of which is compiled.
const MAX_SUBSCHEMAS: usize = 4_000;
/// The longest path to a subschema; each subschema keeps its own.
const MAX_POINTER_BYTES: usize = 2_048;
/// Distinct patterns of one schema.
const MAX_PATTERNS: usize = 100;
/// Arrays and objects in one `enum`. The library compares them with each other.
const MAX_ENUM_CONTAINERS: usize = 64;
/// Subschemas that are applied to one value, because `allOf`, `$ref` and the like follow each
/// other.
const MAX_IN_PLACE: u64 = 10_000;
/// Subschemas that are applied to one value inside of each other. Each takes up to 2 kB of stack.
const MAX_IN_PLACE_DEPTH: usize = 64;
/// `unevaluatedProperties` evaluates the subschemas beside it up to three times.
const REPEATS_TO_FIND_UNEVALUATED: u64 = 3;
/// The memory of a compiled schema, as estimated.
const MAX_COMPILED_BYTES: usize = 8 * 1024 * 1024;

/// A compiled subschema, as measured.
const BYTES_PER_SUBSCHEMA: usize = 1_200;
/// A subschema's path is kept by its keywords, too.
const COPIES_OF_POINTERS: usize = 4;
/// A value of the schema; keywords keep copies of those that they need.
const BYTES_PER_VALUE: usize = 200;
/// What `unevaluatedProperties` keeps of each subschema that may evaluate a property.
const BYTES_PER_EVALUATOR: u64 = 400;
/// A schema that applies more subschemas to one value, or has references, is not quick to check.
const MAX_QUICK_IN_PLACE: u64 = 16;

/// A schema within the bounds.
pub(super) struct BoundedSchema {
    /// The schema with references that need no base: this is compiled.
    pub(super) source: Value,
    /// The most subschemas that are applied to one value.
    pub(super) in_place: u64,
    /// The values that the schema consists of.
    pub(super) values: usize,
    /// The memory that it will take when compiled, as estimated.
    pub(super) compiled_bytes: usize,
    pub(super) match_cost: MatchCost,
    /// Whether checking some kilobytes takes a few milliseconds at most.
    pub(super) is_quick: bool,
}

impl BoundedSchema {
    /// Measures a schema; the error says which bound it exceeds.
    pub(super) fn measure(source: &Value) -> Result<Self, String> {
        if encoded_len(source) > MAX_SCHEMA_BYTES {
            return Err(format!("must be at most {} kB", MAX_SCHEMA_BYTES / 1024));
        }
        let values = count_values(source, MAX_DEPTH)
            .ok_or_else(|| format!("must nest at most {MAX_DEPTH} deep"))?;
        let map = references::SchemaMap::read(source, MAX_SUBSCHEMAS, MAX_POINTER_BYTES)?;
        let (patterns_bytes, match_cost) = measure_patterns(&map.positions)?;
        map.positions.iter().try_for_each(check_enum)?;
        let mut applied =
            Applied { positions: &map.positions, known: vec![None; map.positions.len()] };
        let mut in_place = 0;
        let mut compiled_bytes = patterns_bytes + values * BYTES_PER_VALUE;
        for (at, position) in map.positions.iter().enumerate() {
            let count = applied.count(at, 0)?.subschemas;
            in_place = in_place.max(count);
            compiled_bytes += compiled_bytes_of(position, count);
        }
        if compiled_bytes > MAX_COMPILED_BYTES {
            return Err(format!(
                "is too large when it is compiled: {compiled_bytes} bytes, of at most \
                 {MAX_COMPILED_BYTES}"
            ));
        }
        let has_references = map.positions.iter().any(|position| position.has_reference);
        Ok(Self {
            in_place,
            values,
            compiled_bytes,
            match_cost,
            is_quick: in_place <= MAX_QUICK_IN_PLACE && !has_references && match_cost.is_low(),
            source: map.into_canonical(source),
        })
    }
}

/// The number of values, unless they nest too deeply.
fn count_values(value: &Value, levels: usize) -> Option<usize> {
    let levels = levels.checked_sub(1)?;
    let count = |value| count_values(value, levels);
    match value {
        Value::Array(items) => items.iter().map(count).sum::<Option<usize>>().map(|n| n + 1),
        Value::Object(object) => object.values().map(count).sum::<Option<usize>>().map(|n| n + 1),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(1),
    }
}

/// The memory of all patterns, and the cost of matching a string against those of one subschema.
fn measure_patterns(positions: &[Position<'_>]) -> Result<(usize, MatchCost), String> {
    let mut known = HashMap::new();
    let mut bytes = 0;
    let mut cost = MatchCost::FREE;
    for position in positions {
        let Value::Object(schema) = position.schema else { continue };
        let names = schema.get("patternProperties").and_then(Value::as_object);
        let names = names.into_iter().flat_map(|patterns| patterns.keys().map(String::as_str));
        let mut own = MatchCost::FREE;
        for pattern in schema.get("pattern").and_then(Value::as_str).into_iter().chain(names) {
            let match_cost = match known.get(pattern) {
                Some(match_cost) => *match_cost,
                None if known.len() == MAX_PATTERNS => {
                    return Err(format!("must have at most {MAX_PATTERNS} patterns"));
                }
                None => {
                    let size = patterns::measure(pattern);
                    let size = size.map_err(|why| format!("{}: {why}", position.display_path()))?;
                    bytes += size.compiled_bytes;
                    known.insert(pattern, size.match_cost);
                    size.match_cost
                }
            };
            own = own.and(match_cost);
        }
        own = match schema.get("format").and_then(Value::as_str) {
            None => own,
            Some("regex") => own.and(MatchCost::PATTERN),
            Some(_) => own.and(MatchCost::FORMAT),
        };
        if schema.contains_key("contentEncoding") || schema.contains_key("contentMediaType") {
            own = own.and(MatchCost::CONTENT);
        }
        cost = cost.or(own);
    }
    Ok((bytes, cost))
}

fn check_enum(position: &Position<'_>) -> Result<(), String> {
    let options = position.schema.get("enum").and_then(Value::as_array);
    let containers = options.into_iter().flatten().filter(|it| it.is_array() || it.is_object());
    if containers.count() > MAX_ENUM_CONTAINERS {
        let at = position.display_path();
        return Err(format!(
            "{at}: enum must have at most {MAX_ENUM_CONTAINERS} arrays and objects"
        ));
    }
    Ok(())
}

fn compiled_bytes_of(position: &Position<'_>, in_place: u64) -> usize {
    let schema = position.schema;
    let negated = schema.get("not").map_or(0, |negated| {
        count_values(negated, MAX_DEPTH).unwrap_or_default() * BYTES_PER_VALUE
    });
    let evaluators = if position.is_unevaluated {
        usize::try_from(in_place.saturating_mul(BYTES_PER_EVALUATOR)).unwrap_or(usize::MAX)
    } else {
        0
    };
    (BYTES_PER_SUBSCHEMA + position.pointer.len() * COPIES_OF_POINTERS + negated)
        .saturating_add(evaluators)
}

/// What is applied to one value, as counted so far.
struct Applied<'a> {
    positions: &'a [Position<'a>],
    known: Vec<Option<Count>>,
}

#[derive(Clone, Copy)]
struct Count {
    subschemas: u64,
    depth: usize,
}

impl Applied<'_> {
    /// How many subschemas are applied to a value to which this one is applied.
    fn count(&mut self, at: usize, outer: usize) -> Result<Count, String> {
        let position = &self.positions[at];
        if let Some(known) = self.known[at] {
            return within_bounds(position, outer, known);
        }
        // A loop of references never ends, and so exceeds the depth.
        let mut count = within_bounds(position, outer, Count { subschemas: 1, depth: 0 })?;
        for applied in &position.in_place {
            let inner = self.count(*applied, outer + 1)?;
            count.subschemas = count.subschemas.saturating_add(inner.subschemas);
            count.depth = count.depth.max(inner.depth + 1);
        }
        if position.is_unevaluated {
            // The subschemas are evaluated again, to see which properties they have evaluated.
            count.subschemas = count.subschemas.saturating_mul(REPEATS_TO_FIND_UNEVALUATED);
        }
        self.known[at] = Some(count);
        within_bounds(position, outer, count)
    }
}

fn within_bounds(position: &Position<'_>, outer: usize, count: Count) -> Result<Count, String> {
    let at = position.display_path();
    if outer + count.depth > MAX_IN_PLACE_DEPTH {
        return Err(format!(
            "{at}: $ref, allOf and the like lead from one to the next more than \
             {MAX_IN_PLACE_DEPTH} times, or for ever"
        ));
    }
    if count.subschemas > MAX_IN_PLACE {
        return Err(format!("{at}: applies more than {MAX_IN_PLACE} subschemas to one value"));
    }
    Ok(count)
}
