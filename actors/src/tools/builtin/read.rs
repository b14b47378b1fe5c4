//! `read`: reads a file with its line numbers.

use serde_json::{Value, json};

use crate::tools::ToolReturn;
use crate::workspace::{FileError, Workspace, run_blocking, truncate};

/// The text that the model gets from one call.
const MAX_TEXT_BYTES: usize = 16_000;

pub(super) const DESCRIPTION: &str = "Reads a text file of the workspace. Each line comes with its \
    number and a tab before it. At most 16 kB are shown, of a file of at most 2 MB; `offset` and \
    `limit` choose the lines.";

pub(super) fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "description": "Relative to the workspace, or absolute inside it.",
            },
            "offset": {
                "type": ["integer", "null"],
                "minimum": 1,
                "description": "The first line to show; 1 is the file's first.",
            },
            "limit": {
                "type": ["integer", "null"],
                "minimum": 1,
                "description": "How many lines to show.",
            },
        },
        "required": ["path"],
        "additionalProperties": false,
    })
}

pub(super) async fn run(workspace: &Workspace, args: &Value) -> ToolReturn {
    let Some(given) = args["path"].as_str() else {
        return ToolReturn::builtin_error("missing_path", "");
    };
    match read_bytes(workspace, given).await {
        Ok(bytes) => file_result(given, &bytes, args["offset"].as_u64(), args["limit"].as_u64()),
        Err(refusal) => refusal.into(),
    }
}

async fn read_bytes(workspace: &Workspace, given: &str) -> Result<Vec<u8>, FileError> {
    let path = workspace.resolve_path(given)?;
    let workspace = workspace.clone();
    run_blocking(move |_| workspace.read(&path)).await
}

fn file_result(path: &str, bytes: &[u8], offset: Option<u64>, limit: Option<u64>) -> ToolReturn {
    let first = offset.unwrap_or(1).max(1);
    let skipped_lines = usize::try_from(first - 1).unwrap_or(usize::MAX);
    let max_lines = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let mut text = String::new();
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').skip(skipped_lines).take(max_lines);
    for (line, number) in lines.zip(first..) {
        if text.len() > MAX_TEXT_BYTES {
            break;
        }
        if number > first {
            text.push('\n');
        }
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = String::from_utf8_lossy(&line[..line.len().min(MAX_TEXT_BYTES)]);
        text.push_str(&format!("{number}\t{line}"));
    }
    let is_whole = offset.is_none() && limit.is_none() && text.len() <= MAX_TEXT_BYTES;
    let text = truncate(text, MAX_TEXT_BYTES);
    let without_number =
        |line: &str| line.split_once('\t').map_or(line, |(_, rest)| rest).to_owned();
    let content: Vec<String> = text.split('\n').map(without_number).collect();
    let range = if is_whole || text.is_empty() {
        Value::Null
    } else {
        json!([first, first + content.len() as u64 - 1])
    };
    let payload = json!({"path": path, "content": content.join("\n"), "line_range": range});
    ToolReturn::ok(text).with_ui("file", payload)
}

#[cfg(test)]
mod tests;
