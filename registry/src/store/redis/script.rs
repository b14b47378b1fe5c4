//! A script and a call of it.

use std::fmt::Display;
use std::io::Write;
use std::sync::LazyLock;

use abide_actors::journal::StoreError;
use redis::{Arg, Cmd, RedisWrite, ToRedisArgs, cmd};
use serde::Serialize;

use super::calls::refused;
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

    /// The same call, as every server understands it; it knows the script from then on.
    pub(super) fn by_text(&self, by_hash: &Cmd) -> Cmd {
        let mut command = cmd("EVAL");
        command.arg(self.source);
        for arg in by_hash.args_iter().skip(2) {
            if let Arg::Simple(arg) = arg {
                command.arg(arg);
            }
        }
        command
    }
}

/// The SHA-1 of a script, as the server computes it.
pub(super) fn hash(source: &str) -> String {
    redis::Script::new(source).get_hash().to_owned()
}

/// A call of a script, written as what a server understands that knows it.
pub(super) struct Call {
    script: &'static Script,
    tag: Tag,
    command: Cmd,
}

/// Room for the arguments of a usual commit, and for their bytes.
const ROOM: (usize, usize) = (48, 2_048);

impl Call {
    pub(super) fn new<K: Display>(
        script: &'static Script,
        tag: Tag,
        keys: impl IntoIterator<Item = K, IntoIter: ExactSizeIterator>,
    ) -> Self {
        let keys = keys.into_iter();
        let mut command = Cmd::with_capacity(ROOM.0, ROOM.1);
        command.arg("EVALSHA").arg(script.hash.as_str()).arg(keys.len());
        keys.for_each(|key| command.write_arg_fmt(key));
        Self { script, tag, command }
    }

    pub(super) fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.command.arg(arg);
        self
    }

    /// An argument as JSON, after what stands before it.
    pub(super) fn json(
        mut self,
        before: impl Display,
        value: &impl Serialize,
    ) -> Result<Self, StoreError> {
        let mut arg = self.command.writer_for_next_arg();
        write!(arg, "{before}").map_err(|error| refused(error.to_string()))?;
        let written = serde_json::to_writer(&mut arg, value);
        drop(arg);
        written.map(|()| self).map_err(|error| refused(error.to_string()))
    }

    /// What a server understands that knows the script.
    pub(super) fn by_hash(self) -> (&'static Script, Tag, Cmd) {
        (self.script, self.tag, self.command)
    }
}
