//! The ten built-in tools, one file each. See `reference/builtin-tools.md`.

mod bash;
mod edit;
pub(crate) mod first_matches;
mod glob;
mod grep;
mod plan_mode;
mod read;
pub(crate) mod spawn_agent;
mod todo_write;
mod web_fetch;
mod write;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Run, ToolReturn};
use crate::definition::Builtin;
use crate::exec::Shell;
use crate::web_fetch::Fetcher;
use crate::workspace::{Workspace, Workspaces};

/// The services that the built-in tools of a node work with.
pub struct BuiltinServices {
    pub workspaces: Arc<Workspaces>,
    pub shell: Arc<Shell>,
    pub fetcher: Fetcher,
}

impl Builtin {
    /// The description for the model.
    pub fn description(self) -> &'static str {
        match self {
            Self::Read => read::DESCRIPTION,
            Self::Glob => glob::DESCRIPTION,
            Self::Grep => grep::DESCRIPTION,
            Self::Write => write::DESCRIPTION,
            Self::Edit => edit::DESCRIPTION,
            Self::Bash => bash::DESCRIPTION,
            Self::WebFetch => web_fetch::DESCRIPTION,
            Self::TodoWrite => todo_write::DESCRIPTION,
            Self::PlanMode => plan_mode::DESCRIPTION,
            Self::SpawnAgent => spawn_agent::DESCRIPTION,
        }
    }

    /// The JSON Schema of its arguments, as the model sees it.
    pub fn parameters(self) -> Value {
        match self {
            Self::Read => read::parameters(),
            Self::Glob => glob::parameters(),
            Self::Grep => grep::parameters(),
            Self::Write => write::parameters(),
            Self::Edit => edit::parameters(),
            Self::Bash => bash::parameters(),
            Self::WebFetch => web_fetch::parameters(),
            Self::TodoWrite => todo_write::parameters(),
            Self::PlanMode => plan_mode::parameters(),
            Self::SpawnAgent => spawn_agent::parameters(),
        }
    }

    /// The JSON Schema that arguments are validated against before a run. It is laxer than
    /// `parameters`: the tool itself reports missing fields, and fields for which it has an error
    /// code of its own.
    pub fn validation_schema(self) -> Value {
        let mut schema = self.parameters();
        if let Some(schema) = schema.as_object_mut() {
            schema.remove("required");
            let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
            for (name, property) in properties.into_iter().flatten() {
                match (self, name.as_str()) {
                    (Self::TodoWrite, "todos") | (Self::PlanMode, "action") => {
                        *property = json!({});
                    }
                    // Null means the same as an absent field.
                    _ => {
                        let kind = property["type"].clone();
                        if kind.is_string() {
                            property["type"] = json!([kind, "null"]);
                        }
                    }
                }
            }
        }
        schema
    }

    /// Whether it may run in the phase `plan`.
    pub fn is_allowed_in_plan(self) -> bool {
        match self {
            Self::Read
            | Self::Glob
            | Self::Grep
            | Self::WebFetch
            | Self::PlanMode
            | Self::SpawnAgent => true,
            Self::Write | Self::Edit | Self::Bash | Self::TodoWrite => false,
        }
    }

    /// Whether it needs no approval in the phase `accept_edits`.
    pub fn is_accepted_with_edits(self) -> bool {
        self != Self::Bash
    }

    /// The lane of a call: the calls of one message that share a lane (a file, the to-do list, the
    /// phase) run one after another, in call order. A file addressed by two different paths may be
    /// read while it is being written, but a reader never sees a half-written file.
    pub fn lane(self, args: &Value) -> Option<String> {
        match self {
            Self::Read | Self::Write | Self::Edit => {
                let path = argument(args, "path")?.as_str()?;
                Some(format!("file: {}", path.trim_start_matches("./")))
            }
            // The last of several calls counts.
            Self::TodoWrite | Self::PlanMode => Some(self.name().to_owned()),
            Self::Glob | Self::Grep | Self::Bash | Self::WebFetch | Self::SpawnAgent => None,
        }
    }

    /// Whether it works in the conversation's workspace.
    pub fn needs_workspace(self) -> bool {
        match self {
            Self::Read | Self::Glob | Self::Grep | Self::Write | Self::Edit | Self::Bash => true,
            Self::WebFetch | Self::TodoWrite | Self::PlanMode | Self::SpawnAgent => false,
        }
    }

    /// Runs a call that the gate granted.
    pub(super) async fn run(self, run: &Run, services: &BuiltinServices) -> ToolReturn {
        let args = run.grant.args();
        match self {
            Self::WebFetch => web_fetch::run(args, &run.environment, &services.fetcher).await,
            Self::TodoWrite => todo_write::run(args),
            Self::PlanMode => plan_mode::run(args, run.environment.base_phase),
            Self::Read | Self::Glob | Self::Grep | Self::Write | Self::Edit | Self::Bash => {
                let workspace = match open_workspace(run, services).await {
                    Ok(workspace) => workspace,
                    Err(unavailable) => return ToolReturn::error(unavailable),
                };
                self.run_in_workspace(&workspace, run, services).await
            }
            // A child conversation answers these calls.
            Self::SpawnAgent => ToolReturn::error("the tool does not run here"),
        }
    }

    async fn run_in_workspace(
        self,
        workspace: &Workspace,
        run: &Run,
        services: &BuiltinServices,
    ) -> ToolReturn {
        let args = run.grant.args();
        match self {
            Self::Read => read::run(workspace, args).await,
            Self::Glob => glob::run(workspace, args).await,
            Self::Grep => grep::run(workspace, args).await,
            Self::Write => write::run(workspace, args).await,
            Self::Edit => edit::run(workspace, args).await,
            Self::Bash => {
                bash::run(args, workspace.root(), run.environment.network.clone(), &services.shell)
                    .await
            }
            Self::WebFetch | Self::TodoWrite | Self::PlanMode | Self::SpawnAgent => {
                ToolReturn::error("the tool needs no workspace")
            }
        }
    }

    /// How long a run may take, unless its entry says otherwise.
    pub fn run_timeout(self) -> Duration {
        let seconds = match self {
            // Longer than the tools' own timeouts, which apply first.
            Self::Bash => 660,
            Self::WebFetch => 90,
            // A child conversation may wait for people.
            Self::SpawnAgent => 3_600,
            Self::Read
            | Self::Glob
            | Self::Grep
            | Self::Write
            | Self::Edit
            | Self::TodoWrite
            | Self::PlanMode => 60,
        };
        Duration::from_secs(seconds)
    }
}

/// Opens the conversation's workspace. A failure is logged, shown in `/readyz`, and returned as the
/// text that the model reads.
async fn open_workspace(run: &Run, services: &BuiltinServices) -> Result<Workspace, String> {
    let (workspaces, environment) = (services.workspaces.clone(), run.environment.clone());
    let opened = tokio::task::spawn_blocking(move || {
        workspaces.open(&environment.workspace, environment.storage.as_deref())
    });
    let opened = opened.await.map_err(|error| format!("workspace_unavailable: {error}"))?;
    opened.map_err(|unavailable| {
        tracing::error!(conversation = %run.conversation, %unavailable, "workspace not opened");
        unavailable.to_string()
    })
}

/// The argument of that name, unless it is missing or null.
fn argument<'a>(args: &'a Value, name: &str) -> Option<&'a Value> {
    args.get(name).filter(|value| !value.is_null())
}
