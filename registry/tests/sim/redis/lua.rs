//! Runs Lua scripts as Redis does: each of them is atomic, and what it calls is carried out at once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use ::redis::Value;
use mlua::{Function, Lua, LuaOptions, StdLib, Variadic};

use super::call::ScriptName;
use super::commands::kind;
use super::keyspace::Keyspace;
use super::sorted_set::whole;
use super::{Answer, text};

/// What a server refuses at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The server's memory is full.
    pub full: bool,
    /// The server is a replica.
    pub read_only: bool,
}

pub const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";
pub const READ_ONLY: &str = "READONLY You can't write against a read only replica.";

/// The script that runs, and its server's keys.
struct Running {
    keyspace: Keyspace,
    limits: Limits,
    /// Whether a full server lets the script write.
    allows_oom: bool,
    /// Whether it has written: after its first write nothing is refused for want of memory.
    has_written: bool,
    /// The error of the command that ended it.
    refusal: Option<String>,
}

impl Running {
    fn call(&mut self, words: &[Vec<u8>]) -> Answer {
        let name = text(&words[0]).to_ascii_uppercase();
        let Some(kind) = kind(&name) else { panic!("a script calls {name}, which is no command") };
        if kind.writes && self.limits.read_only {
            return Err(READ_ONLY.to_owned());
        }
        let must_refuse = self.limits.full && !self.allows_oom && !self.has_written;
        if kind.needs_memory && must_refuse {
            return Err(OUT_OF_MEMORY.to_owned());
        }
        self.has_written |= kind.writes;
        self.keyspace.execute(words)
    }
}

/// A script that a server knows.
#[derive(Debug)]
pub struct Script {
    pub name: ScriptName,
    function: Function,
    /// Whether it says what it may do, as scripts of Redis 7 can.
    has_flags: bool,
    allows_oom: bool,
    never_writes: bool,
}

struct Engine {
    lua: Lua,
    scripts: RefCell<HashMap<String, Rc<Script>>>,
    running: Rc<RefCell<Option<Running>>>,
}

thread_local! {
    static ENGINE: Engine = Engine::new().unwrap();
}

/// Compiles a script of this name.
pub fn compile(name: ScriptName, source: &str) -> Rc<Script> {
    ENGINE.with(|engine| engine.compile(name, source).unwrap())
}

/// Runs a script.
pub fn eval(
    keyspace: &mut Keyspace,
    limits: Limits,
    script: &Script,
    keys: &[Vec<u8>],
    args: &[Vec<u8>],
) -> Answer {
    if script.has_flags && !script.never_writes {
        if limits.full && !script.allows_oom {
            return Err("OOM allow-oom flag is not set on the script, can not run it when used \
                        memory > 'maxmemory'"
                .to_owned());
        }
        if limits.read_only {
            return Err("READONLY Can not run script with write flag on readonly replica.".into());
        }
    }
    let running = Running {
        keyspace: std::mem::take(keyspace),
        limits,
        allows_oom: script.allows_oom,
        has_written: false,
        refusal: None,
    };
    ENGINE.with(|engine| {
        *engine.running.borrow_mut() = Some(running);
        let outcome = engine.run(script, keys, args);
        let ended = engine.running.borrow_mut().take().expect("it was put there");
        *keyspace = ended.keyspace;
        match (outcome, ended.refusal) {
            (Ok(answer), _) => answer,
            (Err(_), Some(refusal)) => Err(refusal),
            (Err(error), None) => Err(format!("ERR Error running script: {error}")),
        }
    })
}

