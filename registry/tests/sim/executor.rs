//! Virtual time and tasks on one thread; the order of events alone decides what runs next.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::FutureExt;

/// Identifies a task; never reused.
pub type TaskId = usize;
/// Identifies a process; the tasks of the network belong to no process.
pub type ProcessId = usize;

type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;

struct Task {
    process_id: Option<ProcessId>,
    /// `None` while it is polled, and when it has ended.
    future: Option<TaskFuture>,
    alive: bool,
    /// Whether the task is in the ready queue.
    queued: bool,
    /// For futures of the product, which know nothing of this executor.
    waker: Waker,
}

/// The tasks that futures of the product have woken.
type Woken = Arc<Mutex<Vec<TaskId>>>;

struct TaskWaker {
    id: TaskId,
    woken: Woken,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.woken.lock().unwrap().push(self.id);
    }
}

#[derive(Default)]
pub struct Executor {
    now: Cell<u64>,
    current: Cell<TaskId>,
    tasks: RefCell<Vec<Task>>,
    ready: RefCell<VecDeque<TaskId>>,
    /// The timers, earliest first: the time, and the index of the sleeper to wake. A sleeper that
    /// was dropped is `None`.
    timers: RefCell<BinaryHeap<Reverse<(u64, usize)>>>,
    sleepers: RefCell<Vec<Option<TaskId>>>,
    woken: Woken,
    /// The stopped processes, with the tasks to wake when they go on.
    stopped: RefCell<BTreeMap<ProcessId, BTreeSet<TaskId>>>,
}

impl Executor {
    /// The true milliseconds since the beginning; no node's clock shows them.
    pub fn now(&self) -> u64 {
        self.now.get()
    }

    /// Runs a task until its process ends.
    pub fn spawn(
        &self,
        process_id: Option<ProcessId>,
        future: impl Future<Output = ()> + 'static,
    ) -> TaskId {
        let mut tasks = self.tasks.borrow_mut();
        let id = tasks.len();
        let waker = Waker::from(Arc::new(TaskWaker { id, woken: self.woken.clone() }));
        let future = Some(Box::pin(future) as TaskFuture);
        tasks.push(Task { process_id, future, alive: true, queued: true, waker });
        self.ready.borrow_mut().push_back(id);
        id
    }

    pub fn wake(&self, id: TaskId) {
        let task = &mut self.tasks.borrow_mut()[id];
        if task.alive && !std::mem::replace(&mut task.queued, true) {
            self.ready.borrow_mut().push_back(id);
        }
    }

    /// Drops a task wherever it is.
    pub fn abort(&self, id: TaskId) {
        let future = {
            let mut tasks = self.tasks.borrow_mut();
            tasks[id].alive = false;
            tasks[id].future.take()
        };
        // The future may wake other tasks while it is dropped.
        drop(future);
    }

    /// Ends all tasks of a process at once, as SIGKILL would.
    pub fn kill(&self, process_id: ProcessId) {
        let of_process =
            |(id, task): (usize, &Task)| (task.process_id == Some(process_id)).then_some(id);
        let ids: Vec<_> = self.tasks.borrow().iter().enumerate().filter_map(of_process).collect();
        for id in ids {
            self.abort(id);
        }
        self.stopped.borrow_mut().remove(&process_id);
    }

    /// Drops everything that runs.
    pub fn clear(&self) {
        let count = self.tasks.borrow().len();
        (0..count).for_each(|id| self.abort(id));
    }

    /// Suspends a process, as SIGSTOP would.
    pub fn stop(&self, process_id: ProcessId) {
        self.stopped.borrow_mut().entry(process_id).or_default();
    }

    pub fn resume(&self, process_id: ProcessId) {
        let woken = self.stopped.borrow_mut().remove(&process_id).unwrap_or_default();
        woken.into_iter().for_each(|id| self.wake(id));
    }

