//! The sandbox of commands and servers: Landlock, as far as the kernel supports it.

use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, NetPort, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, Scope,
};
use rustix::fs::OFlags;
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
use serde::Serialize;

use super::allowed_ports::AllowedPorts;
use super::{readable, tcp_detours};

/// The newest Landlock version that we know; an older kernel applies the rules that it knows.
const RULES_ABI: ABI = ABI::V9;
/// Devices that every program may write to, since they store nothing.
const WRITABLE_DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// The gap of a kernel before 6.7.
const TCP_GAP: &str = "TCP connections";

/// Capabilities with which root could read other processes' memory despite the rules, as kernels
/// since 6.13 allow.
const DROPPED_CAPABILITIES: [CapabilitySet; 3] =
    [CapabilitySet::SYS_ADMIN, CapabilitySet::SYS_PTRACE, CapabilitySet::PERFMON];

/// Whether commands run in a sandbox.
///
/// In the sandbox a command can write, create and remove files only below its workspace and its
/// temporary directory. It cannot read the memory or the environment of processes outside,
/// including the node's, and cannot signal them. It connects by TCP only to the ports that it may.
/// It reads nothing of the node's store, as far as that is files. Not covered: reading other files,
/// which remains possible for all that the node's user can read; UDP and other protocols; and, on
/// current kernels, sockets in the file system, such as Docker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sandbox {
    Off,
    /// As much of the sandbox as the kernel supports.
    Auto,
}

/// The status of the sandbox, as shown in `/readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxStatus {
    Off,
    /// Commands run in the sandbox; `gaps` are what this kernel cannot prevent, empty if it
    /// supports everything.
    On {
        gaps: Vec<String>,
    },
    /// Commands run without a sandbox, for this reason.
    Unavailable(String),
}

impl SandboxStatus {
    /// Whether commands connect only to the ports that they may.
    pub(super) fn limits_tcp(&self) -> bool {
        match self {
            Self::On { gaps } => gaps.iter().all(|gap| gap != TCP_GAP),
            Self::Off | Self::Unavailable(_) => false,
        }
    }
}

/// Why the sandbox is not entered.
#[derive(Debug, thiserror::Error)]
pub(super) enum EnterError {
    #[error("{0}")]
    Rules(#[from] RulesetError),
    #[error("the filter of system calls: {0}")]
    Filter(#[from] seccompiler::Error),
}

/// Probes the kernel without changing anything.
pub(super) fn probe() -> SandboxStatus {
    let hard = || Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let base = hard().handle_access(AccessFs::from_write(ABI::V1));
    if let Err(error) = base.and_then(Ruleset::create) {
        return SandboxStatus::Unavailable(error.to_string());
    }
    let known = [
        ("truncating files outside", hard().handle_access(AccessFs::Truncate)),
        (TCP_GAP, hard().handle_access(AccessNet::from_all(ABI::V4))),
        ("signals to other processes", hard().scope(Scope::Signal)),
    ];
    let gaps = known.into_iter().filter(|(_, rule)| rule.is_err());
    SandboxStatus::On { gaps: gaps.map(|(what, _)| what.to_owned()).collect() }
}

/// Puts this thread and all that it starts into the sandbox, irrevocably.
///
/// It writes only below the writable directories, and reads below those and wherever nothing is hidden.
pub(super) fn enter(
    ports: &AllowedPorts,
    writable: &[impl AsFd],
    hidden: &[PathBuf],
) -> Result<(), EnterError> {
    for capability in DROPPED_CAPABILITIES {
        // A process that may not drop a capability does not have it.
        let _ = remove_capability_from_bounding_set(capability);
    }
    let writing = AccessFs::from_write(RULES_ABI);
    let mut rules = Ruleset::default().handle_access(writing)?.scope(Scope::from_all(RULES_ABI))?;
    if !hidden.is_empty() {
        rules = rules.handle_access(AccessFs::ReadFile)?;
    }
    let allowed = ports.allowed();
    if !ports.may_listen() {
        rules = rules.handle_access(AccessNet::from_all(RULES_ABI))?;
    } else if allowed.is_some() {
        rules = rules.handle_access(AccessNet::ConnectTcp)?;
    }
    let mut rules = rules.create()?;
    for port in allowed.iter().flatten() {
        rules = rules.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
    }
    for directory in writable {
        rules = rules.add_rule(PathBeneath::new(directory, writing))?;
        if !hidden.is_empty() {
            rules = rules.add_rule(PathBeneath::new(directory, AccessFs::ReadFile))?;
        }
    }
    for path in readable::all_but(hidden) {
        let mut options = OpenOptions::new();
        let flags = (OFlags::PATH | OFlags::NOFOLLOW).bits().cast_signed();
        // What cannot be opened cannot be read, either.
        if let Ok(file) = options.read(true).custom_flags(flags).open(path) {
            rules = rules.add_rule(PathBeneath::new(file, AccessFs::ReadFile))?;
        }
    }
    // A device that does not exist in a container needs no rule.
    for device in WRITABLE_DEVICES.iter().filter_map(|path| PathFd::new(path).ok()) {
        let allowed = AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
        rules = rules.add_rule(PathBeneath::new(device, allowed))?;
    }
    rules.restrict_self()?;
    if allowed.is_some() {
        tcp_detours::close()?;
    }
    Ok(())
}
