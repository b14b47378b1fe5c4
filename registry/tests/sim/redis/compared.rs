//! The model compared with a real server: random commands are answered alike.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ::redis::{Connection, Value};
use tempfile::TempDir;
use tokio::time::Instant;

use super::commands::words;
use super::{Server, Words};
use crate::random::Random;

/// The script that a full server carries out, too.
const BARRIER: &str = concat!(
    include_str!("../../../src/store/redis/lua/lib/allow_oom.lua"),
    include_str!("../../../src/store/redis/lua/barrier.lua"),
);
/// How many commands the model and the server are given.
const COMMANDS: u64 = 20_000;

/// A `redis-server` process that dies with the test.
pub struct RealServer {
    pub port: u16,
    child: Child,
    _dir: TempDir,
}

impl RealServer {
    pub fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        command.args(["--appendonly", "yes", "--appendfsync", "no", "--dir"]).arg(dir.path());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let server = Self { port, child, _dir: dir };
        let deadline = Instant::now() + Duration::from_secs(20);
        while server.connection().is_err() {
            assert!(Instant::now() < deadline, "the server does not answer");
            std::thread::yield_now();
        }
        server
    }

    pub fn connection(&self) -> ::redis::RedisResult<Connection> {
        ::redis::Client::open(("127.0.0.1", self.port))?.get_connection()
    }

    /// Sets the limit of memory to nothing, or removes it.
    pub fn fill(&self, full: bool) {
        let limit = if full { "1" } else { "0" };
        let mut command = ::redis::cmd("CONFIG");
        command.arg("SET").arg("maxmemory").arg(limit);
        command.exec(&mut self.connection().unwrap()).unwrap();
    }
}

impl Drop for RealServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command with random arguments; few names, so that they meet.
fn random_command(random: &mut Random) -> Words {
    let typed = ["text", "list", "hash", "set", "names"];
    let mut key = random.pick(&typed);
    let (number, field) = (random.below(6), random.pick(&["a", "b", "c", "d", ""]));
    let value = random.pick(&["1", "x", "", "17"]);
    let score = random.pick(&["0", "1", "-3", "1800000000000000", "inf", "-inf", "5"]);
    let other_score = random.pick(&["(0", "1", "+inf", "(1800000000000000", "-inf", "(5"]);
    let bounds = ["-", "+", "(a", "[b", "(c", "[", "(b"];
    let (min, max) = (random.pick(&bounds), random.pick(&bounds));
    let (first, last) = (number.to_string(), random.pick(&["-1", "2", "0", "-2", "9", "-10001"]));
    let increase = random.pick(&["1", "-3", "5", "inf", "-inf", "x"]);
    let line = match random.below(42) {
        0 => vec!["GET", "text"],
        1 => vec!["SET", key, value],
        2 => vec!["SET", "text", value, "EX", "1000"],
        3 => vec!["DEL", key],
        4 => vec!["UNLINK", key, "hash", "none"],
        5 => vec!["EXPIRE", key, "1000"],
        6 => vec!["PEXPIREAT", key, random.pick(&["9000000000000", "1000"])],
        7 => vec!["PERSIST", key],
        8..=9 => vec!["RPUSH", "list", value, field],
        10 => vec!["LRANGE", "list", &first, last],
        11 => vec!["HSET", "hash", field, value, "z", value],
        12 => vec!["HSETNX", "hash", field, value],
        13 => vec!["HDEL", "hash", field, "z"],
        14 => vec!["HGET", "hash", field],
        15 => vec!["HMGET", "hash", field, "nothing", "z"],
        16 => vec!["HEXISTS", "hash", field],
        17 => vec![random.pick(&["HKEYS", "HVALS", "HGETALL"]), "hash"],
        18..=20 => vec!["ZADD", "set", score, field],
        21 => vec!["ZREM", "set", field],
        22 => vec!["ZREMRANGEBYRANK", "set", &first, last],
        23 => vec!["ZCARD", "set"],
        24 => vec!["ZSCORE", "set", field],
        25 => vec!["ZRANGE", "set", &first, last, "WITHSCORES"],
        26 => vec!["ZRANGE", "set", score, other_score, "BYSCORE", "WITHSCORES"],
        27 => vec!["ZRANGE", "set", score, other_score, "BYSCORE", "LIMIT", "0", &first],
        28 => vec!["ZRANGE", "same", min, max, "BYLEX", "LIMIT", "0", &first],
        29 => vec!["HINCRBY", "hash", field, value],
        30 => vec!["LLEN", "list"],
        31..=32 => vec!["SADD", "names", field, value],
        33 => vec!["SREM", "names", field, value],
        34 => vec!["ZINCRBY", "set", increase, field],
        35 => vec!["EVAL", BARRIER, "1", "text"],
        36 => vec!["HLEN", "hash"],
        37 => vec!["INCR", random.pick(&["number", "text"])],
        38 => vec!["ZLEXCOUNT", "same", min, max],
        39 => vec!["SMEMBERS", "names"],
        40 => vec!["LSET", "list", last, value],
        _ => vec!["ZADD", "same", "0", field],
    };
    let mut line = words(&line);
    // Now and then a key of another type than the command's.
    let is_typed =
        ![&b"BYLEX"[..], b"EVAL", b"ZLEXCOUNT"].iter().any(|it| line.contains(&it.to_vec()));
    if random.percent(5) && is_typed {
        key = random.pick(&typed);
        line[1] = key.as_bytes().to_vec();
    }
    line
}

/// An answer without what Redis leaves open: the text of an error, and the order of a hash or a
/// set.
fn comparable(line: &[Vec<u8>], answer: Value) -> String {
    let items = |items: &[Value]| items.iter().map(|it| format!("{it:?}")).collect::<Vec<_>>();
    match (answer, line[0].as_slice()) {
        (Value::ServerError(error), _) => format!("error {}", error.code()),
        (Value::Array(found), b"HKEYS" | b"HVALS" | b"SMEMBERS") => {
            let mut found = items(&found);
            found.sort();
            format!("{found:?}")
        }
        (Value::Array(found), b"HGETALL") => {
            let mut pairs: Vec<_> = found.chunks(2).map(items).collect();
            pairs.sort();
            format!("{pairs:?}")
        }
        (answer, _) => format!("{answer:?}"),
    }
}

#[test]
fn random_commands_are_answered_as_by_a_real_server() {
    let (real, mut model) = (RealServer::start(), Server::new(&[]));
    let mut connection = real.connection().unwrap();
    let mut random = Random::new(1, 7);
    for number in 0..COMMANDS {
        if number % 2_000 == 1_500 {
            real.fill(true);
            model.limits.full = true;
        } else if number % 2_000 == 0 {
            real.fill(false);
            model.limits.full = false;
        }
        let line = random_command(&mut random);
        let mut command = ::redis::Cmd::new();
        line.iter().for_each(|word| {
            command.arg(word);
        });
        let packed = command.get_packed_command();
        let theirs = ::redis::ConnectionLike::req_packed_command(&mut connection, &packed);
        let theirs = theirs.map_or_else(
            |error| format!("error {:?}", error.code()),
            |answer| comparable(&line, answer),
        );
        let ours = model.execute(&line, number, 1_800_000_000_000);
        let ours = match comparable(&line, ours) {
            ours if theirs.starts_with("error Some") => {
                ours.replace("error ", "error Some(\"") + "\")"
            }
            ours => ours,
        };
        let shown: Vec<_> = line.iter().map(|word| String::from_utf8_lossy(word)).collect();
        assert_eq!(ours, theirs, "command {number}: {shown:?}");
    }
}
