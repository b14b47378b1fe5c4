//! Watches one program: its output, its processes, its timeout, and the leash.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, pidfd_open, wait};
use tokio::time::Instant;

use super::descendants::{Descendants, newest_pid};
use super::output::HeadAndTail;
use super::request::{Program, Request};
use super::spawn_launcher::CONFINE_SUBCOMMAND;
use super::{CommandOutput, ExitStatus, MAX_OUTPUT_BYTES, handover};

/// Two processors start some hundred processes in the time between two scans.
const COMMAND_PACE: Pace =
    Pace { scan: Duration::from_millis(20), unconditional: Duration::from_millis(200) };
/// A server runs for hours, and mostly waits: it must cost next to nothing meanwhile.
const SERVER_PACE: Pace =
    Pace { scan: Duration::from_millis(500), unconditional: Duration::from_secs(5) };
/// A scan reads all of /proc. The pause is this many times as long as the scan took, so that scans
/// take at most a quarter of a processor.
const SCAN_PAUSE_FACTOR: u32 = 3;
/// How long processes may take to exit after TERM.
const TERM_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait after KILL, which works at once unless a process hangs in the kernel, as on a
/// broken network disk.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// How soon the exit of processes is noticed while they are being ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long the second stage may take, which does nothing slow.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// The size of one read; a pipe holds as much.
const READ_CHUNK_BYTES: usize = 64 * 1024;

/// How often processes are scanned.
struct Pace {
    /// If new ones started.
    scan: Duration,
    /// Even if none started: memory may grow, but each process has a limit of its own.
    unconditional: Duration,
}

/// Why watching the program ended.
pub(super) enum EndReason {
    Ended(ExitStatus),
    /// The node closed the leash: nobody waits any more.
    Abandoned,
    /// The command cannot be watched.
    WatchFailed(io::Error),
}

/// A file descriptor that a step polls.
#[derive(Clone, Copy, PartialEq)]
enum Source {
    Leash,
    Main,
    Output,
}

/// A running program and all its descendants.
pub(super) struct Watch<'a> {
    request: &'a Request,
    /// The leash, and the way of a server's log to the node.
    control: &'a UnixStream,
    pace: Pace,
    main: Pid,
    /// Readable when `main` has exited.
    main_ended: OwnedFd,
    abandoned: bool,
    exit_code: Option<i32>,
    /// No descendant is left, dead or alive.
    childless: bool,
    /// `None` when all output was read.
    output: Option<OwnedFd>,
    captured: HeadAndTail,
    started_at: Instant,
    /// When processes were last scanned, and the newest process id at that time.
    scanned_at: Instant,
    newest_pid: Option<String>,
    scan_interval: Duration,
}

impl<'a> Watch<'a> {
    /// Starts the program in a process group of its own. The inner error says why it cannot run.
    pub(super) fn start(
        request: &'a Request,
        control: &'a UnixStream,
    ) -> io::Result<Result<Self, String>> {
        let (output, write_end) = pipe_with(PipeFlags::CLOEXEC)?;
        let (mut second_stage, config) = UnixStream::pair()?;
        let (stdout, pace) = match request.program {
            Program::CommandLine(_) => (write_end.try_clone()?.into(), COMMAND_PACE),
            Program::Server { .. } => (Stdio::inherit(), SERVER_PACE),
        };
        let started_at = Instant::now();
        // Fails without /proc, where the command's descendants could not be found.
        newest_pid()?;
        let child = Command::new("/proc/self/exe")
            .arg(CONFINE_SUBCOMMAND)
            .env("HOME", std::env::current_dir()?)
            .env("TERM", "dumb")
            .envs(&request.environment)
            .env("TMPDIR", &request.temporary)
            .stdin(OwnedFd::from(config))
            .stdout(stdout)
            .stderr(write_end)
            .process_group(0)
            .spawn()?;
        let main = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        let main_ended = pidfd_open(main, PidfdFlags::empty())?;
        second_stage.set_read_timeout(Some(START_TIMEOUT))?;
        handover::send(&second_stage, io::stdin().as_fd())?;
        second_stage.write_all(&serde_json::to_vec(request)?)?;
        second_stage.shutdown(Shutdown::Write)?;
        let mut refusal = String::new();
        // Ends when the second stage has become the program, which does not inherit the socket.
        second_stage.read_to_string(&mut refusal)?;
        if !refusal.is_empty() {
            return Ok(Err(refusal));
        }
        Ok(Ok(Self {
            request,
            control,
            main,
            main_ended,
            abandoned: false,
            exit_code: None,
            childless: false,
            output: Some(output),
            captured: HeadAndTail::new(MAX_OUTPUT_BYTES / 2),
            started_at,
            scanned_at: started_at,
            newest_pid: None,
            scan_interval: pace.scan,
            pace,
        }))
    }

    /// Returns when the program has exited, exceeded a limit, or was abandoned.
    pub(super) fn wait(&mut self) -> EndReason {
        let timeout = self.request.timeout_ms.map(Duration::from_millis);
        loop {
            let left = timeout.map(|timeout| timeout.saturating_sub(self.started_at.elapsed()));
            let pause = left.map_or(self.pace.scan, |left| left.min(self.pace.scan));
            if let Err(error) = self.step(pause) {
                return EndReason::WatchFailed(error);
            }
            let exit_status = match self.exit_code {
                _ if self.abandoned => return EndReason::Abandoned,
                Some(code) => Some(ExitStatus::Exited(code)),
                None if left.is_some_and(|left| left.is_zero()) => Some(ExitStatus::TimedOut),
                None => self.exceeded_limit(),
            };
            if let Some(status) = exit_status {
                return EndReason::Ended(status);
            }
        }
    }

