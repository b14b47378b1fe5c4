//! What few commits write, so that the others need not name its keys.

use std::borrow::Cow;

use abide_actors::journal::{
    Commit, InboxEntry, Relisting, ResponseScope, StoreError, StoredResponse,
};
use abide_conversation::{ConversationId, Scoped, Seq, Tenant, Timestamp};

use super::super::listing::{self, Entry};
use super::super::sealing::{CommitKey, Sealer, seal_response};
use super::super::usage::{self, MAX_ROWS, USAGE_DAYS, UsageEntry};
use super::decode::{LISTING, STATE, inbox_label};
use super::keys::{self, Key, Tag};
use super::owed_queues::OwedQueues;
use super::script::ScriptCall;
use super::scripts::json;

const SECONDS_OF_DAY: i64 = 86_400;

/// The parts of a commit that `append.lua` is told by letters.
pub(super) struct CommitParts<'a> {
    commit: &'a Commit,
    sealer: Option<&'a Sealer>,
    key: Option<&'a CommitKey>,
    responses: Cow<'a, [StoredResponse]>,
    is_new: bool,
    /// The tenant of a new conversation, to be found by it; the tenant `default` need not be found.
    new_tenant: Option<Tenant>,
    usage: Option<DayUsage>,
    owed: OwedQueues,
    listed: Listed,
    /// The name of the key that has the events before those of the commit, which nobody has seen.
    staged: Option<&'a str>,
}

/// What a commit writes of what lists show.
enum Listed {
    Unchanged,
    Touched,
    Whole(Entry),
}

impl Listed {
    fn of(commit: &Commit, is_new: bool, sealer: Option<&Sealer>) -> Self {
        let index_key = sealer.and_then(Sealer::new_index_key);
        match &commit.relisting {
            Relisting::Whole { indexed } => {
                Self::Whole(Entry::new(&commit.summary, indexed, index_key))
            }
            Relisting::Touched | Relisting::Unchanged if is_new => {
                Self::Whole(Entry::new(&commit.summary, &[], index_key))
            }
            Relisting::Touched => Self::Touched,
            Relisting::Unchanged => Self::Unchanged,
        }
    }
}

/// What a commit adds to the usage, and the name of the day's key.
struct DayUsage {
    entry: UsageEntry,
    name: String,
}

impl<'a> CommitParts<'a> {
    /// The parts of a commit that follows this `seq`.
    pub(super) fn of(
        commit: &'a Commit,
        id: &Scoped<ConversationId>,
        before: Seq,
        sealer: Option<&'a Sealer>,
        key: Option<&'a CommitKey>,
        staged: Option<&'a str>,
    ) -> Result<Self, StoreError> {
        let is_new = before == Seq::ZERO || staged.is_some();
        let new_tenant = (is_new && !id.prefix().is_empty()).then(|| id.tenant());
        let usage = UsageEntry::of(commit)
            .map(|entry| DayUsage { name: super::usage::name_of(entry.day), entry });
        let owed = OwedQueues::of(id, &commit.owed, sealer)?;
        let listed = Listed::of(commit, is_new, sealer);
        let responses = match sealer {
            None => Cow::Borrowed(commit.responses.as_slice()),
            Some(_) => {
                let scope = ResponseScope::Conversation(id.clone());
                let seal =
                    |response: &StoredResponse| seal_response(sealer, &scope, response.clone());
                commit.responses.iter().map(seal).collect::<Result<Vec<_>, _>>()?.into()
            }
        };
        Ok(Self { commit, sealer, key, responses, is_new, new_tenant, usage, owed, listed, staged })
    }

    fn has_inbox(&self) -> bool {
        !self.commit.opened.is_empty() || !self.commit.closed.is_empty()
    }

    /// The letters, in the order of the script.
    pub(super) fn names(&self) -> String {
        let named = [
            ('r', !self.commit.responses.is_empty()),
            ('n', self.is_new),
            ('l', matches!(self.listed, Listed::Whole(_))),
            ('a', matches!(self.listed, Listed::Touched)),
            ('t', self.new_tenant.is_some()),
            ('s', self.commit.state.is_some()),
            ('d', self.commit.resets_deaths),
            ('k', self.key.is_some_and(|key| key.is_new)),
            ('o', self.has_inbox()),
            ('q', self.commit.queued.is_some()),
            ('w', !self.owed.is_empty()),
            ('u', self.usage.is_some()),
        ];
        named.into_iter().filter_map(|(name, is_there)| is_there.then_some(name)).collect()
    }

