//! Time and tasks on one thread: what runs next is decided by nothing but the order of events.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A task, for ever.
pub type TaskId = usize;
/// A process; the network and the clients are none.
pub type LifeId = usize;

type Work = Pin<Box<dyn Future<Output = ()>>>;

struct Task {
    life: Option<LifeId>,
    /// `None` while it is polled, and when it has ended.
    work: Option<Work>,
    alive: bool,
    /// It is among those that are ready.
    queued: bool,
}

#[derive(Default)]
pub struct Exec {
    now: Cell<u64>,
    current: Cell<TaskId>,
    tasks: RefCell<Vec<Task>>,
    ready: RefCell<VecDeque<TaskId>>,
    /// When to wake whom, earliest first; by number, whom, unless nobody waits for it any more.
    timers: RefCell<BinaryHeap<Reverse<(u64, usize)>>>,
    sleepers: RefCell<Vec<Option<TaskId>>>,
    /// Processes that are stopped, and whom of them to wake when they go on.
    stopped: RefCell<BTreeMap<LifeId, BTreeSet<TaskId>>>,
}

impl Exec {
    /// Milliseconds since the beginning, as nobody in the simulation knows them.
    pub fn now(&self) -> u64 {
        self.now.get()
    }

    /// Runs a task until its process ends.
    pub fn spawn(&self, life: Option<LifeId>, work: impl Future<Output = ()> + 'static) -> TaskId {
        let mut tasks = self.tasks.borrow_mut();
        tasks.push(Task { life, work: Some(Box::pin(work)), alive: true, queued: true });
        self.ready.borrow_mut().push_back(tasks.len() - 1);
        tasks.len() - 1
    }

    pub fn wake(&self, id: TaskId) {
        let task = &mut self.tasks.borrow_mut()[id];
        if task.alive && !std::mem::replace(&mut task.queued, true) {
            self.ready.borrow_mut().push_back(id);
        }
    }

    /// Drops a task wherever it is.
    pub fn abort(&self, id: TaskId) {
        let work = {
            let mut tasks = self.tasks.borrow_mut();
            tasks[id].alive = false;
            tasks[id].work.take()
        };
        // What it owns may wake others as it goes.
        drop(work);
    }

    /// Ends a process without a word.
    pub fn kill(&self, life: LifeId) {
        let of_life = |(id, task): (usize, &Task)| (task.life == Some(life)).then_some(id);
        let ids: Vec<_> = self.tasks.borrow().iter().enumerate().filter_map(of_life).collect();
        for id in ids {
            self.abort(id);
        }
        self.stopped.borrow_mut().remove(&life);
    }

    /// Drops everything that runs.
    pub fn clear(&self) {
        let count = self.tasks.borrow().len();
        (0..count).for_each(|id| self.abort(id));
    }

    /// Nothing of a process moves until it goes on.
    pub fn stop(&self, life: LifeId) {
        self.stopped.borrow_mut().entry(life).or_default();
    }

    pub fn go_on(&self, life: LifeId) {
        let woken = self.stopped.borrow_mut().remove(&life).unwrap_or_default();
        woken.into_iter().for_each(|id| self.wake(id));
    }

    /// Does the next thing. `false` when nothing is left to do before `end`.
    pub fn step(&self, end: u64) -> bool {
        let next = self.ready.borrow_mut().pop_front();
        if let Some(id) = next {
            self.poll(id);
            return true;
        }
        match self.sleeper(end) {
            Some((at, id)) => {
                self.now.set(self.now.get().max(at));
                self.wake(id);
                true
            }
            None => {
                self.now.set(self.now.get().max(end));
                false
            }
        }
    }

    /// Who is to be woken first, if that is not after `end`.
    fn sleeper(&self, end: u64) -> Option<(u64, TaskId)> {
        let mut timers = self.timers.borrow_mut();
        while let Some(Reverse((at, number))) = timers.peek().copied().filter(|it| it.0.0 <= end) {
            timers.pop();
            if let Some(id) = self.sleepers.borrow_mut()[number].take() {
                return Some((at, id));
            }
        }
        None
    }