    /// Ends all descendants with TERM, then KILL. False if some cannot be killed.
    pub(super) fn end_descendants(&mut self, reason: &EndReason) -> bool {
        // A command that floods the machine gets no grace period, in which it would go on.
        if !matches!(
            reason,
            EndReason::Ended(ExitStatus::TooManyProcesses | ExitStatus::TooMuchMemory)
        ) {
            let until = Instant::now() + TERM_TIMEOUT;
            let all = self.scan();
            all.signal(Signal::TERM);
            // A stopped process handles TERM only after CONT.
            all.signal(Signal::CONT);
            while !self.childless && Instant::now() < until && self.exceeded_limit().is_none() {
                // A read error loses output, but must not prevent the end.
                let _ = self.step(POLL_INTERVAL);
            }
        }
        let until = Instant::now() + KILL_TIMEOUT;
        while !self.childless && Instant::now() < until {
            // Repeated, since processes that are still alive may start more.
            self.scan().signal(Signal::KILL);
            let _ = self.step(POLL_INTERVAL);
        }
        self.childless
    }

    /// The result with this status and all output.
    pub(super) fn into_output(mut self, status: ExitStatus) -> CommandOutput {
        let duration = self.started_at.elapsed();
        let mut before = None;
        // The rest in the pipe is bounded, since nobody is left to write.
        while before != Some(self.captured.total()) {
            before = Some(self.captured.total());
            let _ = self.step(Duration::ZERO);
        }
        CommandOutput {
            status,
            output: self.captured.text(MAX_OUTPUT_BYTES),
            duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Waits for an event, reads the available output, and reaps exited processes.
    fn step(&mut self, limit: Duration) -> io::Result<()> {
        let mut sources = Vec::new();
        if !self.abandoned {
            sources.push((Source::Leash, self.control.as_fd()));
        }
        if self.exit_code.is_none() {
            sources.push((Source::Main, self.main_ended.as_fd()));
        }
        if let Some(output) = &self.output {
            sources.push((Source::Output, output.as_fd()));
        }
        let polled = sources.iter().map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN));
        let mut polled: Vec<_> = polled.collect();
        poll(&mut polled, Some(&Timespec::try_from(limit).map_err(|_| Errno::INVAL)?))?;
        let answers = polled.iter().map(|fd| !fd.revents().is_empty());
        let ready = sources.iter().zip(answers).filter(|(_, ready)| *ready);
        let ready: Vec<Source> = ready.map(|((source, _), _)| *source).collect();
        // The only event on the leash is its end.
        self.abandoned |= ready.contains(&Source::Leash);
        if ready.contains(&Source::Output) {
            self.read()?;
        }
        self.reap();
        Ok(())
    }

    fn read(&mut self) -> io::Result<()> {
        let Some(output) = &self.output else { return Ok(()) };
        let mut chunk = [0; READ_CHUNK_BYTES];
        match rustix::io::read(output, &mut chunk)? {
            0 => self.output = None,
            length => match self.request.program {
                Program::CommandLine(_) => self.captured.add(&chunk[..length]),
                Program::Server { .. } => {
                    // A node that does not read loses some of the log, and the server never waits.
                    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                    let _ = send(self.control, &chunk[..length], flags);
                }
            },
        }
        Ok(())
    }

    /// Reaps exited children; every orphaned descendant becomes a child of this process.
    fn reap(&mut self) {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((id, status))) if id == self.main => {
                    self.exit_code = Some(shell_exit_code(status))
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return,
                Err(_) => {
                    self.childless = true;
                    return;
                }
            }
        }
    }

    fn exceeded_limit(&mut self) -> Option<ExitStatus> {
        if self.captured.total() > self.request.limits.output {
            return Some(ExitStatus::Flooded);
        }
        if !self.is_scan_due() {
            return None;
        }
        let descendants = self.scan();
        if descendants.processes.len() > self.request.limits.processes {
            return Some(ExitStatus::TooManyProcesses);
        }
        (descendants.memory_bytes > self.request.limits.memory).then_some(ExitStatus::TooMuchMemory)
    }

    /// A scan gets more expensive with the processes of the machine, and most find nothing new.
    fn is_scan_due(&self) -> bool {
        let since = self.scanned_at.elapsed();
        since >= self.scan_interval.max(self.pace.unconditional)
            || since >= self.scan_interval && newest_pid().ok() != self.newest_pid
    }

    fn scan(&mut self) -> Descendants {
        self.newest_pid = newest_pid().ok();
        self.scanned_at = Instant::now();
        // /proc exists, or the command would not have been started.
        let descendants = Descendants::of(getpid()).unwrap_or_default();
        self.scan_interval = self.pace.scan.max(self.scanned_at.elapsed() * SCAN_PAUSE_FACTOR);
        descendants
    }
}

/// The exit code as shells report it: 128 plus the signal's number after a signal.
fn shell_exit_code(status: WaitStatus) -> i32 {
    let signal = status.terminating_signal().map(|signal| 128 + signal);
    status.exit_status().or(signal).unwrap_or(-1)
}
