//! The Lua scripts, each with the one function that calls it.

use std::borrow::Cow;

use abide_actors::audit::{AuditEntry, MAX_ENTRIES};
use abide_actors::identity::{Epoch, Incarnation, NodeName};
use abide_actors::journal::{
    Claim, Holder, RESPONSE_TTL, ResponseScope, StoreError, StoredResponse,
};
use abide_actors::notices::OwedNotice;
use abide_conversation::{ConversationId, Scoped, Timestamp};
use serde::Serialize;

use super::super::ScopedKeyId;
use super::super::sealing::{Label, seal_response};
use super::administration::api_keys;
use super::backlog::owed_queues::OwedQueues;
use super::blobs::names;
use super::command::error::refused;
use super::command::keys::{self, Key, Tag};
use super::command::script::{Script, ScriptCall, hash};
use super::journal::pages::FIRST_PAGE_BYTES;
use super::rows::indexed_row::IndexedFields;
use super::{Redis, audit};
use crate::membership::Member;

/// How long a server remembers a deletion for its repeat: longer than any repeat takes.
const DELETION_MEMORY_SECONDS: u64 = 60;
/// How long the responses of a scope are kept after the last one: a day, and an hour for each of
/// two clocks that are wrong.
const RESPONSES_TTL_SECONDS: i64 = RESPONSE_TTL.as_secs() + 2 * 60 * 60;

macro_rules! scripts {
    ($($name:ident = $($part:literal)+;)+) => {
        $(
            pub(super) static $name: Script = Script::new(
                concat!($(include_str!(concat!("lua/", $part, ".lua"))),+),
                || hash(concat!($(include_str!(concat!("lua/", $part, ".lua"))),+)),
            );
        )+
    };
}

// `lib/allow_oom` is the first line of the scripts that a full server carries out, too: those that
// free memory, and those without which nodes would be declared dead.
scripts! {
    APPEND = "lib/sections" "lib/fencing" "lib/row" "lib/each" "lib/usage" "lib/no_parts" "append";
    APPEND_WITH_PARTS = "lib/sections" "lib/fencing" "lib/row" "lib/each" "lib/usage" "lib/responses" "lib/notices" "lib/parts" "append";
    PUBLISH = "lib/sections" "lib/fencing" "lib/row" "lib/each" "lib/usage" "lib/responses" "lib/notices" "lib/parts" "lib/publish" "append";
    CLAIM_AND_APPEND = "lib/sections" "lib/first" "lib/each" "lib/usage" "lib/no_parts" "append";
    CLAIM_AND_APPEND_WITH_PARTS = "lib/sections" "lib/first" "lib/each" "lib/usage" "lib/responses" "lib/notices" "lib/parts" "append";
    CLAIM = "lib/claim" "claim";
    CLAIM_WHEN_FULL = "lib/allow_oom" "lib/existing" "lib/claim" "claim";
    RELEASE = "lib/allow_oom" "lib/fencing" "lib/floor" "release";
    DELETE = "lib/allow_oom" "lib/fencing" "lib/floor" "lib/responses" "lib/fields" "lib/listing" "lib/notices" "delete";
    REWRITE = "lib/fencing" "lib/fields" "lib/listing" "rewrite";
    RENAME_USAGE = "lib/usage" "rename_usage";
    REPLACE_OPERATION = "lib/allow_oom" "replace_operation";
    REPLACE_DECISION = "lib/allow_oom" "replace_decision";
    RELIST = "lib/fields" "lib/listing" "relist";
    REBUILD = "rebuild";
    LOAD = "lib/page" "lib/load" "load";
    PAGE = "lib/page" "page";
    CLAIM_AND_LOAD = "lib/claim" "lib/page" "lib/load" "claim_and_load";
    CLAIM_AND_LOAD_WHEN_FULL = "lib/allow_oom" "lib/existing" "lib/claim" "lib/page" "lib/load" "claim_and_load";
    RESET_DEATHS = "reset_deaths";
    STAGE = "lib/each" "stage";
    UNSTAGE = "lib/allow_oom" "lib/each" "stage";
    RESERVE = "lib/responses" "reserve";
    AGENT = "lib/responses" "lib/once" "lib/operation" "agent";
    DELETE_AGENT = "lib/allow_oom" "lib/responses" "lib/once" "lib/operation" "agent";
    ROLLOUT = "lib/responses" "lib/once" "lib/operation" "rollout";
    END_ROLLOUT = "lib/allow_oom" "lib/responses" "lib/once" "lib/operation" "rollout";
    ADD_REVISION = "add_revision";
    DROP_REVISIONS = "lib/allow_oom" "drop_revisions";
    DECISION = "lib/once" "lib/operation" "decision";
    API_KEY = "lib/once" "lib/operation" "api_key";
    OPERATION = "lib/allow_oom" "lib/once" "lib/operation" "operation";
    API_KEYS_USED = "api_keys_used";
    WEBHOOKS = "lib/once" "lib/operation" "webhooks";
    NOTICE_HEAD = "notice_head";
    SETTLE_NOTICE = "lib/allow_oom" "lib/notices" "lib/dead_notices" "settle_notice";
    DROP_NOTICES = "lib/allow_oom" "lib/notices" "drop_notices";
    REDELIVER_NOTICE = "lib/once" "lib/notices" "redeliver_notice";
    BLOB = "lib/once" "lib/hold" "blob";
    HOLD_BLOB = "lib/hold" "hold_blob";
    NAME_BLOBS = "lib/fencing" "name_blobs";
    REFER_BLOBS = "refer_blobs";
    DROPPED_NAMES = "lib/allow_oom" "dropped_names";
    LOST_NAMES = "lib/allow_oom" "lost_names";
    DROP_BLOBS = "lib/allow_oom" "lib/unused_blobs" "drop_blobs";
    END_HOLDS = "lib/allow_oom" "lib/once" "lib/unused_blobs" "end_holds";
    REMOVE_BLOB = "lib/allow_oom" "lib/once" "remove_blob";
    AUDIT = "audit";
    ENTER = "lib/allow_oom" "lib/members" "enter";
    RENEW = "lib/allow_oom" "lib/members" "renew";
    DECLARE_DEAD = "lib/allow_oom" "lib/members" "declare_dead";
    SCHEDULE = "lib/once" "schedule";
    FORGET_SCHEDULE = "lib/allow_oom" "lib/once" "schedule";
    REKEY = "lib/allow_oom" "rekey";
}

