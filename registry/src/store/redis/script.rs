//! A script and a call of it.

use std::sync::LazyLock;

use redis::{Cmd, ToRedisArgs, cmd};

use super::keys::Tag;

/// A script, and the name that the server keeps it under.
pub(super) struct Script {
    source: &'static str,
    hash: LazyLock<String>,
}

impl Script {
    pub(super) const fn new(source: &'static str, hash: fn() -> String) -> Self {
        Self { source, hash: LazyLock::new(hash) }
    }
}

/// The SHA-1 of a script, as the server computes it.
pub(super) fn hash(source: &str) -> String {
    redis::Script::new(source).get_hash().to_owned()
}

/// A call of a script.
pub(super) struct Call {
    script: &'static Script,
    tag: Tag,
    keys: Vec<String>,
    args: Vec<Vec<u8>>,
}

impl Call {
    pub(super) fn new(script: &'static Script, tag: Tag, keys: Vec<String>) -> Self {
        Self { script, tag, keys, args: Vec::new() }
    }

    pub(super) fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.args.extend(arg.to_redis_args());
        self
    }

    pub(super) fn tag(&self) -> Tag {
        self.tag
    }

    /// What a server understands that knows the script.
    pub(super) fn by_hash(&self) -> Cmd {
        self.command("EVALSHA", &self.script.hash)
    }

    /// What every server understands, and it knows the script from then on.
    pub(super) fn by_text(&self) -> Cmd {
        self.command("EVAL", self.script.source)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = cmd(name);
        command.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.args);
        command
    }
}
