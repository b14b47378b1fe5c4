//! The one thread that writes: all that waits goes into one transaction, hence one fsync.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use abide_actors::journal::{Claim, Holder, StoreError};
use abide_conversation::ConversationId;
use redb::{Database, Error};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

use super::place::StoreDir;
use super::shared::{OpenFile, Shared};
use super::write::{Open, Outcome, Write};

/// Jobs that wait while one transaction is written; more of them wait at the queue's door, which
/// bounds the memory of a store behind a slow disk.
pub(super) const QUEUE: usize = 1024;
/// Writes of one transaction: enough to share an fsync, few enough that none waits long for it.
const BATCH: usize = 256;
/// The size of the file from which a commit also writes what makes a repair quick: below it, a
/// repair reads the whole file in less than half a second.
const QUICK_REPAIR: u64 = 256 << 20;
/// How often a closed file answers what waits for it.
const SLICE: Duration = Duration::from_millis(20);
/// The longest pause between two attempts to open the file again, in slices: a disk that has room
/// again is in use a second later, and one that stays full is not repaired over and over.
const PAUSE: u32 = 50;

/// What the writer is asked for. Claims that change hands pass through it, so that whoever gets a
/// conversation finds the journal as its last holder's writes left it.
pub(super) enum Job {
    Write(Box<Write>, oneshot::Sender<Outcome>),
    Release {
        id: ConversationId,
        held: Claim,
        done: oneshot::Sender<()>,
    },
    TakeOver {
        id: ConversationId,
        me: Holder,
        dead: Holder,
        done: oneshot::Sender<Claimed>,
    },
    /// A read failed on the file opened as this number.
    Reopen(u64),
}

pub(super) type Claimed = Result<Claim, StoreError>;
type Pending = (Box<Write>, oneshot::Sender<Outcome>);

pub(super) struct Writer {
    pub(super) place: StoreDir,
    pub(super) shared: Arc<Shared>,
    pub(super) queue: mpsc::Receiver<Job>,
    /// Whether deletions may have left events to remove.
    sweeping: bool,
    /// Writes that wait for that.
    waiting: Vec<Pending>,
}

impl Writer {
    /// A process that died may have left events to remove.
    pub(super) fn new(place: StoreDir, shared: Arc<Shared>, queue: mpsc::Receiver<Job>) -> Self {
        Self { place, shared, queue, sweeping: true, waiting: Vec::new() }
    }

    /// Writes until nobody can ask any more, then closes the file.
    pub(super) fn run(mut self) {
        let mut jobs = Vec::with_capacity(BATCH);
        while self.next(&mut jobs) {
            self.work(&mut jobs);
        }
        self.shared.replace(Err("the store is closed".to_owned()));
    }

    /// Takes the jobs that there are, and waits for one unless there is something to do anyway. False
    /// when nobody can ask any more; what is left to remove then is removed by the next process.
    fn next(&mut self, jobs: &mut Vec<Job>) -> bool {
        if !self.sweeping && self.waiting.is_empty() {
            return self.queue.blocking_recv_many(jobs, BATCH) > 0;
        }
        while jobs.len() < BATCH {
            match self.queue.try_recv() {
                Ok(job) => jobs.push(job),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return !jobs.is_empty(),
            }
        }
        true
    }

    fn work(&mut self, jobs: &mut Vec<Job>) {
        let OpenFile { number, database } = self.shared.file();
        let mut failed = None;
        let (mut writes, mut moves) = (std::mem::take(&mut self.waiting), Vec::new());
        writes.retain(|(_, done)| !done.is_closed());
        for job in jobs.drain(..) {
            match job {
                Job::Write(write, done) if !done.is_closed() => writes.push((write, done)),
                Job::Write(..) => {}
                Job::Reopen(broken) if broken == number => failed = Some("a read failed".into()),
                Job::Reopen(_) => {}
                Job::Release { .. } | Job::TakeOver { .. } => moves.push(job),
            }
        }
        match database {
            Ok(database) if self.sweeping || !writes.is_empty() => {
                failed = self.commit(&database, writes).err().or(failed);
            }
            Ok(_) => {}
            Err(reason) => refuse(writes, &reason),
        }
        moves.into_iter().for_each(|job| self.pass_on(job));
        if let Some(reason) = failed {
            self.reopen(reason);
        }
    }

