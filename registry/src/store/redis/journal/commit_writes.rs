//! What a commit writes beside the journal, worked out by the node: the script that appends only
//! carries it out.

use std::borrow::Cow;

use abide_actors::journal::{
    Claim, ClosedSuspension, Commit, ConversationSummary, Holder, InboxEntry, Relisting, StoreError,
};
use abide_conversation::state::PendingCall;
use abide_conversation::{ConversationId, Scoped, Seq};
use redis::ToRedisArgs;

use super::super::super::compression::Compression;
use super::super::super::listing::{Entry, MemberParts};
use super::super::super::sealing::{CommitKey, Sealer};
use super::super::super::stored_form::StoredForm;
use super::super::backlog::queues;
use super::super::command::keys::{self, Key, Tag};
use super::super::command::script::{Args, Script, ScriptCall};
use super::super::rows::decode::{LISTING, METADATA, PARTICIPANTS, STATE, inbox_label};
use super::super::rows::indexed_row::IndexedRow;
use super::super::scripts::json;

/// How many arguments one command has at most: Lua's stack takes some thousands.
const MAX_COMMAND_ARGS: usize = 1_000;

/// Room for the fields and the commands of a usual commit.
const USUAL_FIELDS: usize = 24;
const USUAL_WORDS: usize = 48;
const USUAL_BYTES: usize = 1_024;

/// What a commit of one conversation writes.
pub(super) struct CommitWrites<'a> {
    id: &'a Scoped<ConversationId>,
    /// The keys of the script, which the commands name by their number.
    keys: Vec<Key<'a>>,
    /// Fields of the conversation, each with its value.
    fields: Args,
    commands: Args,
    /// What is stored before the commit, and after it.
    before: &'a IndexedRow,
    after: IndexedRow,
    compression: Compression,
    /// Whether the entry in lists must be as it was known.
    relists: bool,
}

impl<'a> CommitWrites<'a> {
    /// What the commit writes to a conversation of which this is stored; `keys` are those that the
    /// script needs itself, the conversation first.
    pub(super) fn new(
        id: &'a Scoped<ConversationId>,
        keys: Vec<Key<'a>>,
        before: &'a IndexedRow,
        compression: Compression,
    ) -> Self {
        let fields = Args::with_capacity(USUAL_FIELDS, USUAL_BYTES);
        let commands = Args::with_capacity(USUAL_WORDS, USUAL_BYTES);
        let relists = before.is_unknown();
        let after = before.clone();
        Self { id, keys, fields, commands, before, after, compression, relists }
    }

    /// Writes that this holder has the claim. The script works out the epoch, which is the first field.
    pub(super) fn claim(&mut self, me: &Holder) {
        self.set("epoch", "");
        self.set("node", me.node.as_str());
        self.set("incarnation", me.incarnation.as_str());
    }

    /// Adds all that the commit writes but the journal, its responses, what it owes, and usage.
    pub(super) fn add(
        &mut self,
        commit: &Commit,
        is_new: bool,
        sealer: Option<&Sealer>,
        key: Option<&CommitKey>,
    ) -> Result<(), StoreError> {
        let summary = &commit.summary;
        let form = StoredForm { compression: self.compression, own: key.map(|key| &key.own) };
        let tag = Tag::of(self.id);
        self.after.seq = summary.last_seq;
        self.set("seq", summary.last_seq.get());
        self.fields.push("head");
        self.fields.push_json("", &(summary.status, summary.created_at))?;
        if is_new {
            self.set("agent", summary.agent.as_str());
            self.command("ZADD", tag.listing(self.id.prefix(), "ids"), &["0", self.id.as_str()]);
            if !self.id.prefix().is_empty() {
                self.command("SADD", tag.common("tenants"), &[self.id.tenant().as_str()]);
            }
        }
        if let Some(key) = key.filter(|key| key.is_new) {
            self.set("key", key.own.wrapped());
        }
        self.set_alarm(commit);
        self.relist(commit, is_new, sealer, form)?;
        if let Some(state) = &commit.state {
            let prefix = format_args!("{} {} ", super::super::STATE_FORMAT, state.seq);
            self.begin_command("SET", tag.own("s", self.id.as_str()), 1);
            self.commands.push_stored(prefix, form, STATE, state)?;
        }
        if commit.resets_deaths {
            self.command("HDEL", tag.own("c", self.id.as_str()), &["deaths"]);
        }
        self.write_inbox(commit, sealer)?;
        self.requeue(commit);
        Ok(())
    }

