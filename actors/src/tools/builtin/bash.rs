//! `bash`: runs a command in the workspace.

use std::path::Path;
use std::time::Duration;

use abide_conversation::permission::Network;
use serde_json::{Value, json};

use crate::exec::output::truncate_middle;
use crate::exec::{Command, CommandOutput, ExitStatus, MAX_OUTPUT_BYTES, Shell};
use crate::limits::MAX_ERROR_BYTES;
use crate::tools::ToolReturn;

pub(super) const DESCRIPTION: &str = "\
Runs a shell command (bash -c) in the workspace and returns its exit code and its output, standard \
output and standard error together; of a long output the beginning and the end. It has no input, \
and whatever it leaves running in the background is ended with it.";

const DEFAULT_TIMEOUT_MS: u64 = 120_000;
const MAX_TIMEOUT_MS: u64 = 600_000;

/// Room for the exit code and the text before the output.
const MAX_PREFIX_BYTES: usize = 100;

pub(super) fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "What to run, as one would type it."},
            "timeout_ms": {
                "type": "integer",
                "description": "How long it may take, in milliseconds.",
                "minimum": 1,
                "maximum": MAX_TIMEOUT_MS,
                "default": DEFAULT_TIMEOUT_MS,
            },
        },
        "required": ["command"],
        "additionalProperties": false,
    })
}

/// Runs the command in `root`; `network` says where it may connect to.
pub(super) async fn run(args: &Value, root: &Path, network: Network, shell: &Shell) -> ToolReturn {
    let Some(text) = args["command"].as_str().filter(|text| !text.trim().is_empty()) else {
        return ToolReturn::builtin_error("missing_command", "");
    };
    let timeout_ms = args["timeout_ms"].as_u64().unwrap_or(DEFAULT_TIMEOUT_MS);
    let timeout_ms = timeout_ms.clamp(1, MAX_TIMEOUT_MS);
    let command = Command {
        text: text.to_owned(),
        directory: root.to_owned(),
        network,
        timeout: Duration::from_millis(timeout_ms),
    };
    let CommandOutput { status, output, duration_ms } = match shell.run(command).await {
        Ok(ended) => ended,
        Err(broken) => return ToolReturn::builtin_error("shell_unavailable", &broken.to_string()),
    };
    let (code, detail) = match status {
        ExitStatus::Exited(code) => {
            let shown = format!(
                "exit {code}\n{}",
                truncate_middle(&output, MAX_OUTPUT_BYTES - MAX_PREFIX_BYTES)
            );
            let payload = json!({
                "command": text,
                "exit_code": code,
                "stdout": output,
                "duration_ms": duration_ms,
            });
            return ToolReturn::ok(shown).with_ui("process", payload);
        }
        ExitStatus::TimedOut => ("timeout", format!("after {timeout_ms} ms")),
        ExitStatus::Flooded => ("output_too_large", "the command was ended".to_owned()),
        ExitStatus::TooManyProcesses => ("too_many_processes", "they were ended".to_owned()),
        ExitStatus::TooMuchMemory => ("too_much_memory", "the command was ended".to_owned()),
    };
    let output = truncate_middle(&output, MAX_ERROR_BYTES - MAX_PREFIX_BYTES);
    ToolReturn::builtin_error(code, &format!("{detail}\n{output}"))
}
