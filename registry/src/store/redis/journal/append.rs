//! The append of a commit.

use std::borrow::Cow;

use abide_actors::blobs::blobs_of_commit;
use abide_actors::identity::Epoch;
use abide_actors::journal::{Claim, Commit, Holder, ResponseScope, StoreError, StoredResponse};
use abide_conversation::{ConversationId, Scoped, Seq, Timestamp};

use super::super::super::blob_names::Naming;
use super::super::super::sealing::{CommitKey, Sealer, seal_response};
use super::super::super::stored_form::StoredForm;
use super::super::super::usage::{MAX_ROWS, USAGE_DAYS, UsageEntry, to_text};
use super::super::super::{Compression, StagedJournal};
use super::super::Redis;
use super::super::administration::usage;
use super::super::backlog::owed_queues::OwedQueues;
use super::super::command::error::refused;
use super::super::command::keys::{self, Key, Tag};
use super::super::command::script::ScriptCall;
use super::super::rows::indexed_row::IndexedRow;
use super::super::scripts::{
    APPEND, APPEND_WITH_PARTS, CLAIM_AND_APPEND, CLAIM_AND_APPEND_WITH_PARTS, PUBLISH, outcome,
};
use super::commit_writes::CommitWrites;

const SECONDS_OF_DAY: i64 = 86_400;
/// How often what the conversation is indexed by may be something else than was known. Only a rebuild of
/// the index, which passes each conversation once, writes it besides the holder.
const MAX_ATTEMPTS: usize = 3;

/// A commit, with what is worked out for it once.
struct Append<'a> {
    id: &'a Scoped<ConversationId>,
    held: &'a Claim,
    commit: &'a Commit,
    /// The end of the journal before, of which an import has the events aside.
    before: Seq,
    is_new: bool,
    nonce: String,
    key: Option<CommitKey>,
    compression: Compression,
    responses: Cow<'a, [StoredResponse]>,
    owed: OwedQueues,
    usage: Option<UsageEntry>,
    /// The name of the key with the events aside.
    staged: Option<String>,
}

impl Redis {
    /// Appends a commit whose events have consecutive numbers; with `staged`, as the end of what is
    /// aside under that key.
    pub(super) async fn append_by_script(
        &self,
        id: &Scoped<ConversationId>,
        held: &Claim,
        commit: &Commit,
        staged: Option<&StagedJournal>,
    ) -> Result<(), StoreError> {
        let append = self.prepare_append(id, held, commit, staged).await?;
        let done = self.append_prepared(&append).await;
        self.committed(held, append.key.as_ref(), done.is_ok());
        self.rows.learn(id, held.epoch, done?);
        metrics::counter!("abide_store_commits_total").increment(1);
        Ok(())
    }

    /// Claims a conversation that is new by its first commit, which names no blobs.
    pub(super) async fn claim_and_append_by_script(
        &self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        commit: &Commit,
    ) -> Result<Claim, StoreError> {
        let unclaimed = Claim::unclaimed(me.clone());
        let append = self.prepare_append(id, &unclaimed, commit, None).await?;
        let nothing = IndexedRow::default();
        let mut writes = CommitWrites::new(id, append.keys(), &nothing, append.compression);
        writes.claim(me);
        append.write_to(&mut writes, self.sealer.as_deref())?;
        let answer = self.call_durably::<String>(append.call(&writes)?).await;
        let claimed = answer.and_then(|answer| match answer.parse() {
            Ok(epoch) => Ok(Claim { epoch: Epoch::new(epoch), ..unclaimed.clone() }),
            Err(_) => Err(outcome(&answer).err().unwrap_or_else(|| refused(answer))),
        });
        let held = claimed.as_ref().unwrap_or(&unclaimed);
        self.committed(held, append.key.as_ref(), claimed.is_ok());
        let claim = claimed?;
        self.rows.learn(id, claim.epoch, writes.into_row());
        metrics::counter!("abide_store_commits_total").increment(1);
        Ok(claim)
    }

