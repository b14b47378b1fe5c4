//! Connections between a simulated node and the model of Redis, with their accidents.

use std::cell::RefCell;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::redis::{Arg, Pipeline, RedisError, RedisResult, Value};
use abide_registry::store::redis::transport::{Dial, Transport};
use futures::channel::oneshot;
use futures::future::BoxFuture;

use super::call::name_of;
use super::group::{REPLICAS, ServerId};
use super::ranges::integer;
use super::{Words, text};
use crate::executor::ProcessId;
use crate::world::World;

/// How long a connection to a port takes that nobody listens on.
const REFUSED_MS: u64 = 3;
/// How often the model looks whether replicas have acknowledged a write.
const WAIT_INTERVAL_MS: u64 = 2;
/// How long an answer may take: less than in production, as the lease is.
const TIMEOUT_MS: u64 = 900;

thread_local! {
    /// The world of this thread: the store demands connections that threads may share, and refers to
    /// the world, which they may not.
    static WORLD: RefCell<Weak<World>> = RefCell::default();
}

/// Makes this the world of the thread.
pub fn enter(world: &Rc<World>) {
    WORLD.with(|it| *it.borrow_mut() = Rc::downgrade(world));
}

fn world() -> Rc<World> {
    WORLD.with(|it| it.borrow().upgrade()).expect("a world is simulated")
}

fn failed(kind: io::ErrorKind) -> RedisError {
    io::Error::new(kind, "simulated").into()
}

fn words_of(commands: &Pipeline) -> Vec<Words> {
    let words = |arg: Arg<&[u8]>| match arg {
        Arg::Simple(word) => word.to_vec(),
        other => unreachable!("the store sends no {other:?}"),
    };
    commands.cmd_iter().map(|command| command.args_iter().map(words).collect()).collect()
}

/// Connects without delays and accidents, whatever the state of the servers: for the checks.
pub struct Direct;

impl Dial for Direct {
    fn dial(&self) -> BoxFuture<'_, RedisResult<Arc<dyn Transport>>> {
        Box::pin(async { Ok(Arc::new(Direct) as Arc<dyn Transport>) })
    }
}

impl Transport for Direct {
    fn send<'a>(&'a self, commands: &'a Pipeline) -> BoxFuture<'a, RedisResult<Vec<Value>>> {
        let world = world();
        let carry_out = |words: &Words| world.store.execute_always(words, world.exec.now());
        let values = words_of(commands).iter().map(carry_out).collect();
        Box::pin(async { Ok(values) })
    }
}

/// Connects a process of a node to the primary.
pub struct NodeDial(pub ProcessId);

impl Dial for NodeDial {
    fn dial(&self) -> BoxFuture<'_, RedisResult<Arc<dyn Transport>>> {
        let world = world();
        world.store.count("connections");
        let (group, now) = (world.store.group.borrow(), world.exec.now());
        let is_down = world.processes.borrow()[self.0].store_down.get() || !group.is_up;
        let open = Wire { process: self.0, server: group.primary_id(), written: Arc::default() };
        let wait = if is_down { REFUSED_MS } else { group.hung_until.saturating_sub(now) };
        let opened: RedisResult<Arc<dyn Transport>> = if is_down {
            Err(failed(io::ErrorKind::ConnectionRefused))
        } else {
            Ok(Arc::new(open))
        };
        if wait == 0 {
            return Box::pin(async { opened });
        }
        let (sender, answer) = oneshot::channel();
        let exec = world.exec.clone();
        world.exec.spawn(None, async move {
            exec.sleep(wait).await;
            let _ = sender.send(opened);
        });
        Box::pin(async {
            answer.await.unwrap_or_else(|_| Err(failed(io::ErrorKind::ConnectionRefused)))
        })
    }
}

