//! `write`: writes a whole file.

use serde_json::{Value, json};

use crate::tools::ToolReturn;
use crate::workspace::{FileError, Workspace, run_blocking};

pub(super) const DESCRIPTION: &str = "Writes a text file of the workspace, and the directories \
    above it. A file that is there is replaced as a whole; to change a part of it use `edit`.";

pub(super) fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "description": "Relative to the workspace, or absolute inside it.",
            },
            "content": {"type": "string", "description": "All of the file's new text."},
        },
        "required": ["path", "content"],
        "additionalProperties": false,
    })
}

pub(super) async fn run(workspace: &Workspace, args: &Value) -> ToolReturn {
    let Some(path) = args["path"].as_str() else {
        return ToolReturn::builtin_error("missing_path", "");
    };
    let Some(content) = args["content"].as_str() else {
        return ToolReturn::builtin_error("missing_content", "");
    };
    match write_file(workspace, path, content).await {
        Ok(()) => ToolReturn::ok(format!("wrote {} bytes to {path}", content.len())),
        Err(refusal) => refusal.into(),
    }
}

async fn write_file(workspace: &Workspace, given: &str, content: &str) -> Result<(), FileError> {
    let path = workspace.resolve_path(given)?;
    let turn = workspace.write_turn(&path).await;
    let (workspace, content) = (workspace.clone(), content.to_owned());
    run_blocking(move |cancelled| {
        // The thread owns the write turn, so that it lasts until the write is done, even if the
        // caller has gone.
        let _turn = turn;
        let _lock = workspace.lock(&path, cancelled)?;
        workspace.replace(&path, content.as_bytes(), cancelled)
    })
    .await
}

#[cfg(test)]
mod tests;
