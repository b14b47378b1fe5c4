//! Watches one command: its output, its processes, its time, and whether anybody still waits.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, pidfd_open, wait};
use tokio::time::Instant;

use super::descendants::{Descendants, newest};
use super::launcher::CONFINE;
use super::output::Kept;
use super::request::Request;
use super::{CommandOutput, ExitStatus, LONGEST_OUTPUT};

/// Two processors start some hundred processes in this time.
const LOOK: Duration = Duration::from_millis(20);
/// Memory grows without a process more, but each process has a bound of its own.
const LOOK_ANYWAY: Duration = Duration::from_millis(200);
/// A look reads all of /proc; it takes at most a quarter of a processor.
const LOOK_SHARE: u32 = 3;
/// What a process has to tidy up after TERM.
const GRACE: Duration = Duration::from_secs(2);
/// KILL works at once, unless a process hangs in the kernel, as on a broken network disk.
const KILLING: Duration = Duration::from_secs(10);
/// How soon the end of processes that are being ended is seen.
const SOON: Duration = Duration::from_millis(5);
/// Our own second stage does nothing that takes time.
const STARTING: Duration = Duration::from_secs(10);
/// One read; a pipe holds as much.
const CHUNK: usize = 64 * 1024;

/// Why the command is over.
pub(super) enum Why {
    Ended(ExitStatus),
    /// Nobody waits for it any more.
    LetGo,
    /// It cannot be watched.
    Broken(io::Error),
}

/// What a step waits for.
#[derive(Clone, Copy, PartialEq)]
enum Source {
    Leash,
    Main,
    Output,
}

/// One command that runs, and all that came from it.
pub(super) struct Watch<'a> {
    request: &'a Request,
    main: Pid,
    /// Readable when `main` has ended.
    main_ended: OwnedFd,
    let_go: bool,
    status: Option<i32>,
    /// Nothing that came from the command is left, dead or alive.
    childless: bool,
    /// `None` when all of it was read.
    output: Option<OwnedFd>,
    kept: Kept,
    began: Instant,
    /// When it was looked for processes, and which was the newest then.
    looked: Instant,
    newest: Option<String>,
    look_after: Duration,
}

impl<'a> Watch<'a> {
    /// Starts the command in a process group of its own; the inner error says why it cannot run.
    pub(super) fn start(request: &'a Request) -> io::Result<Result<Self, String>> {
        let (output, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
        let (mut stage, config) = UnixStream::pair()?;
        let began = Instant::now();
        // Without /proc, nothing that the command starts could be found again.
        newest()?;
        let child = Command::new("/proc/self/exe")
            .arg(CONFINE)
            .env("HOME", std::env::current_dir()?)
            .env("TMPDIR", &request.temporary)
            .env("TERM", "dumb")
            .stdin(OwnedFd::from(config))
            .stdout(theirs.try_clone()?)
            .stderr(theirs)
            .process_group(0)
            .spawn()?;
        let main = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
        let main_ended = pidfd_open(main, PidfdFlags::empty())?;
        stage.set_read_timeout(Some(STARTING))?;
        stage.write_all(&serde_json::to_vec(request)?)?;
        stage.shutdown(Shutdown::Write)?;
        let mut refusal = String::new();
        // Ends when the stage has become the command, which has no such socket.
        stage.read_to_string(&mut refusal)?;
        if !refusal.is_empty() {
            return Ok(Err(refusal));
        }
        Ok(Ok(Self {
            request,
            main,
            main_ended,
            let_go: false,
            status: None,
            childless: false,
            output: Some(output),
            kept: Kept::new(LONGEST_OUTPUT / 2),
            began,
            looked: began,
            newest: None,
            look_after: LOOK,
        }))
    }

    /// Returns when the command has ended, went beyond a bound, or is not wanted any more.
    pub(super) fn until_it_ends(&mut self) -> Why {
        let deadline = self.began + Duration::from_millis(self.request.timeout_ms);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Err(error) = self.step(left.min(LOOK)) {
                return Why::Broken(error);
            }
            let over = match self.status {
                _ if self.let_go => return Why::LetGo,
                Some(code) => Some(ExitStatus::Exited(code)),
                None if left.is_zero() => Some(ExitStatus::TimedOut),
                None => self.beyond_a_bound(),
            };
            if let Some(how) = over {
                return Why::Ended(how);
            }
        }
    }