    /// The call of this script with what stands before the parts, and with these events.
    pub(super) fn call(
        &self,
        script: &'static Script,
        (held, nonce, before): (&Claim, &str, Seq),
        has_usage: bool,
        last_keys: &[Key<'_>],
        events: &[Cow<'_, [u8]>],
    ) -> ScriptCall {
        let keys: Vec<Key<'_>> = self.keys.iter().chain(last_keys).copied().collect();
        let mut call = ScriptCall::new(script, Tag::of(self.id), keys)
            .held(held)
            .arg(nonce)
            .arg(before.get())
            .arg(if self.relists { &self.before.listed } else { "*" })
            .arg(events.len())
            .arg(self.fields.len())
            .arg(self.commands.len())
            .arg(if has_usage { "u" } else { "" });
        for event in events {
            call = call.arg(&**event);
        }
        call.args(&self.fields).args(&self.commands)
    }

    /// What is stored after the commit.
    pub(super) fn into_row(self) -> IndexedRow {
        self.after
    }

    /// Sets a field of the conversation.
    pub(super) fn set(&mut self, field: &str, value: impl ToRedisArgs) {
        self.fields.push(field);
        self.fields.push(value);
    }

    /// Adds a command for each thousand of these arguments.
    fn command(&mut self, name: &str, key: Key<'a>, args: &[impl ToRedisArgs]) {
        for some in args.chunks(MAX_COMMAND_ARGS) {
            self.begin_command(name, key, some.len());
            some.iter().for_each(|arg| self.commands.push(arg));
        }
    }

    /// Begins a command that has this number of arguments.
    fn begin_command(&mut self, name: &str, key: Key<'a>, args: usize) {
        let known = self.keys.iter().position(|known| *known == key);
        let at = known.unwrap_or_else(|| {
            self.keys.push(key);
            self.keys.len() - 1
        });
        self.commands.push(name);
        self.commands.push(at + 1);
        self.commands.push(args);
    }

    fn set_alarm(&mut self, commit: &Commit) {
        let (id, summary) = (self.id.as_str(), &commit.summary);
        let (alarms, active) =
            (Tag::of(self.id).common("alarms"), Tag::of(self.id).common("active"));
        self.after.alarm = summary.alarm.map(|at| at.to_string()).unwrap_or_default();
        if self.after.alarm != self.before.alarm {
            self.set("alarm", self.after.alarm.clone());
            match summary.alarm {
                Some(at) => self.command("ZADD", alarms, &[&keys::score(at), id]),
                None => self.command("ZREM", alarms, &[id]),
            }
        }
        self.after.active = summary.active;
        if self.after.active != self.before.active {
            self.set("active", if summary.active { "1" } else { "" });
            if summary.active {
                self.command("ZADD", active, &["0", id]);
            } else {
                self.command("ZREM", active, &[id]);
            }
        }
    }

    /// Writes what lists show of the conversation.
    fn relist(
        &mut self,
        commit: &Commit,
        is_new: bool,
        sealer: Option<&Sealer>,
        form: StoredForm<'_>,
    ) -> Result<(), StoreError> {
        let summary = &commit.summary;
        if commit.relisting == Relisting::Unchanged && !is_new {
            return Ok(());
        }
        let before = Entry::parse(&self.before.listed);
        let index_key = sealer.and_then(Sealer::new_index_key);
        let (next, is_whole) = match &commit.relisting {
            Relisting::Whole { indexed } => (Some(Entry::new(summary, indexed, index_key)), true),
            _ if is_new => (Some(Entry::new(summary, &[], index_key)), true),
            // A conversation without an entry gets none.
            _ => (before.as_ref().map(|entry| entry.touched(summary)), false),
        };
        self.relists = true;
        self.fields.push(LISTING);
        self.fields.push_stored("", form, LISTING, &summary.listing)?;
        if is_whole {
            self.set_content(commit, is_new, form)?;
        }
        let Some(next) = next else { return Ok(()) };
        let lists = Tag::of(self.id).listing(self.id.prefix(), super::super::listing::INDEX);
        let gone = before.iter().flat_map(|before| before.members_beside(Some(&next), self.id));
        self.list_command("ZREM", lists, None, &gone.collect::<Vec<_>>());
        let new: Vec<_> = next.members_beside(before.as_ref(), self.id).collect();
        self.list_command("ZADD", lists, Some("0"), &new);
        self.set("listed", next.as_str());
        self.after.listed = next.into_text();
        Ok(())
    }

    /// Adds a command for each thousand arguments: these members of the index of lists, each after the
    /// score, if there is one.
    fn list_command(
        &mut self,
        name: &str,
        lists: Key<'a>,
        score: Option<&str>,
        members: &[MemberParts<'_>],
    ) {
        let args_each = 1 + usize::from(score.is_some());
        for some in members.chunks(MAX_COMMAND_ARGS / args_each) {
            self.begin_command(name, lists, some.len() * args_each);
            for member in some {
                if let Some(score) = score {
                    self.commands.push(score);
                }
                self.commands.push_concat(member);
            }
        }
    }

    /// Sets the metadata and the participants.
    fn set_content(
        &mut self,
        commit: &Commit,
        is_new: bool,
        form: StoredForm<'_>,
    ) -> Result<(), StoreError> {
        let summary = &commit.summary;
        let mut gone = Vec::new();
        if summary.metadata.is_empty() {
            gone.push(METADATA);
        } else {
            self.fields.push(METADATA);
            self.fields.push_stored("", form, METADATA, &summary.metadata)?;
        }
        if summary.participants.is_empty() {
            gone.push(PARTICIPANTS);
        } else {
            self.set(PARTICIPANTS, json(&summary.participants)?);
        }
        if !is_new && !gone.is_empty() {
            self.command("HDEL", Tag::of(self.id).own("c", self.id.as_str()), &gone);
        }
        Ok(())
    }

    /// Removes the inbox entries of closed suspensions, and adds those of opened ones.
    fn write_inbox(&mut self, commit: &Commit, sealer: Option<&Sealer>) -> Result<(), StoreError> {
        let (id, tag) = (self.id, Tag::of(self.id));
        let (entries, open) = (tag.own("o", id.as_str()), tag.listing(id.prefix(), "open"));
        let closed: Vec<String> = commit.closed.iter().map(|it| closed_member(id, it)).collect();
        self.command("ZREM", open, &closed);
        self.command("HDEL", entries, &closed);
        let summary = &commit.summary;
        let (mut members, mut written) = (Vec::new(), Vec::new());
        for pending in &commit.opened {
            let entry = inbox_entry(id, summary, pending, self.compression)?;
            let entry = match sealer {
                Some(sealer) => sealer.seal(inbox_label(id), entry)?,
                None => entry,
            };
            let member = keys::inbox_member(&keys::pending_key(id, pending));
            members.extend(["0".to_owned(), member.clone()]);
            written.extend([member.into_bytes(), entry.into_owned()]);
        }
        self.command("ZADD", open, &members);
        self.command("HSET", entries, &written);
        Ok(())
    }

    /// Replaces the entries of calls that wait in queues.
    fn requeue(&mut self, commit: &Commit) {
        let Some(queued) = &commit.queued else { return };
        let queues = Tag::of(self.id).listing(self.id.prefix(), queues::QUEUES);
        let gone: Vec<&str> = self.before.queued.split('\n').filter(|it| !it.is_empty()).collect();
        let new: Vec<String> = queued.iter().map(|entry| queues::member(self.id, entry)).collect();
        self.after.queued = new.join("\n");
        self.command("ZREM", queues, &gone);
        let scored: Vec<&str> = new.iter().flat_map(|member| ["0", member]).collect();
        self.command("ZADD", queues, &scored);
        self.set("queued", self.after.queued.clone());
    }
}

/// An entry of the inbox, before it is sealed.
pub(in crate::store::redis) fn inbox_entry(
    id: &Scoped<ConversationId>,
    summary: &ConversationSummary,
    pending: &PendingCall,
    compression: Compression,
) -> Result<Cow<'static, [u8]>, StoreError> {
    let entry = InboxEntry {
        conversation_id: id.local(),
        agent: summary.agent.clone(),
        participants: summary.participants.clone(),
        pending: pending.clone(),
    };
    Ok(compression.compress(json(&entry)?.into()))
}

/// The member of a closed suspension in the inbox.
fn closed_member(id: &Scoped<ConversationId>, closed: &ClosedSuspension) -> String {
    let ClosedSuspension { call_id, suspension, expires_at } = closed;
    keys::inbox_member(&(*expires_at, id.clone(), call_id.clone(), *suspension))
}