/// Whether a server refused because it is full.
fn is_full<T>(outcome: &Result<T, StoreError>) -> bool {
    matches!(outcome, Err(StoreError::Unavailable(why)) if why.contains("OOM"))
}

impl Redis {
    pub(super) async fn claim_by_script(
        &self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<Claim, StoreError> {
        let tag = Tag::of(id);
        let keys = [tag.own("c", id.as_str()), tag.common("floor")];
        let call = |script| self.call(ScriptCall::new(script, tag, keys).claim(me, dead));
        let mut held = call(&CLAIM).await;
        if is_full(&held) {
            held = call(&CLAIM_WHEN_FULL).await;
        }
        held.map(holding)
    }

    /// Claims a conversation and reads it; reads nothing if another node holds it.
    pub(super) async fn claim_and_load_by_script(
        &self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<(Claim, Option<StoredRow>, u32, IndexedFields), StoreError> {
        let (tag, own) = (Tag::of(id), |kind| Tag::of(id).own(kind, id.as_str()));
        let keys = [own("c"), tag.common("floor"), own("j"), own("s")];
        let call = |script| {
            let call = ScriptCall::new(script, tag, keys).claim(me, dead);
            self.call_confirmed(call.arg(super::STATE_FORMAT).arg(FIRST_PAGE_BYTES))
        };
        let mut claimed = call(&CLAIM_AND_LOAD).await;
        if is_full(&claimed) {
            claimed = call(&CLAIM_AND_LOAD_WHEN_FULL).await;
        }
        let (held, stored, deaths, indexed) = claimed?;
        Ok((holding(held), stored, deaths, indexed))
    }

    pub(super) async fn reset_deaths_by_script(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<(), StoreError> {
        let tag = Tag::of(id);
        let call = ScriptCall::new(&RESET_DEATHS, tag, [tag.own("c", id.as_str())]);
        self.call_durably::<String>(call).await.map(|_| ())
    }

    pub(super) async fn release_by_script(
        &self,
        id: &Scoped<ConversationId>,
        held: &Claim,
    ) -> Result<(), StoreError> {
        let tag = Tag::of(id);
        let keys = [tag.own("c", id.as_str()), tag.common("floor")];
        let call = ScriptCall::new(&RELEASE, tag, keys).held(held);
        self.call::<String>(call).await.map(|_| ())
    }

    pub(super) async fn delete_by_script(
        &self,
        id: &Scoped<ConversationId>,
        held: &Claim,
        response: Option<StoredResponse>,
        owed: &[OwedNotice],
    ) -> Result<(), StoreError> {
        let tag = Tag::of(id);
        let sealer = self.sealer.as_deref();
        let owed = OwedQueues::of(id, owed, sealer)?;
        let scope = ResponseScope::Conversation(id.clone());
        let response = response.map(|it| seal_response(sealer, &scope, it)).transpose()?;
        let mut keys = conversation_keys(tag, id).to_vec();
        keys.extend([tag.common("floor"), tag.own("deleted", id.as_str())]);
        keys.extend(audit::keys_of(tag, id));
        keys.push(tag.listing(id.prefix(), super::backlog::queues::QUEUES));
        keys.push(tag.listing(id.prefix(), super::listing::INDEX));
        let deletion = names::deletion_name(id, held.epoch);
        keys.push(names::named_key(id));
        keys.extend(names::dropped_keys(tag, &deletion));
        keys.push(names::namers_key(tag));
        keys.extend(owed.keys(tag));
        let call = ScriptCall::new(&DELETE, tag, keys)
            .held(held)
            .arg(self.nonce())
            .arg(id.as_str())
            .arg(DELETION_MEMORY_SECONDS)
            .responses("", response.as_slice())?;
        let answer = self.call_durably::<String>(owed.write(call)?).await?;
        if answer == "NAMED" {
            self.drop_names_at_once(id, held.epoch).await;
            return Ok(());
        }
        outcome(&answer)
    }

    /// Reads a conversation: its cached state and the first page of later events or, without
    /// `cached`, the first page of all its events.
    pub(super) async fn load_by_script(
        &self,
        id: &Scoped<ConversationId>,
        cached: bool,
    ) -> Result<Option<StoredRow>, StoreError> {
        let tag = Tag::of(id);
        let keys = ["c", "j", "s"].map(|kind| tag.own(kind, id.as_str()));
        let format = if cached { super::STATE_FORMAT.to_string() } else { String::new() };
        self.call_confirmed(ScriptCall::new(&LOAD, tag, keys).arg(format).arg(FIRST_PAGE_BYTES))
            .await
    }

    /// The call that reads the next page of a journal, from the index `first` on; the answer is nil
    /// if the conversation has another epoch than that.
    pub(super) fn page_call(
        id: &Scoped<ConversationId>,
        epoch: &str,
        (first, last): (i64, i64),
        max_bytes: usize,
    ) -> ScriptCall {
        let tag = Tag::of(id);
        let keys = ["c", "j"].map(|kind| tag.own(kind, id.as_str()));
        ScriptCall::new(&PAGE, tag, keys).arg(epoch).arg(first).arg(last).arg(max_bytes)
    }

    pub(super) async fn reserve_by_script(
        &self,
        scope: &ResponseScope,
        response: StoredResponse,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let ((tag, name), nonce) = (keys::of_scope(scope), self.nonce());
        let response = seal_response(self.sealer.as_deref(), scope, response)?;
        let keys = ["a", "x"].map(|kind| tag.own(kind, &name));
        let call = ScriptCall::new(&RESERVE, tag, keys)
            .arg(keys::score_until(now))
            .arg(&nonce)
            .responses(&nonce, &[response])?;
        self.call_durably(call).await
    }

    pub(super) async fn api_keys_used_by_script(
        &self,
        used: &[(ScopedKeyId, Timestamp)],
    ) -> Result<(), StoreError> {
        let [keys, last_use, _] = api_keys::KEYS;
        let keys = [keys, last_use].map(|name| Tag::Agents.common(name));
        let mut call = ScriptCall::new(&API_KEYS_USED, Tag::Agents, keys);
        for (id, at) in used {
            call = call.arg(id.as_str()).arg(keys::score_until(*at));
        }
        self.call::<u64>(call).await.map(|_| ())
    }

    pub(super) async fn audit_by_script(
        &self,
        id: &Scoped<ConversationId>,
        entry: &AuditEntry,
        expires_at: Timestamp,
    ) -> Result<(), StoreError> {
        let tag = Tag::of(id);
        let mut keys = audit::keys_of(tag, id).to_vec();
        keys.push(tag.own("c", id.as_str()));
        let call = ScriptCall::new(&AUDIT, tag, keys)
            .arg(keys::score_until(entry.at))
            .arg(MAX_ENTRIES)
            .arg(entry.key())
            .arg(keys::score(expires_at));
        let (key, json) = (entry.key(), json(entry)?);
        let label = Label { kind: "audit", owner: id.as_str(), part: &key };
        let call = call.arg(&*self.seal(label, Cow::Owned(json))?);
        self.call_large::<bool>(call).await.map(|_| ())
    }

    pub(super) async fn enter_by_script(
        &self,
        me: &Member,
    ) -> Result<Option<MemberList>, StoreError> {
        let call = membership_call(&ENTER, &me.holder).arg(me.process.as_str()).json("", me)?;
        self.call_as_member(call).await
    }

    /// Answers with the members themselves only if their digest is another one than `known`.
    pub(super) async fn renew_by_script(
        &self,
        me: &Member,
        known: &[u8],
    ) -> Result<Option<MemberList>, StoreError> {
        self.call_as_member(membership_call(&RENEW, &me.holder).json("", me)?.arg(known)).await
    }

    pub(super) async fn declare_dead_by_script(
        &self,
        who: &Holder,
        suspect: bool,
    ) -> Result<bool, StoreError> {
        self.call_confirmed(declare_dead_call(who, suspect)).await
    }

    /// Declares a member dead without making sure that this is not lost.
    pub(super) async fn leave_by_script(&self, who: &Holder) -> Result<(), StoreError> {
        self.call::<bool>(declare_dead_call(who, true)).await.map(drop)
    }
}

/// The `seq` of a journal, its epoch, the cached state or nothing, the first page of the events after
/// it, and the data key or nothing.
pub(super) type StoredRow = (u64, String, Vec<u8>, Vec<Vec<u8>>, Vec<u8>);

/// The server's clock, a digest of the members, and for how many milliseconds each has been silent;
/// then each member as JSON, unless the digest was known.
pub(super) type MemberList = Vec<Vec<u8>>;

impl ScriptCall {
    pub(super) fn held(self, held: &Claim) -> Self {
        self.holder(&held.holder).arg(held.epoch.get())
    }

    fn holder(self, holder: &Holder) -> Self {
        self.arg(holder.node.as_str()).arg(holder.incarnation.as_str())
    }

    fn claim(self, me: &Holder, dead: Option<&Holder>) -> Self {
        let (node, incarnation) =
            dead.map_or(("", ""), |dead| (dead.node.as_str(), dead.incarnation.as_str()));
        self.holder(me).arg(node).arg(incarnation)
    }

    /// Adds the responses to keep; each value begins with the nonce and a blank.
    pub(super) fn responses(
        self,
        nonce: &str,
        responses: &[StoredResponse],
    ) -> Result<Self, StoreError> {
        let mut call = self.arg(responses.len()).arg(RESPONSES_TTL_SECONDS);
        for response in responses {
            call = call.arg(&response.key).arg(keys::score(response.expires_at));
            call = call.json(format_args!("{nonce} "), response)?;
        }
        Ok(call)
    }
}

/// When a response is stored; `None` if it never expires.
pub(super) fn stored_at(response: &StoredResponse) -> Option<Timestamp> {
    let lasts = response.expires_at != Timestamp::MAX;
    lasts.then(|| response.expires_at.checked_sub(RESPONSE_TTL).ok()).flatten()
}

fn holding((node, incarnation, epoch): (String, String, u64)) -> Claim {
    let holder = Holder { node: NodeName::new(node), incarnation: Incarnation::new(incarnation) };
    Claim { holder, epoch: Epoch::new(epoch) }
}

fn membership_call(script: &'static Script, who: &Holder) -> ScriptCall {
    let keys =
        ["members", "seen", "dead", "processes", "excused"].map(|name| Tag::Members.common(name));
    ScriptCall::new(script, Tag::Members, keys).holder(who)
}

fn declare_dead_call(who: &Holder, suspect: bool) -> ScriptCall {
    membership_call(&DECLARE_DEAD, who).arg(if suspect { "1" } else { "" })
}

/// The keys of a conversation, in the order of the scripts that write to it.
fn conversation_keys(tag: Tag, id: &Scoped<ConversationId>) -> [Key<'_>; 10] {
    let own = |kind| tag.own(kind, id.as_str());
    let common = |name| tag.common(name);
    [
        own("c"),
        own("j"),
        common("alarms"),
        common("active"),
        tag.listing(id.prefix(), "ids"),
        own("s"),
        own("a"),
        own("x"),
        own("o"),
        tag.listing(id.prefix(), "open"),
    ]
}

pub(super) fn outcome(answer: &str) -> Result<(), StoreError> {
    match answer {
        "DONE" => Ok(()),
        "CONFLICT" => Err(StoreError::Conflict),
        "LOST" => Err(super::super::staging::lost()),
        "FENCED" => {
            metrics::counter!("abide_fenced_writes_total").increment(1);
            Err(StoreError::Fenced)
        }
        other => Err(refused(format!("a script answered {other}"))),
    }
}

pub(super) fn json(value: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(value).map_err(|error| refused(error.to_string()))
}
