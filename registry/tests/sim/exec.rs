//! Time and tasks on one thread: what runs next is decided by nothing but the order of events.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
}

#[derive(Default)]
pub struct Exec {
    now: Cell<u64>,
    seq: Cell<u64>,
    current: Cell<TaskId>,
    tasks: RefCell<Vec<Task>>,
    ready: RefCell<VecDeque<TaskId>>,
    timers: RefCell<BTreeMap<(u64, u64), TaskId>>,
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
        tasks.push(Task { life, work: Some(Box::pin(work)), alive: true });
        self.ready.borrow_mut().push_back(tasks.len() - 1);
        tasks.len() - 1
    }

    pub fn wake(&self, task: TaskId) {
        self.ready.borrow_mut().push_back(task);
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
        self.ready.borrow_mut().extend(woken);
    }

    /// Does the next thing. `false` when nothing is left to do before `end`.
    pub fn step(&self, end: u64) -> bool {
        let next = self.ready.borrow_mut().pop_front();
        if let Some(id) = next {
            self.poll(id);
            return true;
        }
        let first = self.timers.borrow().first_key_value().map(|(at, _)| *at);
        let Some(at) = first.filter(|(at, _)| *at <= end) else {
            self.now.set(self.now.get().max(end));
            return false;
        };
        let id = self.timers.borrow_mut().remove(&at);
        self.now.set(self.now.get().max(at.0));
        self.ready.borrow_mut().extend(id);
        true
    }

    fn poll(&self, id: TaskId) {
        let work = {
            let mut tasks = self.tasks.borrow_mut();
            let task = &mut tasks[id];
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

    pub async fn sleep(&self, ms: u64) {
        let until = self.now() + ms;
        let mut set = false;
        poll_fn(|_| {
            if self.now() >= until {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut set, true) {
                self.seq.set(self.seq.get() + 1);
                self.timers.borrow_mut().insert((until, self.seq.get()), self.current.get());
            }
            Poll::Pending
        })
        .await;
    }

    /// `None` if it takes longer.
    pub async fn within<T>(&self, ms: u64, asked: impl Future<Output = T>) -> Option<T> {
        either(asked, self.sleep(ms)).await.ok()
    }
}

/// Whichever is ready first; the first, if both are.
pub async fn either<A, B>(
    one: impl Future<Output = A>,
    other: impl Future<Output = B>,
) -> Result<A, B> {
    let (mut one, mut other) = (Box::pin(one), Box::pin(other));
    poll_fn(|context| {
        if let Poll::Ready(done) = one.as_mut().poll(context) {
            return Poll::Ready(Ok(done));
        }
        other.as_mut().poll(context).map(Err)
    })
    .await
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
            self.0.waiting.borrow_mut().push(self.0.exec.current.get());
            Poll::Pending
        })
        .await;
    }
}

/// What one task tells another, once.
pub struct Once<T>(Rc<(Signal, RefCell<Option<T>>)>);

impl<T> Clone for Once<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Once<T> {
    pub fn new(exec: &Rc<Exec>) -> Self {
        Self(Rc::new((Signal::new(exec), RefCell::new(None))))
    }

    /// The first that is told counts.
    pub fn tell(&self, what: T) {
        if self.0.0.count() == 0 {
            *self.0.1.borrow_mut() = Some(what);
            self.0.0.change();
        }
    }

    pub async fn told(self) -> T {
        loop {
            self.0.0.after(0).await;
            let told = self.0.1.borrow_mut().take();
            match told {
                Some(told) => return told,
                None => std::future::pending::<()>().await,
            }
        }
    }
}
