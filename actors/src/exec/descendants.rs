//! Which processes come from one, found in /proc.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::{fs, io};

use rustix::param::page_size;
use rustix::process::{Pid, Signal, getpgrp, kill_process, kill_process_group};

/// What was alive in one look; what began or ended meanwhile may be missing or too many.
#[derive(Debug, Default)]
pub(super) struct Descendants {
    pub(super) processes: Vec<Pid>,
    /// Bytes that they hold resident; pages that they share count once for each.
    pub(super) memory: u64,
    /// The process groups that they are in.
    groups: HashSet<Pid>,
}

impl Descendants {
    /// Children, grandchildren and so on of a process that is a subreaper, so that none of them
    /// ever gets another parent.
    pub(super) fn of(ancestor: Pid) -> io::Result<Self> {
        let mut children: HashMap<Pid, Vec<Process>> = HashMap::new();
        for entry in fs::read_dir("/proc")? {
            if let Some(process) = Process::read(&entry?.path()) {
                children.entry(process.parent).or_default().push(process);
            }
        }
        let mut found = Self::default();
        let mut next = children.remove(&ancestor).unwrap_or_default();
        // Each parent's children are taken once, so this ends.
        while let Some(process) = next.pop() {
            next.extend(children.remove(&process.id).unwrap_or_default());
            found.processes.push(process.id);
            found.memory += process.memory;
            found.groups.insert(process.group);
        }
        Ok(found)
    }

    /// A process that ended already gets nothing.
    ///
    /// Whole groups come first: the kernel reaches all of a group at once, while processes that
    /// are signalled one by one may start others faster.
    pub(super) fn signal(&self, signal: Signal) {
        // A process may have joined our own group, and we are to live.
        for group in self.groups.iter().filter(|group| **group != getpgrp()) {
            let _ = kill_process_group(*group, signal);
        }
        for process in &self.processes {
            let _ = kill_process(*process, signal);
        }
    }
}

/// The number that the kernel gave last to a process or thread: while it is the same, none began.
pub(super) fn newest() -> io::Result<String> {
    let load = fs::read_to_string("/proc/loadavg")?;
    Ok(load.split_whitespace().next_back().unwrap_or_default().to_owned())
}

struct Process {
    id: Pid,
    parent: Pid,
    group: Pid,
    memory: u64,
}

impl Process {
    /// `None` where there is no process, or no longer.
    fn read(path: &Path) -> Option<Self> {
        let id = Pid::from_raw(path.file_name()?.to_str()?.parse().ok()?)?;
        let stat = fs::read(path.join("stat")).ok()?;
        // The command's name stands in parentheses and may hold anything, parentheses too.
        let name_end = stat.iter().rposition(|byte| *byte == b')')?;
        let rest = str::from_utf8(stat.get(name_end + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let parent = Pid::from_raw(fields.nth(1)?.parse().ok()?)?;
        let group = Pid::from_raw(fields.next()?.parse().ok()?)?;
        let pages: u64 = fields.nth(18)?.parse().ok()?;
        Some(Self { id, parent, group, memory: pages * page_size() as u64 })
    }
}
