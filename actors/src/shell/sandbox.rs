//! What the kernel keeps a command from: Landlock, as far as the kernel has it.

use std::os::fd::AsFd;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, Scope,
};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
use serde::Serialize;

/// The newest rules that we know; an older kernel takes those that it knows.
const RULES: ABI = ABI::V9;
/// What any program may write to, since nothing stays there.
const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// With one of these root reads other processes' memory in spite of the rules, as kernels since
/// 6.13 let it.
const TOO_MIGHTY: [CapabilitySet; 3] =
    [CapabilitySet::SYS_ADMIN, CapabilitySet::SYS_PTRACE, CapabilitySet::PERFMON];

/// Whether commands run in a sandbox.
///
/// In it a command writes, creates and removes only below its workspace and its temporary
/// directory; it cannot read the memory or the environment of a process outside, the node's
/// included; it cannot send signals to one; and unless its call has the network it cannot open
/// or accept TCP connections. Not covered: reading files, which stays as the node's user may;
/// UDP and other protocols; on kernels of today sockets in the file system, such as Docker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sandbox {
    Off,
    /// As much of it as the kernel has.
    Auto,
}

/// What `/readyz` shows of the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxStatus {
    Off,
    /// With what this kernel cannot keep a command from; empty where it can do all.
    On {
        gaps: Vec<String>,
    },
    /// Commands run without, for this reason.
    Unavailable(String),
}

/// Asks the kernel; changes nothing.
pub(super) fn probe() -> SandboxStatus {
    let hard = || Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let base = hard().handle_access(AccessFs::from_write(ABI::V1));
    if let Err(error) = base.and_then(Ruleset::create) {
        return SandboxStatus::Unavailable(error.to_string());
    }
    let known = [
        ("truncating files outside", hard().handle_access(AccessFs::Truncate)),
        ("TCP connections", hard().handle_access(AccessNet::from_all(ABI::V4))),
        ("signals to other processes", hard().scope(Scope::Signal)),
    ];
    let gaps = known.into_iter().filter(|(_, rule)| rule.is_err());
    SandboxStatus::On { gaps: gaps.map(|(what, _)| what.to_owned()).collect() }
}

/// Puts this thread, and all that it starts, into the sandbox for good.
pub(super) fn enter(network: bool, writable: &[impl AsFd]) -> Result<(), RulesetError> {
    for capability in TOO_MIGHTY {
        // Who may not drop them does not have them.
        let _ = remove_capability_from_bounding_set(capability);
    }
    let writing = AccessFs::from_write(RULES);
    let mut rules = Ruleset::default().handle_access(writing)?.scope(Scope::from_all(RULES))?;
    if !network {
        rules = rules.handle_access(AccessNet::from_all(RULES))?;
    }
    let mut rules = rules.create()?;
    for directory in writable {
        rules = rules.add_rule(PathBeneath::new(directory, writing))?;
    }
    // A device that a container lacks needs no rule.
    for device in DEVICES.iter().filter_map(|path| PathFd::new(path).ok()) {
        let allowed = AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
        rules = rules.add_rule(PathBeneath::new(device, allowed))?;
    }
    rules.restrict_self()?;
    Ok(())
}
