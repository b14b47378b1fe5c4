//! One server: its keys, the scripts that it knows, and the log of what changed.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use ::redis::Value;

use super::call::{Call, ScriptName, name_of};
use super::commands::kind;
use super::keyspace::Keyspace;
use super::lua::{Limits, OUT_OF_MEMORY, READ_ONLY, Script, compile, eval};
use super::ranges::integer;
use super::{Answer, Words, server_error, text};

/// What one command or script changed: as a whole in the log, on disk and on replicas, or not at all.
#[derive(Clone, Debug, PartialEq)]
pub struct Transaction {
    /// The simulated time.
    pub at: u64,
    pub effects: Vec<Words>,
    /// The script that did it.
    pub call: Option<Call>,
}

/// Scripts, a piece of each and what replaces it: how a mutation breaks a script.
pub type Patches = &'static [(ScriptName, &'static str, &'static str)];

/// A process of a server. A restarted server is another process with the same log.
#[derive(Debug, Default)]
pub struct Server {
    pub keyspace: Keyspace,
    pub log: Vec<Transaction>,
    pub limits: Limits,
    /// The scripts by their hashes; empty after every start.
    scripts: HashMap<String, Rc<Script>>,
    patches: Patches,
    /// How often something notable happened.
    pub counts: BTreeMap<&'static str, u64>,
    /// The scripts that were refused since their server was full.
    pub refused_when_full: Vec<&'static str>,
}

impl Server {
    pub fn new(patches: Patches) -> Self {
        Self { patches, ..Self::default() }
    }

    /// The process that follows this one, with the first `transactions` of its log.
    pub fn successor(&self, transactions: usize) -> Self {
        let log = self.log[..transactions].to_vec();
        let effects = log.iter().flat_map(|transaction| &transaction.effects);
        Self {
            keyspace: Keyspace::rebuilt(effects),
            log,
            limits: Limits { read_only: false, ..self.limits },
            patches: self.patches,
            ..Self::default()
        }
    }

    /// Forgets all scripts, as SCRIPT FLUSH does.
    pub fn forget_scripts(&mut self) {
        self.scripts.clear();
    }

    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Carries a command out at a simulated time, while the server's clock shows `clock_ms`.
    pub fn execute(&mut self, words: &[Vec<u8>], now: u64, clock_ms: i64) -> Value {
        self.keyspace.now_ms = clock_ms;
        let (answer, call) = match text(&words[0]) {
            "EVALSHA" => self.call_by_hash(words),
            "EVAL" => self.call_by_text(words),
            _ => (self.command(words), None),
        };
        let effects = std::mem::take(&mut self.keyspace.effects);
        if !effects.is_empty() {
            self.log.push(Transaction { at: now, effects, call });
        }
        answer.unwrap_or_else(|line| server_error(&line))
    }

    fn command(&mut self, words: &[Vec<u8>]) -> Answer {
        let name = text(&words[0]).to_ascii_uppercase();
        let Some(kind) = kind(&name) else {
            panic!("the model of Redis does not know the command {name}")
        };
        if kind.writes && self.limits.read_only {
            return Err(READ_ONLY.to_owned());
        }
        if kind.needs_memory && self.limits.full {
            return Err(OUT_OF_MEMORY.to_owned());
        }
        self.keyspace.execute(words)
    }

    fn call_by_hash(&mut self, words: &[Vec<u8>]) -> (Answer, Option<Call>) {
        let Some(script) = self.scripts.get(text(&words[1])).cloned() else {
            self.count("unknown scripts");
            return (Err("NOSCRIPT No matching script. Please use EVAL.".to_owned()), None);
        };
        self.call(&script, words)
    }

    fn call_by_text(&mut self, words: &[Vec<u8>]) -> (Answer, Option<Call>) {
        let source = text(&words[1]);
        let hash = ::redis::Script::new(source).get_hash().to_owned();
        let name = name_of(source);
        let patches = self.patches.iter().filter(|(script, _, _)| *script == name);
        let patch = |source: String, (_, piece, by): &(_, &str, &str)| source.replace(piece, by);
        let patched = patches.fold(source.to_owned(), patch);
        let script = compile(name, &patched);
        self.scripts.insert(hash, script.clone());
        self.call(&script, words)
    }

    fn call(&mut self, script: &Script, words: &[Vec<u8>]) -> (Answer, Option<Call>) {
        let count = integer(&words[2]).and_then(|count| {
            usize::try_from(count).map_err(|_| "ERR Number of keys can't be negative".to_owned())
        });
        let count = match count {
            Ok(count) => count,
            Err(line) => return (Err(line), None),
        };
        let (keys, args) = words[3..].split_at(count);
        let answer = eval(&mut self.keyspace, self.limits, script, keys, args);
        let script = script.name;
        if answer.as_ref().is_err_and(|line| line.starts_with("OOM")) {
            self.count("refusals of a full server");
            self.refused_when_full.push(script);
        }
        (answer, Some(Call { script, keys: keys.to_vec(), args: args.to_vec() }))
    }
}