/// One connection.
#[derive(Clone)]
struct Wire {
    process: ProcessId,
    server: ServerId,
    /// How many transactions the server had after the last write of this connection. WAIT waits for
    /// these, as it is documented; a server of version 7.0 waits for the writes of others, too, that
    /// precede the connection's last command.
    written: Arc<AtomicUsize>,
}

/// What befalls a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accident {
    /// The connection breaks before the server has read anything.
    Lost,
    /// The connection breaks at once, and the server carries the call out much later.
    Late,
    /// The connection breaks before the answer arrives.
    AnswerLost,
    /// The answer takes too long.
    AnswerLate,
    /// Nothing arrives, and nothing breaks.
    Silent,
}

const ACCIDENTS: [Accident; 5] =
    [Accident::Lost, Accident::Late, Accident::AnswerLost, Accident::AnswerLate, Accident::Silent];

type Outcome = RedisResult<Vec<Value>>;

/// Where an outcome is to arrive; the first one counts.
#[derive(Clone)]
struct Reply(Rc<RefCell<Option<oneshot::Sender<Outcome>>>>);

impl Reply {
    fn send(&self, outcome: Outcome) {
        if let Some(sender) = self.0.borrow_mut().take() {
            // The caller may have given up.
            let _ = sender.send(outcome);
        }
    }

    fn send_after(self, world: &Rc<World>, ms: u64, outcome: Outcome) {
        let exec = world.exec.clone();
        world.exec.spawn(None, async move {
            exec.sleep(ms).await;
            self.send(outcome);
        });
    }
}

impl Transport for Wire {
    fn send<'a>(&'a self, commands: &'a Pipeline) -> BoxFuture<'a, RedisResult<Vec<Value>>> {
        match self.begin(&world(), words_of(commands)) {
            Ok(outcome) => Box::pin(async { outcome }),
            Err(later) => Box::pin(async {
                later.await.unwrap_or_else(|_| Err(failed(io::ErrorKind::ConnectionReset)))
            }),
        }
    }
}

impl Wire {
    /// Sends a call. Returns its outcome, or where that will arrive.
    fn begin(
        &self,
        world: &Rc<World>,
        words: Vec<Words>,
    ) -> Result<Outcome, oneshot::Receiver<Outcome>> {
        let node = world.processes.borrow()[self.process].clone();
        if node.store_down.get() {
            return Ok(Err(failed(io::ErrorKind::ConnectionReset)));
        }
        let accident = node.random.borrow_mut().percent(node.accident_percent.get());
        let accident = accident.then(|| node.random.borrow_mut().pick(&ACCIDENTS));
        let hung = world.store.group.borrow().hung_until > world.exec.now();
        let mut done = None;
        if accident.is_none() && !hung && node.random.borrow_mut().percent(70) {
            let Some(mut values) = self.carry_out(world, &words) else {
                return Ok(Err(failed(io::ErrorKind::ConnectionReset)));
            };
            let Some((wanted, _)) = wait_of(&words) else { return Ok(Ok(values)) };
            let count = self.acknowledgements(world, &words);
            if count >= wanted {
                values.push(Value::Int(count));
                return Ok(Ok(values));
            }
            done = Some(values);
        }
        let (sender, later) = oneshot::channel();
        let reply = Reply(Rc::new(RefCell::new(Some(sender))));
        let (before, after) = (node.below(15), node.below(15));
        if let Some(accident) = accident {
            world.store.count(accident.name());
        }
        match accident {
            Some(Accident::Lost) => {
                reply.send_after(world, before, Err(failed(io::ErrorKind::ConnectionReset)));
                return Err(later);
            }
            Some(Accident::Silent) => {
                reply.send_after(world, TIMEOUT_MS, Err(failed(io::ErrorKind::TimedOut)));
                return Err(later);
            }
            Some(Accident::Late) => {
                let reset = Err(failed(io::ErrorKind::ConnectionReset));
                reply.clone().send_after(world, node.below(200), reset);
            }
            Some(Accident::AnswerLost | Accident::AnswerLate) | None => {}
        }
        if hung || accident == Some(Accident::AnswerLate) {
            reply.clone().send_after(world, TIMEOUT_MS, Err(failed(io::ErrorKind::TimedOut)));
        }
        let late = if accident == Some(Accident::Late) { node.below(4_000) } else { 0 };
        let (wire, exec) = (self.clone(), world.exec.clone());
        let world = world.clone();
        exec.clone().spawn(None, async move {
            if done.is_none() {
                exec.sleep(before + late).await;
            }
            let outcome = wire.answer(&world, &words, done).await;
            exec.sleep(after).await;
            match accident {
                Some(Accident::AnswerLost) => {
                    reply.send(Err(failed(io::ErrorKind::ConnectionReset)));
                }
                Some(Accident::AnswerLate) => {}
                _ => reply.send(outcome),
            }
        });
        Err(later)
    }

