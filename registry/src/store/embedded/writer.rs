//! The one thread that writes: all waiting writes share one transaction, and so one fsync.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use abide_actors::journal::{Claim, Holder, StoreError};
use abide_conversation::{ConversationId, Scoped};
use redb::{Database, Error};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

use super::state::{OpenFile, Shared};
use super::store_dir::StoreDir;
use super::tables;
use super::write::{OpenTables, Outcome, Precondition, Write};

/// Jobs that wait while one transaction is written. Callers beyond that wait for room in the queue,
/// which bounds the memory of a store on a slow disk.
pub(super) const MAX_QUEUED_JOBS: usize = 1024;
/// Writes in one transaction: enough to share an fsync, few enough that none waits long for it.
const MAX_BATCH: usize = 256;
/// The file size from which commits also write what a quick repair needs. Below it a repair reads
/// the whole file in less than half a second.
const QUICK_REPAIR_BYTES: u64 = 256 << 20;
/// How often jobs are answered while the file is closed.
const ANSWER_INTERVAL: Duration = Duration::from_millis(20);
/// The longest delay between two attempts to reopen the file, in answer intervals: a disk that has
/// room again is in use a second later, and one that stays full is not repaired over and over.
const MAX_REOPEN_DELAY: u32 = 50;

/// A job of the writer. Claims that change hands pass through it, so that the next holder of a
/// conversation finds the journal as the former holder's writes left it.
pub(super) enum Job {
    Write(Box<Write>, oneshot::Sender<Outcome>),
    Release {
        id: Scoped<ConversationId>,
        held: Claim,
        done: oneshot::Sender<()>,
    },
    TakeOver {
        id: Scoped<ConversationId>,
        me: Holder,
        dead: Holder,
        done: oneshot::Sender<Claimed>,
    },
    /// A read failed on this opening of the file.
    Reopen(u64),
    /// The free pages were overwritten, and the file may have grown.
    Compact(oneshot::Sender<Result<(), StoreError>>),
}

pub(super) type Claimed = Result<Claim, StoreError>;
type Pending = (Box<Write>, oneshot::Sender<Outcome>);

pub(super) struct Writer {
    pub(super) store_dir: StoreDir,
    pub(super) shared: Arc<Shared>,
    pub(super) queue: mpsc::Receiver<Job>,
    /// Whether deletions may have left events to remove.
    needs_sweep: bool,
    /// Writes that wait until those events are removed.
    deferred: Vec<Pending>,
    /// Who waits until the file is compacted.
    compactions: Vec<oneshot::Sender<Result<(), StoreError>>>,
}

impl Writer {
    /// A writer that sweeps first: a process that died may have left events to remove.
    pub(super) fn new(
        store_dir: StoreDir,
        shared: Arc<Shared>,
        queue: mpsc::Receiver<Job>,
    ) -> Self {
        let (deferred, compactions) = (Vec::new(), Vec::new());
        Self { store_dir, shared, queue, needs_sweep: true, deferred, compactions }
    }

    /// Writes until the store is dropped, then closes the file. `Err` says why it must not be used
    /// any more by this process.
    pub(super) fn run(mut self) -> Result<(), String> {
        let mut jobs = Vec::with_capacity(MAX_BATCH);
        while self.next(&mut jobs) {
            self.process(&mut jobs);
            self.compact_for_waiters();
            if self.shared.probe.has_lost_writes() {
                let reason = "an fsync failed: writes may be lost".to_owned();
                self.shared.replace(Err(reason.clone()));
                self.refuse_queued(&reason);
                return Err(reason);
            }
        }
        if let Ok(database) = self.shared.file().database
            && let Err(error) = tables::mark_open(&database, false)
        {
            tracing::warn!(%error, "store not marked as closed");
        }
        self.shared.replace(Err("the store is closed".to_owned()));
        Ok(())
    }

    /// Takes the queued jobs, and waits for one unless there is other work. False when the store
    /// was dropped; the next process removes what is left to remove then.
    fn next(&mut self, jobs: &mut Vec<Job>) -> bool {
        if !self.needs_sweep && self.deferred.is_empty() {
            if self.queue.blocking_recv_many(jobs, MAX_BATCH) == 0 {
                return false;
            }
            // On a busy machine others queue more meanwhile, which then shares the transaction.
            thread::yield_now();
        }
        while jobs.len() < MAX_BATCH {
            match self.queue.try_recv() {
                Ok(job) => jobs.push(job),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return !jobs.is_empty(),
            }
        }
        true
    }

    fn process(&mut self, jobs: &mut Vec<Job>) {
        let OpenFile { generation, database, .. } = self.shared.file();
        let mut failure = None;
        let mut writes = std::mem::take(&mut self.deferred);
        let mut claim_jobs = Vec::new();
        writes.retain(|(_, done)| !done.is_closed());
        for job in jobs.drain(..) {
            match job {
                Job::Write(write, done) if !done.is_closed() => writes.push((write, done)),
                Job::Write(..) => {}
                Job::Reopen(broken) if broken == generation => {
                    failure = Some("a read failed".into())
                }
                Job::Reopen(_) => {}
                Job::Release { .. } | Job::TakeOver { .. } => claim_jobs.push(job),
                Job::Compact(done) => self.compactions.push(done),
            }
        }
        match database {
            Ok(database) if self.needs_sweep || !writes.is_empty() => {
                failure = self.commit(&database, writes).err().or(failure);
            }
            Ok(_) => {}
            Err(reason) => refuse(writes, &reason),
        }
        claim_jobs.into_iter().for_each(|job| self.change_claim(job));
        if let Some(reason) = failure {
            self.reopen(reason);
        }
    }

