//! The names of the built-in tools.

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
    /// All built-in tools, in the order in which `{builtin: all}` adds them.
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
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|builtin| builtin.name() == name)
    }

    /// The name that definitions and models use.
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
}