    /// The server's answer to a call, of which the writes may be done.
    async fn answer(
        &self,
        world: &Rc<World>,
        words: &[Words],
        done: Option<Vec<Value>>,
    ) -> Outcome {
        let reset = || failed(io::ErrorKind::ConnectionReset);
        while world.store.group.borrow().hung_until > world.exec.now() {
            let until = world.store.group.borrow().hung_until;
            world.exec.sleep(until - world.exec.now()).await;
        }
        let done = done.or_else(|| self.carry_out(world, words));
        let mut values = done.ok_or_else(reset)?;
        if let Some((wanted, timeout_ms)) = wait_of(words) {
            let until = world.exec.now() + timeout_ms;
            let mut count = self.acknowledgements(world, words);
            while count < wanted && world.exec.now() < until {
                world.exec.sleep(WAIT_INTERVAL_MS).await;
                if world.store.group.borrow_mut().server(self.server).is_none() {
                    return Err(reset());
                }
                count = self.acknowledgements(world, words);
            }
            values.push(Value::Int(count));
        }
        Ok(values)
    }

    /// Carries out all commands but WAIT; `None` if the server's process is gone.
    fn carry_out(&self, world: &Rc<World>, words: &[Words]) -> Option<Vec<Value>> {
        let count = words.len() - usize::from(wait_of(words).is_some());
        let mut values = Vec::with_capacity(count);
        for words in &words[..count] {
            let (value, written) = world.store.execute(self.server, words, world.exec.now())?;
            values.push(value);
            if let Some(written) = written {
                self.written.store(written, Ordering::Relaxed);
            }
        }
        Some(values)
    }

    /// What the WAIT that ends a call answers at the moment.
    fn acknowledgements(&self, world: &Rc<World>, words: &[Words]) -> i64 {
        let written = self.written.load(Ordering::Relaxed);
        let mut group = world.store.group.borrow_mut();
        let count = if group.lies_about_reads && is_read(words) {
            REPLICAS
        } else {
            group.acknowledgements(self.server, written, world.exec.now())
        };
        i64::try_from(count).unwrap()
    }
}

impl Accident {
    fn name(self) -> &'static str {
        match self {
            Accident::Lost => "calls lost",
            Accident::Late => "calls late",
            Accident::AnswerLost => "answers lost",
            Accident::AnswerLate => "answers late",
            Accident::Silent => "calls silent",
        }
    }
}

/// Whether a call is a read that waits for replicas: it writes only the barrier before its WAIT.
fn is_read(words: &[Words]) -> bool {
    matches!(words, [_, eval, _] if eval[0] == b"EVAL" && name_of(text(&eval[1])) == "barrier")
}

/// The number of replicas and the milliseconds of the WAIT that ends a call.
fn wait_of(words: &[Words]) -> Option<(i64, u64)> {
    let wait = words.last().filter(|words| text(&words[0]) == "WAIT")?;
    let number = |at: usize| integer(&wait[at]).unwrap();
    Some((number(1), u64::try_from(number(2)).unwrap()))
}