    /// Answers every write; `Err` says why the file cannot be used any more.
    fn commit(&mut self, database: &Database, writes: Vec<Pending>) -> Result<(), String> {
        match self.transact(database, &writes) {
            Ok(outcomes) => {
                for ((write, done), outcome) in writes.into_iter().zip(outcomes) {
                    match outcome {
                        // A caller that left will replay.
                        Some(outcome) => drop(done.send(outcome)),
                        None => self.waiting.push((write, done)),
                    }
                }
                Ok(())
            }
            Err(error) => {
                // The next commit says whether there is something to remove.
                self.sweeping = false;
                let reason = error.to_string();
                refuse(writes, &reason);
                Err(reason)
            }
        }
    }

    /// The outcome of every write; `None` for one that must wait.
    fn transact(
        &mut self,
        database: &Database,
        writes: &[Pending],
    ) -> Result<Vec<Option<Outcome>>, Error> {
        let mut transaction = database.begin_write()?;
        transaction.set_quick_repair(self.shared.probe.bytes() >= QUICK_REPAIR);
        let mut outcomes = Vec::with_capacity(writes.len());
        let mut open = Open::new(&transaction)?;
        for (write, _) in writes {
            outcomes.push(match self.admits(write) {
                true if open.must_wait(write)? => None,
                true => Some(open.apply(write)?),
                false => Some(Err(StoreError::Fenced)),
            });
        }
        let waits = writes.iter().zip(&outcomes).find(|(_, outcome)| outcome.is_none());
        let swept = open.sweep(waits.and_then(|((write, _), _)| write.conversation()))?;
        let sweeping = open.has_doomed()?;
        drop(open);
        let was_done = |outcome: &Option<Outcome>| matches!(outcome, Some(Ok(_)));
        let done = outcomes.iter().filter(|outcome| was_done(outcome)).count();
        if done == 0 && !swept {
            transaction.abort()?;
        } else {
            transaction.commit()?;
        }
        self.sweeping = sweeping;
        self.shared.count_commits(done as u64);
        for ((write, _), _) in writes.iter().zip(&outcomes).filter(|(_, it)| was_done(it)) {
            if let Write::Delete { id, held, .. } = write.as_ref() {
                self.shared.claims().release(id, held);
            }
        }
        Ok(outcomes)
    }

    fn admits(&self, write: &Write) -> bool {
        match write {
            Write::Append(append) => self.shared.claims().admits(&append.id, &append.held),
            Write::Delete { id, held, .. } => self.shared.claims().admits(id, held),
            Write::PutAgent { .. }
            | Write::DeleteAgent { .. }
            | Write::Reserve { .. }
            | Write::SetDecision { .. }
            | Write::PutBlob { .. }
            | Write::DeleteBlob { .. }
            | Write::Audit(_) => true,
        }
    }

    fn pass_on(&self, job: Job) {
        match job {
            Job::Release { id, held, done } => {
                self.shared.claims().release(&id, &held);
                let _ = done.send(());
            }
            Job::TakeOver { id, me, dead, done } => {
                let claimed = self.shared.take_over(&id, &me, &dead);
                let _ = done.send(claimed.map_err(|failed| failed.refusal));
            }
            Job::Write(..) | Job::Reopen(_) => {}
        }
    }

    /// Closes the file and opens it again, as often as it takes, or until the store is dropped.
    fn reopen(&mut self, mut reason: String) {
        let mut pause = 1;
        while !(self.queue.is_closed() && self.queue.is_empty()) {
            tracing::error!(%reason, "the store's file failed and is opened again");
            self.shared.replace(Err(reason.clone()));
            for _ in 0..pause {
                self.answer_waiting(&reason);
                thread::sleep(SLICE);
            }
            match self.place.open(&self.shared.probe) {
                Ok(database) => {
                    tracing::info!("the store's file is open again");
                    self.shared.replace(Ok(database));
                    return;
                }
                Err(error) => reason = error.to_string(),
            }
            pause = (pause * 2).min(PAUSE);
        }
    }

    fn answer_waiting(&mut self, reason: &str) {
        while let Ok(job) = self.queue.try_recv() {
            match job {
                Job::Write(write, done) => refuse(vec![(write, done)], reason),
                Job::Release { .. } | Job::TakeOver { .. } => self.pass_on(job),
                Job::Reopen(_) => {}
            }
        }
    }
}

fn refuse(writes: Vec<Pending>, reason: &str) {
    for (_, done) in writes {
        let _ = done.send(Err(StoreError::Unavailable(reason.to_owned())));
    }
}