    async fn prepare_append<'a>(
        &self,
        id: &'a Scoped<ConversationId>,
        held: &'a Claim,
        commit: &'a Commit,
        staged: Option<&StagedJournal>,
    ) -> Result<Append<'a>, StoreError> {
        let before = commit.summary.last_seq.saturating_sub(commit.events.len() as u64);
        let mut namings = Naming::all(id, blobs_of_commit(commit)?);
        namings.extend(staged.iter().flat_map(|staged| Naming::unsent(id, &staged.blobs)));
        self.name_before_commit(id, held, &namings).await?;
        let key = match staged {
            Some(staged) => self.staging_key(staged)?,
            None => self.commit_key(id, held, before).await?,
        };
        let sealer = self.sealer.as_deref();
        let is_new = before == Seq::ZERO || staged.is_some();
        Ok(Append {
            id,
            held,
            commit,
            before,
            is_new,
            nonce: self.nonce(),
            responses: responses_of(id, commit, sealer)?,
            owed: OwedQueues::of(id, &commit.owed, sealer)?,
            usage: UsageEntry::of(commit),
            staged: staged.map(StagedJournal::key),
            key,
            compression: self.compression(),
        })
    }

    /// Appends, and returns what the conversation is indexed by then.
    async fn append_prepared(&self, append: &Append<'_>) -> Result<IndexedRow, StoreError> {
        let Append { id, held, before, is_new, .. } = append;
        for _ in 0..MAX_ATTEMPTS {
            let known = if *is_new {
                IndexedRow::default()
            } else {
                self.indexed_row(id, held, *before).await?
            };
            let mut writes = CommitWrites::new(id, append.keys(), &known, append.compression);
            append.write_to(&mut writes, self.sealer.as_deref())?;
            let answer = self.call_durably::<String>(append.call(&writes)?).await?;
            if answer != "RELISTED" {
                return outcome(&answer).map(|()| writes.into_row());
            }
        }
        Err(refused("what the conversation is indexed by changes while it is written".to_owned()))
    }
}

impl Append<'_> {
    /// Whether the commit has what few commits have.
    fn has_parts(&self) -> bool {
        !self.responses.is_empty() || !self.owed.is_empty() || self.staged.is_some()
    }

    /// The keys that the script itself names first.
    fn keys(&self) -> Vec<Key<'_>> {
        let tag = Tag::of(self.id);
        let own = |kind| tag.own(kind, self.id.as_str());
        let mut keys = vec![own("c"), own("j")];
        if self.has_parts() {
            keys.extend([own("a"), own("x")]);
            keys.extend(self.owed.keys(tag));
        }
        keys
    }

    /// Adds all that stands beside the journal.
    fn write_to(
        &self,
        writes: &mut CommitWrites<'_>,
        sealer: Option<&Sealer>,
    ) -> Result<(), StoreError> {
        writes.add(self.commit, self.is_new, sealer, self.key.as_ref())?;
        writes.set("nonce", &self.nonce);
        Ok(())
    }

    fn call(&self, writes: &CommitWrites<'_>) -> Result<ScriptCall, StoreError> {
        let (tag, prefix) = (Tag::of(self.id), self.id.prefix());
        let claims = self.held.is_unclaimed();
        let script = match (&self.staged, claims, self.has_parts()) {
            (Some(_), _, _) => &PUBLISH,
            (None, true, true) => &CLAIM_AND_APPEND_WITH_PARTS,
            (None, true, false) => &CLAIM_AND_APPEND,
            (None, false, true) => &APPEND_WITH_PARTS,
            (None, false, false) => &APPEND,
        };
        // What was read elsewhere adds no usage, and so the script expects either of these last.
        let day = self.usage.as_ref().map(|entry| usage::name_of(entry.day));
        let usage = day.iter().map(|day| tag.listing(prefix, day));
        let staged = self.staged.iter().map(|staged| tag.own(super::staging::STAGED, staged));
        let floor = claims.then(|| tag.common("floor"));
        let last_keys: Vec<Key<'_>> = floor.into_iter().chain(usage).chain(staged).collect();
        let before = if self.is_new { Seq::ZERO } else { self.before };
        let fence = (self.held, &*self.nonce, before);
        let json = self.commit.event_json()?;
        let own = self.key.as_ref().map(|key| &key.own);
        let form = StoredForm { compression: self.compression, own };
        let events = self.commit.events.iter().zip(json.iter());
        let events = events.map(|(event, json)| form.of_event(event.seq, json.into()));
        let events = events.collect::<Result<Vec<_>, StoreError>>()?;
        let mut call = writes.call(script, fence, self.usage.is_some(), &last_keys, &events);
        if self.has_parts() {
            let now = self.commit.events.last().map_or(Timestamp::MIN, |event| event.at);
            call = call.arg(keys::score_until(now)).responses("", &self.responses)?;
            call = self.owed.write(call)?;
        }
        if let Some(entry) = &self.usage {
            let seconds = USAGE_DAYS * SECONDS_OF_DAY;
            call = call.arg(&entry.row).arg(&entry.row_without_owner);
            call = call.arg(to_text(&entry.counts)).arg(MAX_ROWS).arg(seconds);
        }
        if self.staged.is_some() {
            call = call.arg(self.before.get());
        }
        Ok(call)
    }
}

/// The responses that a commit keeps, as they are stored.
fn responses_of<'a>(
    id: &Scoped<ConversationId>,
    commit: &'a Commit,
    sealer: Option<&Sealer>,
) -> Result<Cow<'a, [StoredResponse]>, StoreError> {
    if sealer.is_none() {
        return Ok(Cow::Borrowed(&commit.responses));
    }
    let scope = ResponseScope::Conversation(id.clone());
    let sealed = commit.responses.iter().map(|it| seal_response(sealer, &scope, it.clone()));
    sealed.collect::<Result<Vec<_>, _>>().map(Cow::Owned)
}