impl Engine {
    fn new() -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let running: Rc<RefCell<Option<Running>>> = Rc::default();
        let caller = running.clone();
        let call = lua.create_function(move |lua, args: Variadic<mlua::Value>| {
            let words = args.iter().map(word).collect::<mlua::Result<Vec<_>>>()?;
            let mut running = caller.borrow_mut();
            let running = running.as_mut().expect("a script runs");
            match running.call(&words) {
                Ok(value) => to_lua(lua, &value),
                Err(line) => {
                    running.refusal = Some(line.clone());
                    Err(mlua::Error::runtime(line))
                }
            }
        })?;
        let redis = lua.create_table()?;
        redis.set("call", call)?;
        let error_reply = lua.create_function(|lua, line: mlua::String| {
            let table = lua.create_table()?;
            table.raw_set("err", line)?;
            Ok(table)
        })?;
        redis.set("error_reply", error_reply)?;
        let sha1hex = lua.create_function(|_, bytes: mlua::String| {
            // The client computes the same of a script.
            Ok(::redis::Script::new(&bytes.to_str()?).get_hash().to_owned())
        })?;
        redis.set("sha1hex", sha1hex)?;
        lua.globals().set("redis", redis)?;
        let cjson = lua.create_table()?;
        let decode = lua.create_function(|lua, json: mlua::String| {
            let value: serde_json::Value =
                serde_json::from_slice(&json.as_bytes()).map_err(mlua::Error::external)?;
            json_to_lua(lua, &value)
        })?;
        cjson.set("decode", decode)?;
        lua.globals().set("cjson", cjson)?;
        Ok(Self { lua, scripts: RefCell::default(), running })
    }

    fn compile(&self, name: ScriptName, source: &str) -> mlua::Result<Rc<Script>> {
        if let Some(script) = self.scripts.borrow().get(source) {
            return Ok(script.clone());
        }
        // The line of the flags is no Lua.
        let chunk = source.strip_prefix("#!").map(|rest| format!("--{rest}"));
        let flags = source.strip_prefix("#!lua").and_then(|rest| rest.lines().next());
        let flag = |name| flags.is_some_and(|flags| flags.contains(name));
        let script = Rc::new(Script {
            name,
            function: self.lua.load(chunk.as_deref().unwrap_or(source)).into_function()?,
            has_flags: flags.is_some(),
            allows_oom: flag("allow-oom"),
            never_writes: flag("no-writes"),
        });
        self.scripts.borrow_mut().insert(source.to_owned(), script.clone());
        Ok(script)
    }

    fn run(&self, script: &Script, keys: &[Vec<u8>], args: &[Vec<u8>]) -> mlua::Result<Answer> {
        for (name, words) in [("KEYS", keys), ("ARGV", args)] {
            let table = self.lua.create_table_with_capacity(words.len(), 0)?;
            for (index, word) in words.iter().enumerate() {
                table.raw_set(index + 1, self.lua.create_string(word)?)?;
            }
            self.lua.globals().raw_set(name, table)?;
        }
        let returned = script.function.call::<mlua::Value>(())?;
        if let mlua::Value::Table(table) = &returned
            && let Some(line) = table.raw_get::<Option<String>>("err")?
        {
            return Ok(Err(line));
        }
        from_lua(returned).map(Ok)
    }
}

/// An argument of `redis.call`.
fn word(value: &mlua::Value) -> mlua::Result<Vec<u8>> {
    match value {
        mlua::Value::String(word) => Ok(word.as_bytes().to_vec()),
        mlua::Value::Integer(number) => Ok(number.to_string().into_bytes()),
        mlua::Value::Number(number) => Ok(whole(*number).into_bytes()),
        _ => Err(mlua::Error::runtime("redis.call takes only strings and numbers")),
    }
}

/// An answer of a command as a script sees it.
fn to_lua(lua: &Lua, value: &Value) -> mlua::Result<mlua::Value> {
    Ok(match value {
        Value::Nil => mlua::Value::Boolean(false),
        Value::Int(number) => mlua::Value::Number(*number as f64),
        Value::BulkString(bytes) => mlua::Value::String(lua.create_string(bytes)?),
        Value::Array(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for (index, item) in items.iter().enumerate() {
                table.raw_set(index + 1, to_lua(lua, item)?)?;
            }
            mlua::Value::Table(table)
        }
        Value::Okay => {
            let table = lua.create_table()?;
            table.raw_set("ok", "OK")?;
            mlua::Value::Table(table)
        }
        other => unreachable!("no command answers {other:?}"),
    })
}

/// What a script returned as an answer: numbers lose their fraction, and a list ends before its first
/// nil.
fn from_lua(value: mlua::Value) -> mlua::Result<Value> {
    Ok(match value {
        mlua::Value::Nil | mlua::Value::Boolean(false) => Value::Nil,
        mlua::Value::Boolean(true) => Value::Int(1),
        mlua::Value::Integer(number) => Value::Int(number),
        mlua::Value::Number(number) => Value::Int(number as i64),
        mlua::Value::String(bytes) => Value::BulkString(bytes.as_bytes().to_vec()),
        mlua::Value::Table(table) if table.raw_get::<Option<String>>("ok")?.is_some() => {
            Value::Okay
        }
        mlua::Value::Table(table) => {
            let mut items = Vec::new();
            for index in 1.. {
                match table.raw_get::<mlua::Value>(index)? {
                    mlua::Value::Nil => break,
                    item => items.push(from_lua(item)?),
                }
            }
            Value::Array(items)
        }
        other => return Err(mlua::Error::runtime(format!("a script returned {other:?}"))),
    })
}

fn json_to_lua(lua: &Lua, value: &serde_json::Value) -> mlua::Result<mlua::Value> {
    Ok(match value {
        serde_json::Value::Null => mlua::Value::NULL,
        serde_json::Value::Bool(value) => mlua::Value::Boolean(*value),
        serde_json::Value::Number(number) => {
            mlua::Value::Number(number.as_f64().unwrap_or_default())
        }
        serde_json::Value::String(value) => mlua::Value::String(lua.create_string(value)?),
        serde_json::Value::Array(items) => {
            let table = lua.create_table()?;
            for (index, item) in items.iter().enumerate() {
                table.raw_set(index + 1, json_to_lua(lua, item)?)?;
            }
            mlua::Value::Table(table)
        }
        serde_json::Value::Object(fields) => {
            let table = lua.create_table()?;
            for (name, field) in fields {
                table.raw_set(name.as_str(), json_to_lua(lua, field)?)?;
            }
            mlua::Value::Table(table)
        }
    })
}
