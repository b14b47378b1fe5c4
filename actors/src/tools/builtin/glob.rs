//! `glob`: finds files by a pattern.

use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, PoisonError};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde_json::{Value, json};

use crate::limits::one_line;
use crate::tools::ToolReturn;
use crate::tools::builtin::first_matches::Matches;
use crate::workspace::{Cancelled, FileError, Found, Workspace, on_a_thread, walk};

/// As long as a path may be.
const LONGEST_PATTERN: usize = 4096;
/// What is said of a pattern that is none.
pub(super) const LONGEST_WHY: usize = 500;
/// If the arguments do not say, and at most.
const MATCHES: (u64, u64) = (200, 5000);

pub(super) const DESCRIPTION: &str = "Finds the files of the workspace whose path matches a \
    pattern, also hidden and ignored ones, but nothing in .git. `*` and `?` do not cross a slash, \
    `**` does: `**/*.rs` finds all Rust files. The paths come sorted, one a line.";

pub(super) fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "pattern": {
                "type": "string",
                "description": "Compared with whole paths, relative to the workspace.",
            },
            "max_results": {
                "type": ["integer", "null"],
                "default": MATCHES.0,
                "minimum": 1,
                "maximum": MATCHES.1,
            },
        },
        "required": ["pattern"],
        "additionalProperties": false,
    })
}

pub(super) async fn run(workspace: &Workspace, args: &Value) -> ToolReturn {
    let Some(pattern) = args["pattern"].as_str() else {
        return ToolReturn::coded("missing_pattern", "");
    };
    match found(workspace, pattern, most(args, MATCHES)).await {
        Ok(matches) => matches.returned(pattern),
        Err(refusal) => refusal.into(),
    }
}

/// How many results the arguments ask for.
pub(super) fn most(args: &Value, (default, most): (u64, u64)) -> usize {
    let asked = args["max_results"].as_u64().unwrap_or(default).clamp(1, most);
    usize::try_from(asked).unwrap_or(usize::MAX)
}

/// The pattern, compiled.
pub(super) fn compiled(pattern: &str) -> Result<GlobSet, FileError> {
    let invalid = |why: &str| FileError::with("invalid_pattern", one_line(why, LONGEST_WHY));
    if pattern.len() > LONGEST_PATTERN {
        return Err(invalid("longer than 4096 bytes"));
    }
    let glob = GlobBuilder::new(pattern).literal_separator(true).backslash_escape(true).build();
    // A set of one: compiling a lone glob panics if it is too large.
    let set = glob.and_then(|glob| GlobSetBuilder::new().add(glob).build());
    set.map_err(|error| invalid(&error.to_string()))
}

async fn found(workspace: &Workspace, pattern: &str, most: usize) -> Result<Matches, FileError> {
    let turn = workspace.search_turn().await;
    let (workspace, pattern) = (workspace.clone(), pattern.to_owned());
    on_a_thread(move |cancelled| {
        let _turn = turn;
        search(&workspace, cancelled, &compiled(&pattern)?, most)
    })
    .await
}

fn search(
    workspace: &Workspace,
    cancelled: &Cancelled,
    glob: &GlobSet,
    most: usize,
) -> Result<Matches, FileError> {
    let matches = Mutex::new(Matches::new(most));
    let lock = || matches.lock().unwrap_or_else(PoisonError::into_inner);
    let is_file = |found: &Found<'_>| {
        let target = |path| workspace.dir().metadata(path);
        !found.is_link || target(found.path).is_ok_and(|metadata| metadata.is_file())
    };
    walk(workspace.dir(), cancelled, || {
        |found: &Found<'_>| {
            let bytes = found.path.as_os_str().as_bytes();
            if glob.is_match(found.path) && lock().has_room(bytes) && is_file(found) {
                lock().add(bytes, 0, found.path.to_string_lossy().into_owned());
            }
        }
    })?;
    Ok(matches.into_inner().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests;
