//! A Lua script, and a call of it.

use std::fmt::Display;
use std::io::Write;
use std::sync::LazyLock;

use abide_actors::journal::StoreError;
use redis::{Arg, Cmd, RedisWrite, ToRedisArgs, cmd};
use serde::Serialize;

use super::super::super::stored_form::StoredForm;
use super::error::refused;
use super::keys::{Key, Tag};

/// A script, and the hash under which servers remember it.
pub(in crate::store::redis) struct Script {
    source: &'static str,
    hash: LazyLock<String>,
}

impl Script {
    pub(in crate::store::redis) const fn new(source: &'static str, hash: fn() -> String) -> Self {
        Self { source, hash: LazyLock::new(hash) }
    }

    /// The call as a server understands it that does not know the script yet; it remembers the
    /// script.
    pub(in crate::store::redis) fn by_text(&self, by_hash: &Cmd) -> Cmd {
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
pub(in crate::store::redis) fn hash(source: &str) -> String {
    redis::Script::new(source).get_hash().to_owned()
}

/// Arguments of a call.
pub(in crate::store::redis) struct Args {
    command: Cmd,
    /// The next argument. A command takes whole arguments much faster than their pieces.
    next: Vec<u8>,
}

/// Room for the arguments of a usual commit, and for their bytes.
const USUAL_ARGS: usize = 96;
const USUAL_BYTES: usize = 4_096;
/// Room for one usual argument that is put together.
const USUAL_ARG_BYTES: usize = 256;

impl Args {
    pub(in crate::store::redis) fn with_capacity(args: usize, bytes: usize) -> Self {
        Self { command: Cmd::with_capacity(args, bytes), next: Vec::with_capacity(USUAL_ARG_BYTES) }
    }

    pub(in crate::store::redis) fn len(&self) -> usize {
        self.command.args_iter().len()
    }

    pub(in crate::store::redis) fn push(&mut self, arg: impl ToRedisArgs) {
        self.command.arg(arg);
    }

    /// Adds an argument that is all of these parts.
    pub(in crate::store::redis) fn push_concat(&mut self, parts: &[&str]) {
        self.next.clear();
        parts.iter().for_each(|part| self.next.extend_from_slice(part.as_bytes()));
        self.command.write_arg(&self.next);
    }

    /// Adds an argument of JSON that follows a prefix.
    pub(in crate::store::redis) fn push_json(
        &mut self,
        prefix: impl Display,
        value: &impl Serialize,
    ) -> Result<(), StoreError> {
        self.next.clear();
        write!(self.next, "{prefix}").map_err(|error| refused(error.to_string()))?;
        serde_json::to_writer(&mut self.next, value).map_err(|error| refused(error.to_string()))?;
        self.command.write_arg(&self.next);
        Ok(())
    }

    /// Adds an argument of JSON in the form in which its conversation is stored.
    pub(in crate::store::redis) fn push_stored(
        &mut self,
        prefix: impl Display,
        form: StoredForm<'_>,
        kind: &'static str,
        value: &impl Serialize,
    ) -> Result<(), StoreError> {
        if form.is_plain() {
            return self.push_json(prefix, value);
        }
        let json = serde_json::to_vec(value).map_err(|error| refused(error.to_string()))?;
        self.next.clear();
        write!(self.next, "{prefix}").map_err(|error| refused(error.to_string()))?;
        self.next.extend_from_slice(&form.of(kind, "", json.into())?);
        self.command.write_arg(&self.next);
        Ok(())
    }

    fn push_key(&mut self, key: Key<'_>) {
        self.next.clear();
        key.write_to(&mut self.next);
        self.command.write_arg(&self.next);
    }

    pub(super) fn push_all(&mut self, others: &Self) {
        for arg in others.command.args_iter() {
            if let Arg::Simple(arg) = arg {
                self.command.write_arg(arg);
            }
        }
    }
}

/// A call of a script by its hash.
pub(in crate::store::redis) struct ScriptCall {
    script: &'static Script,
    tag: Tag,
    args: Args,
}

impl ScriptCall {
    pub(in crate::store::redis) fn new<'k>(
        script: &'static Script,
        tag: Tag,
        keys: impl IntoIterator<Item = Key<'k>, IntoIter: ExactSizeIterator>,
    ) -> Self {
        let keys = keys.into_iter();
        let mut args = Args::with_capacity(USUAL_ARGS, USUAL_BYTES);
        args.push("EVALSHA");
        args.push(script.hash.as_str());
        args.push(keys.len());
        keys.for_each(|key| args.push_key(key));
        Self { script, tag, args }
    }

    pub(in crate::store::redis) fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.args.push(arg);
        self
    }

    /// Adds all of these arguments.
    pub(in crate::store::redis) fn args(mut self, args: &Args) -> Self {
        self.args.push_all(args);
        self
    }

    /// Adds an argument as [`Args::push_json`] does.
    pub(in crate::store::redis) fn json(
        mut self,
        prefix: impl Display,
        value: &impl Serialize,
    ) -> Result<Self, StoreError> {
        self.args.push_json(prefix, value)?;
        Ok(self)
    }

    /// Adds an argument as [`Args::push_stored`] does.
    pub(in crate::store::redis) fn stored(
        mut self,
        prefix: impl Display,
        form: StoredForm<'_>,
        kind: &'static str,
        value: &impl Serialize,
    ) -> Result<Self, StoreError> {
        self.args.push_stored(prefix, form, kind, value)?;
        Ok(self)
    }

    /// The script, the tag, and the call by hash.
    pub(in crate::store::redis) fn into_parts(self) -> (&'static Script, Tag, Cmd) {
        (self.script, self.tag, self.args.command)
    }
}
