//! `grep`: searches files for a regular expression.

mod search;

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use serde_json::{Value, json};

use super::glob::{LONGEST_WHY, compiled, most};
use crate::limits::one_line;
use crate::tools::ToolReturn;
use crate::tools::builtin::first_matches::Matches;
use crate::workspace::{FileError, Workspace, on_a_thread};
use search::Search;

/// A longer expression is not one that a model means.
const LONGEST_PATTERN: usize = 4096;
/// What a compiled expression takes, and each thread's tables beside it. The worst expressions take
/// time by this and by the length of a line; nothing stops one within a line.
const LARGEST_PROGRAM: usize = 512 * 1024;
/// If the arguments do not say, and at most.
const MATCHES: (u64, u64) = (200, 2000);

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
    match found(workspace, pattern, args).await {
        Ok(matches) => matches.returned(pattern),
        Err(refusal) => refusal.into(),
    }
}

async fn found(workspace: &Workspace, pattern: &str, args: &Value) -> Result<Matches, FileError> {
    let turn = workspace.search_turn().await;
    let (workspace, pattern) = (workspace.clone(), pattern.to_owned());
    let paths = args["path_glob"].as_str().map(str::to_owned);
    let most = most(args, MATCHES);
    on_a_thread(move |cancelled| {
        let _turn = turn;
        let matcher = matcher(&pattern)?;
        let paths = paths.as_deref().map(compiled).transpose()?;
        Search { matcher, paths, most, cancelled }.run(&workspace)
    })
    .await
}

fn matcher(pattern: &str) -> Result<RegexMatcher, FileError> {
    let invalid = |why: &str| FileError::with("invalid_regex", one_line(why, LONGEST_WHY));
    if pattern.len() > LONGEST_PATTERN {
        return Err(invalid("longer than 4096 bytes"));
    }
    let mut builder = RegexMatcherBuilder::new();
    builder.multi_line(true).line_terminator(Some(b'\n'));
    builder.size_limit(LARGEST_PROGRAM).dfa_size_limit(LARGEST_PROGRAM);
    builder.build(pattern).map_err(|error| invalid(&error.to_string()))
}

#[cfg(test)]
mod tests;