    /// TERM to all that came from the command, then KILL. False if some of it does not end.
    pub(super) fn end_all(&mut self, why: &Why) -> bool {
        // Who floods the machine would use the grace for more of it.
        if !matches!(why, Why::Ended(ExitStatus::TooManyProcesses | ExitStatus::TooMuchMemory)) {
            let until = Instant::now() + GRACE;
            let all = self.look();
            all.signal(Signal::TERM);
            // One that is stopped hears TERM only when it goes on.
            all.signal(Signal::CONT);
            while !self.childless && Instant::now() < until && self.beyond_a_bound().is_none() {
                // What cannot be read is lost; the end must come all the same.
                let _ = self.step(SOON);
            }
        }
        let until = Instant::now() + KILLING;
        while !self.childless && Instant::now() < until {
            // Again and again, since what is not killed yet may start more.
            self.look().signal(Signal::KILL);
            let _ = self.step(SOON);
        }
        self.childless
    }

    /// How it ended, with the output until now.
    pub(super) fn ended(mut self, how: ExitStatus) -> CommandOutput {
        let duration = self.began.elapsed();
        let mut before = None;
        // A pipe holds a bounded rest, and nobody is left to write more.
        while before != Some(self.kept.total()) {
            before = Some(self.kept.total());
            let _ = self.step(Duration::ZERO);
        }
        CommandOutput {
            how,
            output: self.kept.text(LONGEST_OUTPUT),
            duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Waits until something happens, reads what there is, buries the dead.
    fn step(&mut self, limit: Duration) -> io::Result<()> {
        let leash = io::stdin();
        let mut sources = Vec::new();
        if !self.let_go {
            sources.push((Source::Leash, leash.as_fd()));
        }
        if self.status.is_none() {
            sources.push((Source::Main, self.main_ended.as_fd()));
        }
        if let Some(output) = &self.output {
            sources.push((Source::Output, output.as_fd()));
        }
        let asked = sources.iter().map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN));
        let mut asked: Vec<_> = asked.collect();
        poll(&mut asked, Some(&Timespec::try_from(limit).map_err(|_| Errno::INVAL)?))?;
        let answers = asked.iter().map(|fd| !fd.revents().is_empty());
        let ready = sources.iter().zip(answers).filter(|(_, ready)| *ready);
        let ready: Vec<Source> = ready.map(|((source, _), _)| *source).collect();
        // Nothing more comes on the leash than its end.
        self.let_go |= ready.contains(&Source::Leash);
        if ready.contains(&Source::Output) {
            self.read()?;
        }
        self.bury();
        Ok(())
    }

    fn read(&mut self) -> io::Result<()> {
        let Some(output) = &self.output else { return Ok(()) };
        let mut chunk = [0; CHUNK];
        match rustix::io::read(output, &mut chunk)? {
            0 => self.output = None,
            length => self.kept.add(&chunk[..length]),
        }
        Ok(())
    }

    /// Every orphan among what came from the command is a child of this process.
    fn bury(&mut self) {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((id, status))) if id == self.main => self.status = Some(code(status)),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return,
                Err(_) => {
                    self.childless = true;
                    return;
                }
            }
        }
    }

    fn beyond_a_bound(&mut self) -> Option<ExitStatus> {
        if self.kept.total() > self.request.limits.output {
            return Some(ExitStatus::Flooded);
        }
        if !self.is_due() {
            return None;
        }
        let seen = self.look();
        if seen.processes.len() > self.request.limits.processes {
            return Some(ExitStatus::TooManyProcesses);
        }
        (seen.memory > self.request.limits.memory).then_some(ExitStatus::TooMuchMemory)
    }

    /// A look costs more the more processes the machine has, and most find nothing new.
    fn is_due(&self) -> bool {
        let since = self.looked.elapsed();
        since >= self.look_after.max(LOOK_ANYWAY)
            || since >= self.look_after && newest().ok() != self.newest
    }

    fn look(&mut self) -> Descendants {
        self.newest = newest().ok();
        self.looked = Instant::now();
        // Without /proc the command would not have been started.
        let seen = Descendants::of(getpid()).unwrap_or_default();
        self.look_after = LOOK.max(self.looked.elapsed() * LOOK_SHARE);
        seen
    }
}

/// As shells count: 128 and the signal's number for one that a signal ended.
fn code(status: WaitStatus) -> i32 {
    let signal = status.terminating_signal().map(|signal| 128 + signal);
    status.exit_status().or(signal).unwrap_or(-1)
}