    /// The keys of the commit, those of its parts last.
    pub(super) fn keys<'k>(&'k self, tag: Tag, id: &'k Scoped<ConversationId>) -> Vec<Key<'k>> {
        let own = |kind| tag.own(kind, id.as_str());
        let mut keys = vec![own("c"), own("j"), tag.common("alarms"), tag.common("active")];
        if !self.commit.responses.is_empty() {
            keys.extend([own("a"), own("x")]);
        }
        if self.is_new {
            keys.push(tag.listing(id.prefix(), "ids"));
        }
        if !matches!(self.listed, Listed::Unchanged) {
            keys.push(tag.listing(id.prefix(), super::listing::INDEX));
        }
        if self.new_tenant.is_some() {
            keys.push(tag.common("tenants"));
        }
        if self.commit.state.is_some() {
            keys.push(own("s"));
        }
        if self.has_inbox() {
            keys.extend([own("o"), tag.listing(id.prefix(), "open")]);
        }
        if self.commit.queued.is_some() {
            keys.push(tag.listing(id.prefix(), super::queues::QUEUES));
        }
        if !self.owed.is_empty() {
            keys.extend(self.owed.keys(tag));
        }
        // The script expects either of these last. What was read elsewhere adds no usage.
        if let Some(usage) = &self.usage {
            keys.push(tag.listing(id.prefix(), &usage.name));
        }
        if let Some(staged) = self.staged {
            keys.push(tag.own(super::staging::STAGED, staged));
        }
        keys
    }

    /// Adds the arguments of the parts.
    pub(super) fn write(
        &self,
        mut call: ScriptCall,
        id: &Scoped<ConversationId>,
    ) -> Result<ScriptCall, StoreError> {
        if !self.commit.responses.is_empty() {
            let now = self.commit.events.last().map_or(Timestamp::MIN, |event| event.at);
            call = call.arg(keys::score_until(now)).responses("", &self.responses)?;
        }
        let Commit { summary, .. } = self.commit;
        let own = self.key.map(|key| &key.own);
        if self.is_new {
            call = call.arg(summary.agent.as_str());
        }
        call = match &self.listed {
            Listed::Unchanged => call,
            Listed::Touched => {
                let (active, awaiting) = listing::touch(summary);
                call.sealed("", own, LISTING, &summary.listing)?.arg(active).arg(awaiting)
            }
            Listed::Whole(entry) => call.listed(summary, entry, own)?,
        };
        if let Some(tenant) = &self.new_tenant {
            call = call.arg(tenant.as_str());
        }
        if let Some(state) = &self.commit.state {
            let prefix = format_args!("{} {} ", super::STATE_FORMAT, state.seq);
            call = call.sealed(prefix, own, STATE, state)?;
        }
        if let Some(key) = self.key.filter(|key| key.is_new) {
            call = call.arg(key.own.wrapped());
        }
        if self.has_inbox() {
            call = self.write_inbox(call, id)?;
        }
        if let Some(queued) = &self.commit.queued {
            call = call.arg(queued.len());
            for entry in queued {
                call = call.arg(super::queues::member(id, entry));
            }
        }
        if !self.owed.is_empty() {
            call = self.owed.write(call)?;
        }
        if let Some(DayUsage { entry, .. }) = &self.usage {
            let seconds = USAGE_DAYS * SECONDS_OF_DAY;
            call = call.arg(&entry.row).arg(&entry.row_without_owner);
            call = call.arg(usage::to_text(&entry.counts)).arg(MAX_ROWS).arg(seconds);
        }
        Ok(call)
    }

    fn write_inbox(
        &self,
        mut call: ScriptCall,
        id: &Scoped<ConversationId>,
    ) -> Result<ScriptCall, StoreError> {
        let Commit { closed, opened, summary, .. } = self.commit;
        call = call.arg(closed.len()).arg(opened.len());
        for closed in closed {
            let call_id = closed.call_id.clone();
            let key = (closed.expires_at, id.clone(), call_id, closed.suspension);
            call = call.arg(keys::inbox_member(&key));
        }
        for pending in opened {
            let (conversation_id, agent) = (id.local(), summary.agent.clone());
            let participants = summary.participants.clone();
            let entry =
                InboxEntry { conversation_id, agent, participants, pending: pending.clone() };
            call = call.arg(keys::inbox_member(&keys::pending_key(id, pending)));
            call = match self.sealer {
                None => call.json("", &entry)?,
                Some(sealer) => call.arg(&*sealer.seal(inbox_label(id), json(&entry)?.into())?),
            };
        }
        Ok(call)
    }
}
