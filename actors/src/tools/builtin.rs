//! The ten built-in tools, one file each.

mod bash;
#[allow(dead_code)]
mod edit;
#[allow(dead_code)]
mod glob;
#[allow(dead_code)]
mod grep;
mod plan_mode;
#[allow(dead_code)]
mod read;
pub(crate) mod spawn_agent;
mod todo_write;
#[allow(dead_code)]
mod web_fetch;
#[allow(dead_code)]
mod write;

use std::time::Duration;

use serde_json::{Value, json};

use super::native::Returned;
use super::run::Run;

/// A built-in tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    Read,
    Glob,
    Grep,
    Write,
    Edit,
    Bash,
    WebFetch,
    TodoWrite,
    PlanMode,
    SpawnAgent,
}

impl Builtin {
    /// All of them, in the order in which `{builtin: all}` adds them.
    pub const ALL: [Self; 10] = [
        Self::Read,
        Self::Glob,
        Self::Grep,
        Self::Write,
        Self::Edit,
        Self::Bash,
        Self::WebFetch,
        Self::TodoWrite,
        Self::PlanMode,
        Self::SpawnAgent,
    ];

    /// The built-in tool of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|builtin| builtin.name() == name)
    }

    /// What definitions and models call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Glob => "glob",
            Self::Grep => "grep",
            Self::Write => "write",
            Self::Edit => "edit",
            Self::Bash => "bash",
            Self::WebFetch => "web_fetch",
            Self::TodoWrite => "todo_write",
            Self::PlanMode => "plan_mode",
            Self::SpawnAgent => "spawn_agent",
        }
    }

    /// What the model is told of it.
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

    /// The JSON Schema of its arguments, as the model is told of them.
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

    /// What its arguments are held to before it sees them. What is missing, and what it has an error
    /// of its own for, it judges itself.
    pub fn checked(self) -> Value {
        let mut schema = self.parameters();
        if let Some(schema) = schema.as_object_mut() {
            schema.remove("required");
            let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
            for (name, property) in properties.into_iter().flatten() {
                match (self, name.as_str()) {
                    (Self::TodoWrite, "todos") | (Self::PlanMode, "action") => {
                        *property = json!({});
                    }
                    _ => {}
                }
            }
        }
        schema
    }

    /// Whether it may run while the conversation plans.
    pub fn changes_nothing(self) -> bool {
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
    pub fn edits_at_most(self) -> bool {
        self != Self::Bash
    }

    /// Runs a call that the gate granted.
    pub(super) async fn run(self, run: &Run) -> Returned {
        let args = run.grant.args();
        match self {
            Self::TodoWrite => todo_write::run(args),
            Self::PlanMode => plan_mode::run(args, run.place.granted),
            _ => Returned::error("not yet"),
        }
    }

    /// How long a run may take, unless its entry says otherwise.
    pub fn run_timeout(self) -> Duration {
        let seconds = match self {
            // Their own time-outs come first.
            Self::Bash => 660,
            Self::WebFetch => 90,
            // A child may wait for people.
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

/// The argument, unless it is missing or null.
fn given<'a>(args: &'a Value, name: &str) -> Option<&'a Value> {
    args.get(name).filter(|value| !value.is_null())
}
