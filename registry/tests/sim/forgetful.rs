//! A model of Redis that loses the tenant in one kind of key or argument: a mutation of the names in
//! the store.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ::redis::{Arg, Cmd, Pipeline, RedisResult, Value};
use abide_conversation::Tenant;
use abide_registry::partition::Partition;
use abide_registry::store::redis::transport::{Dial, Transport};
use abide_registry::store::redis::{Durability, Redis};
use futures::future::BoxFuture;

use crate::redis::{Server, Words};

/// The wall-clock time at which the calls begin: before all times that the calls name.
const BEGINNING_MS: i64 = 1_899_000_000_000;
/// The prefixes of the tenants that have one.
const PREFIXES: [&str; 2] = ["acme/", "globex/"];

thread_local! {
    static MODEL: RefCell<Forgetful> = RefCell::default();
}

#[derive(Default)]
struct Forgetful {
    server: Server,
    clock_ms: i64,
    /// The kind of key or argument that loses its tenant.
    forgets: Option<String>,
    /// The kinds that had a tenant.
    kinds: BTreeSet<String>,
    /// The last deletion of a conversation that each tenant asked for, by the tenant's prefix.
    deletions: BTreeMap<String, Words>,
}

/// The kinds of keys and arguments with a tenant that this thread's last model was given.
pub fn kinds() -> BTreeSet<String> {
    MODEL.with_borrow(|model| model.kinds.clone())
}

/// Sends the tenant's last deletion once more, as after a lost answer. Returns what the model answers.
pub fn repeat_deletion(tenant: &Tenant) -> Option<String> {
    let prefix = PREFIXES.iter().find(|prefix| prefix.strip_suffix('/') == Some(tenant.as_str()));
    MODEL.with_borrow_mut(|model| {
        let words = model.deletions.get(prefix.copied().unwrap_or_default())?;
        Some(format!("{:?}", model.server.execute(words, 0, model.clock_ms)))
    })
}

/// Ends this thread's model.
pub fn end() {
    MODEL.take();
}

/// Sets the clock of this thread's model.
pub fn set_clock(seconds: u64) {
    let seconds = i64::try_from(seconds).unwrap();
    MODEL.with_borrow_mut(|model| model.clock_ms = BEGINNING_MS + seconds * 1_000);
}

/// Connects to the model of this thread.
pub struct Model;

impl Model {
    /// An empty store over a new model, which loses the tenant in this kind of key or argument.
    pub fn begin(forgets: Option<&String>) -> Redis {
        let forgets = forgets.cloned();
        MODEL.set(Forgetful { forgets, clock_ms: BEGINNING_MS, ..Forgetful::default() });
        Redis::simulated(Arc::new(Self), Durability::Os, "o".to_owned())
    }
}

impl Dial for Model {
    fn dial(&self) -> BoxFuture<'_, RedisResult<Arc<dyn Transport>>> {
        Box::pin(async { Ok(Arc::new(Self) as Arc<dyn Transport>) })
    }
}

impl Transport for Model {
    fn send<'a>(&'a self, commands: &'a Pipeline) -> BoxFuture<'a, RedisResult<Vec<Value>>> {
        let values = commands.cmd_iter().map(|command| {
            MODEL.with_borrow_mut(|model| {
                let words = model.mutated(command);
                model.server.execute(&words, 0, model.clock_ms)
            })
        });
        let values = values.collect();
        Box::pin(async { Ok(values) })
    }
}

impl Forgetful {
    fn mutated(&mut self, command: &Cmd) -> Words {
        let words = command.args_iter().map(|arg| match arg {
            Arg::Simple(word) => word.to_vec(),
            other => unreachable!("{other:?}"),
        });
        let words: Words = words.collect();
        // The first key tells what an argument belongs to.
        let first = words.iter().find_map(|word| Key::parse(std::str::from_utf8(word).ok()?));
        let first = first.map(|key| key.kind());
        let deleting = words.iter().find_map(|word| {
            let key = Key::parse(std::str::from_utf8(word).ok()?)?;
            key.before.starts_with("deleted:").then(|| key.prefix.to_owned())
        });
        let words = words.into_iter().map(|word| self.without_tenant(word, first.as_deref()));
        let words: Words = words.collect();
        if let Some(prefix) = deleting {
            self.deletions.insert(prefix, words.clone());
        }
        words
    }

    fn without_tenant(&mut self, word: Vec<u8>, first: Option<&str>) -> Vec<u8> {
        let Ok(text) = std::str::from_utf8(&word) else { return word };
        let (kind, forgetful) = match Key::parse(text) {
            Some(key) if key.prefix.is_empty() => return word,
            Some(key) => (key.kind(), key.without_tenant()),
            None => {
                let local = PREFIXES.iter().find_map(|prefix| text.strip_prefix(prefix));
                let Some(local) = local else { return word };
                (format!("argument with {}", first.unwrap_or("no key")), local.to_owned())
            }
        };
        let forgets = self.forgets.as_ref() == Some(&kind);
        self.kinds.insert(kind);
        if forgets { forgetful.into_bytes() } else { word }
    }
}

/// A key: `abide:{p017}:c:acme/a`, `abide:{p017}:acme/ids`, `abide:{agents}:operations:acme`, or one
/// without a tenant.
struct Key<'a> {
    tag: &'a str,
    before: &'a str,
    prefix: &'a str,
    after: &'a str,
}

impl<'a> Key<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (tag, name) = text.strip_prefix("abide:{")?.split_once("}:")?;
        for prefix in PREFIXES {
            if let Some((before, after)) = name.split_once(prefix) {
                return Some(Self { tag, before, prefix, after });
            }
        }
        for tenant in ["default", "acme", "globex"] {
            if let Some(before) = name.strip_suffix(tenant).filter(|it| it.ends_with(':')) {
                return Some(Self { tag, before, prefix: tenant, after: "" });
            }
        }
        Some(Self { tag, before: name, prefix: "", after: "" })
    }

    /// What kind of key it is, without the name of a partition, a conversation or an agent.
    fn kind(&self) -> String {
        let tag = if self.is_partition() { "p" } else { self.tag };
        // A listing has the tenant first, and then its name.
        let of_listing = if self.before.is_empty() { self.after } else { "" };
        let of_listing = of_listing.split(':').next().unwrap_or_default();
        let before = self.before.split(':').next().unwrap_or_default();
        let is_scope = self.before.contains('/');
        format!("{{{tag}}}:{before}{of_listing}{}", if is_scope { ":scope" } else { "" })
    }

    /// The key as it would be without its tenant: where a tenant's name decides on the partition, too,
    /// that of the name alone.
    fn without_tenant(&self) -> String {
        let Self { tag, before, after, .. } = self;
        let is_own = !before.is_empty();
        let name = before.split_once(':').map_or(*before, |(_, name)| name);
        let partition = Partition::of(&format!("{name}{after}")).to_string();
        let tag = if self.is_partition() && is_own { &partition } else { *tag };
        format!("abide:{{{tag}}}:{before}{after}")
    }

    fn is_partition(&self) -> bool {
        self.tag.len() == 4 && self.tag.starts_with('p')
    }
}
