//! `glob`: finds files by a pattern.

use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, PoisonError};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde_json::{Value, json};

use crate::limits::one_line;
use crate::tools::ToolReturn;
use crate::tools::builtin::first_matches::FirstMatches;
use crate::workspace::{CancelFlag, FileError, WalkEntry, Workspace, run_blocking, walk};

/// As long as a path can be.
const MAX_PATTERN_BYTES: usize = 4096;
/// The length of the error for an invalid pattern.
pub(super) const MAX_PATTERN_ERROR_BYTES: usize = 500;
/// The number of results by default, and the maximum.
const DEFAULT_AND_MAX_RESULTS: (u64, u64) = (200, 5000);

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
                "default": DEFAULT_AND_MAX_RESULTS.0,
                "minimum": 1,
                "maximum": DEFAULT_AND_MAX_RESULTS.1,
            },
        },
        "required": ["pattern"],
        "additionalProperties": false,
    })
}

pub(super) async fn run(workspace: &Workspace, args: &Value) -> ToolReturn {
    let Some(pattern) = args["pattern"].as_str() else {
        return ToolReturn::builtin_error("missing_pattern", "");
    };
    match find_files(workspace, pattern, max_results(args, DEFAULT_AND_MAX_RESULTS)).await {
        Ok(matches) => matches.into_tool_return(pattern),
        Err(refusal) => refusal.into(),
    }
}

/// The number of results that the arguments ask for, within the limit.
pub(super) fn max_results(args: &Value, (default, limit): (u64, u64)) -> usize {
    let requested = args["max_results"].as_u64().unwrap_or(default).clamp(1, limit);
    usize::try_from(requested).unwrap_or(usize::MAX)
}

/// Compiles the pattern.
pub(super) fn compile_glob(pattern: &str) -> Result<GlobSet, FileError> {
    let invalid = |why: &str| {
        FileError::with_detail("invalid_pattern", one_line(why, MAX_PATTERN_ERROR_BYTES))
    };
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(invalid("longer than 4096 bytes"));
    }
    let glob = GlobBuilder::new(pattern).literal_separator(true).backslash_escape(true).build();
    // A set of one glob: compiling a single large glob without a set panics.
    let set = glob.and_then(|glob| GlobSetBuilder::new().add(glob).build());
    set.map_err(|error| invalid(&error.to_string()))
}

async fn find_files(
    workspace: &Workspace,
    pattern: &str,
    limit: usize,
) -> Result<FirstMatches, FileError> {
    let permit = workspace.search_permit().await;
    let (workspace, pattern) = (workspace.clone(), pattern.to_owned());
    run_blocking(move |cancelled| {
        let _permit = permit;
        search(&workspace, cancelled, &compile_glob(&pattern)?, limit)
    })
    .await
}

fn search(
    workspace: &Workspace,
    cancelled: &CancelFlag,
    glob: &GlobSet,
    limit: usize,
) -> Result<FirstMatches, FileError> {
    let matches = Mutex::new(FirstMatches::new(limit));
    let lock = || matches.lock().unwrap_or_else(PoisonError::into_inner);
    let is_file = |found: &WalkEntry<'_>| {
        let target = |path| workspace.dir().metadata(path);
        !found.is_link || target(found.path).is_ok_and(|metadata| metadata.is_file())
    };
    walk(workspace.dir(), cancelled, || {
        |found: &WalkEntry<'_>| {
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