    fn compact_for_waiters(&mut self) {
        if self.compactions.is_empty() {
            return;
        }
        if let Err(reason) = self.compact_if_grown() {
            self.reopen(reason);
        }
        for done in self.compactions.drain(..) {
            let _ = done.send(Ok(()));
        }
    }

    /// Commits the writes and answers each; `Err` says why the file cannot be used any more.
    fn commit(&mut self, database: &Database, writes: Vec<Pending>) -> Result<(), String> {
        match self.transact(database, &writes) {
            Ok(outcomes) => {
                for ((write, done), outcome) in writes.into_iter().zip(outcomes) {
                    match outcome {
                        // A caller that has gone replays.
                        Some(outcome) => drop(done.send(outcome)),
                        None => self.deferred.push((write, done)),
                    }
                }
                Ok(())
            }
            Err(error) => {
                // The next commit finds out whether there are events to remove.
                self.needs_sweep = false;
                let reason = error.to_string();
                refuse(writes, &reason);
                Err(reason)
            }
        }
    }

    /// The outcome of each write; `None` for one that must wait.
    fn transact(
        &mut self,
        database: &Database,
        writes: &[Pending],
    ) -> Result<Vec<Option<Outcome>>, Error> {
        let mut transaction = database.begin_write()?;
        transaction.set_quick_repair(self.shared.probe.bytes() >= QUICK_REPAIR_BYTES);
        let mut outcomes = Vec::with_capacity(writes.len());
        let mut open = OpenTables::new(&transaction, &self.shared.promoted)?;
        for (write, _) in writes {
            let before = write.precondition();
            outcomes.push(if !self.admits(before) {
                Some(Err(StoreError::Fenced))
            } else if open.must_wait(before)? {
                None
            } else {
                Some(open.apply(write)?)
            });
        }
        let mut deferred = writes.iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_none());
        let swept = open.sweep(deferred.find_map(|((it, _), _)| it.precondition().emptied()))?;
        let needs_sweep = open.has_unswept()?;
        drop(open);
        let was_done = |outcome: &Option<Outcome>| matches!(outcome, Some(Ok(_)));
        let done = outcomes.iter().filter(|outcome| was_done(outcome)).count();
        if done == 0 && !swept {
            transaction.abort()?;
        } else {
            transaction.commit()?;
        }
        self.needs_sweep = needs_sweep;
        self.shared.count_commits(done as u64);
        for ((write, _), _) in writes.iter().zip(&outcomes).filter(|(_, it)| was_done(it)) {
            if let Write::Delete { id, held, .. } = write.as_ref() {
                self.shared.claims().release(id, held);
            }
        }
        Ok(outcomes)
    }

    /// Whether the claim under which a write is made is the present one.
    fn admits(&self, before: Precondition<'_>) -> bool {
        before.claim().is_none_or(|(id, held)| self.shared.claims().admits(id, held))
    }

    fn change_claim(&self, job: Job) {
        match job {
            Job::Release { id, held, done } => {
                self.shared.claims().release(&id, &held);
                let _ = done.send(());
            }
            Job::TakeOver { id, me, dead, done } => {
                let claimed = self.shared.take_over(&id, &me, &dead);
                let _ = done.send(claimed.map_err(|failure| failure.error));
            }
            Job::Write(..) | Job::Reopen(_) | Job::Compact(_) => {}
        }
    }

    /// Closes the file and reopens it, as often as it takes or until the store is dropped. A file that
    /// has lost writes stays as it is.
    fn reopen(&mut self, mut reason: String) {
        let mut delay = 1;
        while !(self.shared.probe.has_lost_writes()
            || self.queue.is_closed() && self.queue.is_empty())
        {
            tracing::error!(%reason, "store file failed: reopening");
            self.shared.replace(Err(reason.clone()));
            for _ in 0..delay {
                self.refuse_queued(&reason);
                thread::sleep(ANSWER_INTERVAL);
            }
            match self.store_dir.open(&self.shared.probe) {
                Ok(database) => {
                    tracing::info!("store file reopened");
                    self.shared.replace(Ok(Arc::new(database)));
                    return;
                }
                Err(error) => reason = error.to_string(),
            }
            delay = (delay * 2).min(MAX_REOPEN_DELAY);
        }
    }

    fn refuse_queued(&mut self, reason: &str) {
        while let Ok(job) = self.queue.try_recv() {
            match job {
                Job::Write(write, done) => refuse(vec![(write, done)], reason),
                Job::Release { .. } | Job::TakeOver { .. } => self.change_claim(job),
                Job::Compact(done) => drop(done.send(Err(unavailable(reason)))),
                Job::Reopen(_) => {}
            }
        }
    }
}

fn refuse(writes: Vec<Pending>, reason: &str) {
    for (_, done) in writes {
        let _ = done.send(Err(unavailable(reason)));
    }
}

fn unavailable(reason: &str) -> StoreError {
    StoreError::Unavailable(reason.to_owned())
}