    /// Runs the next task or timer. `false` when nothing is left to do before `end`.
    pub fn step(&self, end: u64) -> bool {
        let woken = std::mem::take(&mut *self.woken.lock().unwrap());
        woken.into_iter().for_each(|id| self.wake(id));
        let next = self.ready.borrow_mut().pop_front();
        if let Some(id) = next {
            self.poll(id);
            return true;
        }
        match self.sleeper(end) {
            Some((at, id)) => {
                self.advance(at);
                self.wake(id);
                true
            }
            None => {
                self.advance(end);
                false
            }
        }
    }

    /// Sets the time, and the clock of tokio by which the product's store reconnects.
    fn advance(&self, at: u64) {
        if let Some(ms) = at.checked_sub(self.now.get()).filter(|ms| *ms > 0) {
            self.now.set(at);
            // It sets the clock when it is first polled; no timer of tokio ever fires.
            let _ = tokio::time::advance(Duration::from_millis(ms)).now_or_never();
        }
    }

    /// The next task to wake and its time, if that is not after `end`.
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
        let future = {
            let mut tasks = self.tasks.borrow_mut();
            let task = &mut tasks[id];
            task.queued = false;
            let mut stopped = self.stopped.borrow_mut();
            if let Some(waiting) =
                task.process_id.and_then(|process_id| stopped.get_mut(&process_id))
            {
                waiting.insert(id);
                return;
            }
            (task.future.take(), task.waker.clone())
        };
        let (Some(mut future), waker) = future else { return };
        self.current.set(id);
        let done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        if !done && self.tasks.borrow()[id].alive {
            self.tasks.borrow_mut()[id].future = Some(future);
        }
    }

    /// Sleeps for this long. A dropped sleep leaves no timer behind.
    pub fn sleep(&self, ms: u64) -> Sleep<'_> {
        Sleep { exec: self, until: self.now() + ms, timer: None }
    }

    /// The output of a future, or `None` if it takes longer than `ms`.
    pub fn within<T>(
        &self,
        ms: u64,
        future: impl Future<Output = T>,
    ) -> impl Future<Output = Option<T>> {
        let either = either(future, self.sleep(ms));
        async { either.await.ok() }
    }
}

/// See [`Exec::sleep`].
pub struct Sleep<'e> {
    exec: &'e Executor,
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

/// The output of the future that is ready first; of the first future, if both are. Boxed, since
/// nested futures would be copied again and again.
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

/// Notifies waiting tasks of changes.
#[derive(Clone)]
pub struct Notifier(Rc<Changes>);

struct Changes {
    exec: Rc<Executor>,
    count: Cell<u64>,
    waiting: RefCell<Vec<TaskId>>,
}

impl Notifier {
    pub fn new(exec: &Rc<Executor>) -> Self {
        Self(Rc::new(Changes {
            exec: exec.clone(),
            count: Cell::default(),
            waiting: RefCell::default(),
        }))
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

    /// Waits until the count of changes exceeds `seen`.
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

/// Passes one value from one task to another.
pub struct OneShot<T>(Rc<OneShotState<T>>);

struct OneShotState<T> {
    exec: Rc<Executor>,
    value: RefCell<Option<T>>,
    is_sent: Cell<bool>,
    waiting: Cell<Option<TaskId>>,
}

impl<T> Clone for OneShot<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> OneShot<T> {
    pub fn new(exec: &Rc<Executor>) -> Self {
        Self(Rc::new(OneShotState {
            exec: exec.clone(),
            value: RefCell::default(),
            is_sent: Cell::default(),
            waiting: Cell::default(),
        }))
    }

    /// Sends a value; only the first one counts.
    pub fn send(&self, value: T) {
        if !self.0.is_sent.replace(true) {
            self.0.value.replace(Some(value));
            if let Some(task) = self.0.waiting.take() {
                self.0.exec.wake(task);
            }
        }
    }

    pub async fn wait(self) -> T {
        poll_fn(|_| {
            let value = self.0.value.borrow_mut().take();
            if value.is_none() {
                self.0.waiting.set(Some(self.0.exec.current.get()));
            }
            value.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}