    fn poll(&self, id: TaskId) {
        let work = {
            let mut tasks = self.tasks.borrow_mut();
            let task = &mut tasks[id];
            task.queued = false;
            let mut stopped = self.stopped.borrow_mut();
            if let Some(waiting) = task.life.and_then(|life| stopped.get_mut(&life)) {
                waiting.insert(id);
                return;
            }
            task.work.take()
        };
        let Some(mut work) = work else { return };
        self.current.set(id);
        let done = work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        if !done && self.tasks.borrow()[id].alive {
            self.tasks.borrow_mut()[id].work = Some(work);
        }
    }

    /// Waits; dropped before it is over, it leaves no timer behind.
    pub fn sleep(&self, ms: u64) -> Sleep<'_> {
        Sleep { exec: self, until: self.now() + ms, timer: None }
    }

    /// `None` if it takes longer.
    pub fn within<T>(
        &self,
        ms: u64,
        asked: impl Future<Output = T>,
    ) -> impl Future<Output = Option<T>> {
        let either = either(asked, self.sleep(ms));
        async { either.await.ok() }
    }
}

/// See [`Exec::sleep`].
pub struct Sleep<'e> {
    exec: &'e Exec,
    until: u64,
    timer: Option<usize>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let exec = self.exec;
        if exec.now() >= self.until {
            return Poll::Ready(());
        }
        if self.timer.is_none() {
            let mut sleepers = exec.sleepers.borrow_mut();
            self.timer = Some(sleepers.len());
            exec.timers.borrow_mut().push(Reverse((self.until, sleepers.len())));
            sleepers.push(Some(exec.current.get()));
        }
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.exec.sleepers.borrow_mut()[timer] = None;
        }
    }
}

/// Whichever is ready first; the first, if both are. What waits in what waits would be copied again
/// and again if it were not boxed.
pub fn either<A, B>(
    one: impl Future<Output = A>,
    other: impl Future<Output = B>,
) -> impl Future<Output = Result<A, B>> {
    let (mut one, mut other) = (Box::pin(one), Box::pin(other));
    poll_fn(move |context| {
        if let Poll::Ready(done) = one.as_mut().poll(context) {
            return Poll::Ready(Ok(done));
        }
        other.as_mut().poll(context).map(Err)
    })
}

/// Something that tasks wait for to change.
#[derive(Clone)]
pub struct Signal(Rc<Changes>);

struct Changes {
    exec: Rc<Exec>,
    count: Cell<u64>,
    waiting: RefCell<Vec<TaskId>>,
}

impl Signal {
    pub fn new(exec: &Rc<Exec>) -> Self {
        let (count, waiting) = Default::default();
        Self(Rc::new(Changes { exec: exec.clone(), count, waiting }))
    }

    pub fn count(&self) -> u64 {
        self.0.count.get()
    }

    pub fn change(&self) {
        self.0.count.set(self.count() + 1);
        for task in self.0.waiting.take() {
            self.0.exec.wake(task);
        }
    }

    /// Waits for a change after the one that was counted so.
    pub async fn after(&self, seen: u64) {
        poll_fn(|_| {
            if self.count() > seen {
                return Poll::Ready(());
            }
            let (current, mut waiting) = (self.0.exec.current.get(), self.0.waiting.borrow_mut());
            if !waiting.contains(&current) {
                waiting.push(current);
            }
            Poll::Pending
        })
        .await;
    }
}

/// What one task tells another, once.
pub struct Once<T>(Rc<Told<T>>);

struct Told<T> {
    exec: Rc<Exec>,
    what: RefCell<Option<T>>,
    is_told: Cell<bool>,
    waiting: Cell<Option<TaskId>>,
}

impl<T> Clone for Once<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Once<T> {
    pub fn new(exec: &Rc<Exec>) -> Self {
        let (what, is_told, waiting) = Default::default();
        Self(Rc::new(Told { exec: exec.clone(), what, is_told, waiting }))
    }

    /// The first that is told counts.
    pub fn tell(&self, what: T) {
        if !self.0.is_told.replace(true) {
            self.0.what.replace(Some(what));
            if let Some(task) = self.0.waiting.take() {
                self.0.exec.wake(task);
            }
        }
    }

    pub async fn told(self) -> T {
        poll_fn(|_| {
            let told = self.0.what.borrow_mut().take();
            if told.is_none() {
                self.0.waiting.set(Some(self.0.exec.current.get()));
            }
            told.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}
