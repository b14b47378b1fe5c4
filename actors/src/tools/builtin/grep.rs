//! `grep`: searches files for a regular expression.

mod search;

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use serde_json::{Value, json};

use super::glob::{MAX_PATTERN_ERROR_BYTES, compile_glob, max_results};
use crate::limits::one_line;
use crate::tools::ToolReturn;
use crate::tools::builtin::first_matches::FirstMatches;
use crate::workspace::{FileError, Workspace, run_blocking};
use search::Search;

/// A model has no use for a longer expression.
const MAX_PATTERN_BYTES: usize = 4096;
/// The size of a compiled expression, and of each thread's tables. The worst expressions take time
/// proportional to this and to the length of a line; a search is not interrupted within a line.
const MAX_PROGRAM_BYTES: usize = 512 * 1024;
/// The number of results by default, and the maximum.
const DEFAULT_AND_MAX_RESULTS: (u64, u64) = (200, 2000);

pub(super) const DESCRIPTION: &str = "Searches the files of the workspace for lines that match a \
    regular expression (Rust syntax, case sensitive; begin with `(?i)` to ignore case). Results \
    are `path:line:text`, sorted. Hidden and ignored files are searched too; .git, binary files, \
    symbolic links, files over 64 MB and what follows a line over 256 kB are not.";

pub(super) fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "The regular expression."},
            "path_glob": {
                "type": ["string", "null"],
                "description": "Only files whose path matches this, as in `glob`: `src/**/*.rs`.",
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
    match find_lines(workspace, pattern, args).await {
        Ok(matches) => matches.into_tool_return(pattern),
        Err(refusal) => refusal.into(),
    }
}

async fn find_lines(
    workspace: &Workspace,
    pattern: &str,
    args: &Value,
) -> Result<FirstMatches, FileError> {
    let permit = workspace.search_permit().await;
    let (workspace, pattern) = (workspace.clone(), pattern.to_owned());
    let paths = args["path_glob"].as_str().map(str::to_owned);
    let max_matches = max_results(args, DEFAULT_AND_MAX_RESULTS);
    run_blocking(move |cancelled| {
        let _permit = permit;
        let matcher = compile_regex(&pattern)?;
        let paths = paths.as_deref().map(compile_glob).transpose()?;
        Search { matcher, paths, max_matches, cancelled }.run(&workspace)
    })
    .await
}

fn compile_regex(pattern: &str) -> Result<RegexMatcher, FileError> {
    let invalid =
        |why: &str| FileError::with_detail("invalid_regex", one_line(why, MAX_PATTERN_ERROR_BYTES));
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(invalid("longer than 4096 bytes"));
    }
    let mut builder = RegexMatcherBuilder::new();
    builder.multi_line(true).line_terminator(Some(b'\n'));
    builder.size_limit(MAX_PROGRAM_BYTES).dfa_size_limit(MAX_PROGRAM_BYTES);
    builder.build(pattern).map_err(|error| invalid(&error.to_string()))
}

#[cfg(test)]
mod tests;
