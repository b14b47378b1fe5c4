//! Resource limits of one command.

use rustix::io;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

/// The processes of all commands of a node together. The kernel counts per user, so a smaller
/// number would let one command starve the others; the limit of one command is `processes`. The
/// kernel does not apply this limit to root.
const MAX_USER_PROCESSES: u64 = 64 * 256;
/// The usual limit of a login shell.
const MAX_OPEN_FILES: u64 = 1024;

/// Resource limits of one command, for all its processes together unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// CPU time of each process; the kernel kills a process that takes more (`exit 152`).
    pub cpu_seconds: u64,
    /// In bytes. No process gets more private memory, and the command is ended when its processes
    /// together hold more resident memory; a shared page counts once for each process.
    pub memory: u64,
    /// Bytes of each file; the kernel kills a process that writes more (`exit 153`).
    pub file_size: u64,
    /// Concurrent processes.
    pub processes: usize,
    /// Bytes of output, including what is cut.
    pub output: u64,
}

impl Default for Limits {
    /// Enough to build and test a large program.
    fn default() -> Self {
        Self {
            cpu_seconds: 600,
            memory: 4 << 30,
            file_size: 1 << 30,
            processes: 256,
            output: 64 << 20,
        }
    }
}

impl Limits {
    /// Applies the limits that the kernel enforces to this process and all that it starts.
    pub(super) fn apply(&self) -> io::Result<()> {
        lower(Resource::Core, 0)?;
        lower(Resource::Nofile, MAX_OPEN_FILES)?;
        lower(Resource::Nproc, MAX_USER_PROCESSES)?;
        lower(Resource::Fsize, self.file_size)?;
        lower(Resource::Cpu, self.cpu_seconds)?;
        // Not the address space: runtimes reserve far more of it than they ever use.
        lower(Resource::Data, self.memory)
    }
}

/// Lowers a limit; one that is already lower stays.
fn lower(resource: Resource, wanted: u64) -> io::Result<()> {
    let now = getrlimit(resource);
    let at_most = |limit: Option<u64>| Some(limit.map_or(wanted, |limit| limit.min(wanted)));
    setrlimit(resource, Rlimit { current: at_most(now.current), maximum: at_most(now.maximum) })
}
