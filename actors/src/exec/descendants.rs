//! Finds the descendants of a process in /proc.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::{fs, io};

use rustix::param::page_size;
use rustix::process::{Pid, Signal, getpgrp, kill_process, kill_process_group};

/// The descendants in one scan. Processes that started or ended during the scan may be missing or
/// counted.
#[derive(Debug, Default)]
pub(super) struct Descendants {
    pub(super) processes: Vec<Pid>,
    /// Their resident memory; a shared page counts once for each process.
    pub(super) memory_bytes: u64,
    /// Their process groups.
    groups: HashSet<Pid>,
}

impl Descendants {
    /// Finds the children, grandchildren and so on of a process. It must be a subreaper, so that
    /// none of them ever gets a parent outside.
    pub(super) fn of(ancestor: Pid) -> io::Result<Self> {
        let mut children: HashMap<Pid, Vec<Process>> = HashMap::new();
        for entry in fs::read_dir("/proc")? {
            if let Some(process) = Process::read(&entry?.path()) {
                children.entry(process.parent).or_default().push(process);
            }
        }
        let mut found = Self::default();
        let mut next = children.remove(&ancestor).unwrap_or_default();
        // Each parent's children are removed from the map once, so this ends.
        while let Some(process) = next.pop() {
            next.extend(children.remove(&process.id).unwrap_or_default());
            found.processes.push(process.id);
            found.memory_bytes += process.memory_bytes;
            found.groups.insert(process.group);
        }
        Ok(found)
    }

    /// Sends a signal to all of them; a process that has ended is no error.
    ///
    /// Whole groups come first: the kernel signals a group at once, while processes that are
    /// signalled one by one may start others faster.
    pub(super) fn signal(&self, signal: Signal) {
        // A process may have joined our own group, which must survive.
        for group in self.groups.iter().filter(|group| **group != getpgrp()) {
            let _ = kill_process_group(*group, signal);
        }
        for process in &self.processes {
            let _ = kill_process(*process, signal);
        }
    }
}

/// The last process id that the kernel assigned: while it is the same, no process or thread
/// started.
pub(super) fn newest_pid() -> io::Result<String> {
    let load = fs::read_to_string("/proc/loadavg")?;
    Ok(load.split_whitespace().next_back().unwrap_or_default().to_owned())
}

struct Process {
    id: Pid,
    parent: Pid,
    group: Pid,
    memory_bytes: u64,
}

impl Process {
    /// Reads an entry of /proc; `None` if it is not a process, or the process has ended.
    fn read(path: &Path) -> Option<Self> {
        let id = Pid::from_raw(path.file_name()?.to_str()?.parse().ok()?)?;
        let stat = fs::read(path.join("stat")).ok()?;
        // The command's name is in parentheses and may contain anything, even parentheses.
        let name_end = stat.iter().rposition(|byte| *byte == b')')?;
        let rest = str::from_utf8(stat.get(name_end + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let parent = Pid::from_raw(fields.nth(1)?.parse().ok()?)?;
        let group = Pid::from_raw(fields.next()?.parse().ok()?)?;
        let pages: u64 = fields.nth(18)?.parse().ok()?;
        Some(Self { id, parent, group, memory_bytes: pages * page_size() as u64 })
    }
}
