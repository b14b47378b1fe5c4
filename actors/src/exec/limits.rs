//! What one command may use.

use rustix::io;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

/// All commands of a node at their bound of processes. The kernel counts per user, so a smaller
/// number would let one command starve the others; the bound of one command is `processes`. The
/// kernel does not hold root to it.
const PROCESSES_OF_USER: u64 = 64 * 256;
/// As many as a login shell commonly has.
const OPEN_FILES: u64 = 1024;

/// What one command may use, all its processes together unless said otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Processor time of each process; the kernel ends one that takes more (`exit 152`).
    pub cpu_seconds: u64,
    /// Bytes. No process gets more private memory than this, and the command ends when what its
    /// processes hold resident is more; pages that they share count once for each.
    pub memory: u64,
    /// Bytes of each file; the kernel ends a process that writes more (`exit 153`).
    pub file_size: u64,
    /// How many processes at once.
    pub processes: usize,
    /// Bytes of output, kept or not.
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
    /// Holds this process, and all that it starts, to what the kernel can watch.
    pub(super) fn take_on(&self) -> io::Result<()> {
        lower(Resource::Core, 0)?;
        lower(Resource::Nofile, OPEN_FILES)?;
        lower(Resource::Nproc, PROCESSES_OF_USER)?;
        lower(Resource::Fsize, self.file_size)?;
        lower(Resource::Cpu, self.cpu_seconds)?;
        // Not the address space: runtimes reserve far more of that than they ever use.
        lower(Resource::Data, self.memory)
    }
}

/// Never raises a limit that is lower already.
fn lower(resource: Resource, wanted: u64) -> io::Result<()> {
    let now = getrlimit(resource);
    let at_most = |limit: Option<u64>| Some(limit.map_or(wanted, |limit| limit.min(wanted)));
    setrlimit(resource, Rlimit { current: at_most(now.current), maximum: at_most(now.maximum) })
}
