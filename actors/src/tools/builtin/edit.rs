//! `edit`: replaces an exact text in a file.

use serde_json::{Value, json};

use crate::tools::ToolReturn;
use crate::workspace::{FileError, MAX_FILE_BYTES, Workspace, run_blocking, truncate};

/// The length of the text before and after the edit that is shown to people, each.
const MAX_SHOWN_BYTES: usize = 64_000;
/// Unchanged lines shown around a change, if the file is not shown whole.
const CONTEXT_LINES: usize = 3;

pub(super) const DESCRIPTION: &str = "Replaces an exact text in a text file of the workspace. \
    `old_string` must be there exactly once, unless `replace_all` is true: give enough of the \
    lines around it, without the line numbers that `read` shows.";

pub(super) fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "description": "Relative to the workspace, or absolute inside it.",
            },
            "old_string": {"type": "string", "description": "The text to replace."},
            "new_string": {"type": "string", "description": "The text to put in its place."},
            "replace_all": {
                "type": ["boolean", "null"],
                "default": false,
                "description": "Replace it wherever it is.",
            },
        },
        "required": ["path", "old_string", "new_string"],
        "additionalProperties": false,
    })
}

pub(super) async fn run(workspace: &Workspace, args: &Value) -> ToolReturn {
    match edit(workspace, args).await {
        Ok(returned) => returned,
        Err(refusal) => refusal.into(),
    }
}

async fn edit(workspace: &Workspace, args: &Value) -> Result<ToolReturn, FileError> {
    let given = |name, missing| args[name].as_str().ok_or_else(|| FileError::new(missing));
    let name = given("path", "missing_path")?.to_owned();
    let old = given("old_string", "missing_old_string")?.to_owned();
    let new = given("new_string", "missing_new_string")?.to_owned();
    let all = args["replace_all"].as_bool().unwrap_or(false);
    if old.is_empty() {
        return Err(FileError::new("empty_old_string"));
    }
    let path = workspace.resolve_path(&name)?;
    let turn = workspace.write_turn(&path).await;
    let workspace = workspace.clone();
    run_blocking(move |cancelled| {
        // The thread owns the turn: it ends with the work, even if the caller has gone.
        let _turn = turn;
        let _lock = workspace.lock(&path, cancelled)?;
        let before = String::from_utf8(workspace.read(&path)?);
        let before = before.map_err(|_| FileError::new("not_utf8"))?;
        let count = count_matches(&before, &old, all)?;
        let after = replace_bounded(&before, &old, &new, count)?;
        workspace.replace(&path, after.as_bytes(), cancelled)?;
        Ok(edit_result(&name, &before, &after, count))
    })
    .await
}

/// Counts the occurrences of the text; an error if there are none, or several without `all`.
fn count_matches(before: &str, old: &str, all: bool) -> Result<usize, FileError> {
    match before.matches(old).count() {
        0 => Err(FileError::new("old_string_not_found")),
        count if count > 1 && !all => {
            Err(FileError::with_detail("ambiguous_match", count.to_string()))
        }
        count => Ok(count),
    }
}

/// Checks the size before it makes the text: many replacements may make it very long.
fn replace_bounded(before: &str, old: &str, new: &str, count: usize) -> Result<String, FileError> {
    let kept = before.len() - count * old.len();
    match count.checked_mul(new.len()).and_then(|added| kept.checked_add(added)) {
        Some(size) if size as u64 <= MAX_FILE_BYTES => Ok(before.replace(old, new)),
        _ => Err(FileError::new("file_too_large")),
    }
}

fn edit_result(path: &str, before: &str, after: &str, count: usize) -> ToolReturn {
    let ending = if count == 1 { "" } else { "s" };
    let (shown_before, shown_after) = if before.len().max(after.len()) <= MAX_SHOWN_BYTES {
        (before, after)
    } else {
        changed_region(before, after)
    };
    let cut_to_limit = |text: &str| truncate(text.to_owned(), MAX_SHOWN_BYTES);
    let payload = json!({
        "path": path,
        "before": cut_to_limit(shown_before),
        "after": cut_to_limit(shown_after),
        "replacements": count,
    });
    ToolReturn::ok(format!("edited {path} ({count} replacement{ending})")).with_ui("diff", payload)
}

/// The lines from the first change to the last, with some context.
fn changed_region<'a>(before: &'a str, after: &'a str) -> (&'a str, &'a str) {
    let (old, new) = (before.as_bytes(), after.as_bytes());
    let same = |(a, b): &(&u8, &u8)| a == b;
    let head = old.iter().zip(new).take_while(same).count();
    let max_tail = old.len().min(new.len()) - head;
    let tail = old.iter().rev().zip(new.iter().rev()).take(max_tail).take_while(same).count();
    // A line break is a single byte, so that these positions are character boundaries.
    let breaks_before = old[..head].iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    let start = breaks_before.map(|(at, _)| at + 1).nth(CONTEXT_LINES).unwrap_or(0);
    let after_tail = &old[old.len() - tail..];
    let breaks_after = after_tail.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let kept = breaks_after.map(|(at, _)| at + 1).nth(CONTEXT_LINES).unwrap_or(tail);
    let left_out = tail - kept;
    (&before[start..before.len() - left_out], &after[start..after.len() - left_out])
}

#[cfg(test)]
mod tests;
