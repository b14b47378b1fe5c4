//! The ranges of ZRANGE and LRANGE.

use std::ops::Range;

use super::sorted_set::SortedSet;
use super::text;

/// The elements from one index to another, both included and counted from the end if negative.
pub fn indexes(start: i64, stop: i64, len: usize) -> Range<usize> {
    let size = i64::try_from(len).unwrap();
    let from_end = |index: i64| if index < 0 { index + size } else { index };
    let (start, stop) = (from_end(start).max(0), from_end(stop).min(size - 1));
    if start > stop {
        return 0..0;
    }
    usize::try_from(start).unwrap()..usize::try_from(stop + 1).unwrap()
}

pub fn integer(word: &[u8]) -> Result<i64, String> {
    let not_one = || "ERR value is not an integer or out of range".to_owned();
    std::str::from_utf8(word).ok().and_then(|word| word.parse().ok()).ok_or_else(not_one)
}

pub fn float(word: &[u8]) -> Result<f64, String> {
    let not_one = || "ERR value is not a valid float".to_owned();
    std::str::from_utf8(word).ok().and_then(|word| word.parse().ok()).ok_or_else(not_one)
}

/// One end of a range of scores: the score, and whether it is excluded.
fn score_bound(word: &[u8]) -> Result<(f64, bool), String> {
    let (word, excluded) = match word.strip_prefix(b"(") {
        Some(word) => (word, true),
        None => (word, false),
    };
    let score = float(word).map_err(|_| "ERR min or max is not a float".to_owned())?;
    Ok((score, excluded))
}

/// The rows between two scores.
pub fn by_score(set: &SortedSet, min: &[u8], max: &[u8]) -> Result<Range<usize>, String> {
    let ((min, not_min), (max, not_max)) = (score_bound(min)?, score_bound(max)?);
    let rows = set.rows();
    let start =
        rows.partition_point(|(score, _)| if not_min { *score <= min } else { *score < min });
    let end = rows.partition_point(|(score, _)| if not_max { *score < max } else { *score <= max });
    Ok(start..end.max(start))
}

/// The rows between two members, of a set whose scores are all equal.
pub fn by_member(set: &SortedSet, min: &[u8], max: &[u8]) -> Result<Range<usize>, String> {
    let rows = set.rows();
    let position = |bound: &[u8], is_min: bool| match bound {
        b"-" => Ok(0),
        b"+" => Ok(rows.len()),
        [kind @ (b'(' | b'['), member @ ..] => {
            let passes_equal = (*kind == b'(') == is_min;
            Ok(rows.partition_point(|(_, it)| {
                if passes_equal { it.as_slice() <= member } else { it.as_slice() < member }
            }))
        }
        _ => Err(format!("ERR min or max not valid string range item: {}", text(bound))),
    };
    let (start, end) = (position(min, true)?, position(max, false)?);
    Ok(start..end.max(start))
}
