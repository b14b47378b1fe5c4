//! The calls of the scripts that change agents, decisions and API keys, alone or with their entries in
//! the operators' audit; and beside them, the revisions of agents, the tenants, what is counted of them
//! and what is erased.

pub(super) mod api_keys;
mod erasures;
mod revisions;
mod tenants;
pub(super) mod usage;

use std::borrow::Cow;

use abide_actors::journal::{ResponseScope, StoreError, StoredResponse};
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{AgentName, DecisionId, Revision, Scoped};

use self::revisions::HISTORY;
use super::super::sealing::{Label, seal_response};
use super::super::{KeyChange, RolloutChange, StoredAgent};
use super::Redis;
use super::audit::operations::NextEntries;
use super::command::keys::{self, Tag};
use super::command::script::ScriptCall;
use super::scripts::{
    AGENT, API_KEY, DECISION, DELETE_AGENT, END_ROLLOUT, ROLLOUT, json, stored_at,
};

/// What `agent.lua` takes for any newest revision; no revision has this form.
const ANY_REVISION: &str = "*";
/// What `agent.lua` answers when another revision is the newest.
pub(super) const OTHER_REVISION: u8 = 2;

impl Redis {
    /// Puts a definition if `newest` is the newest revision of its name; otherwise returns
    /// [`OTHER_REVISION`].
    pub(super) async fn agent_if_by_script(
        &self,
        name: &Scoped<AgentName>,
        agent: &StoredAgent,
        response: Option<StoredResponse>,
        newest: Option<&Revision>,
        entries: &NextEntries,
    ) -> Result<u8, StoreError> {
        let expected = newest.map_or("", Revision::as_str);
        self.run_agent_script(name, Some(agent), expected, response, entries).await
    }

    /// Returns 1 if the name was there before, else 0.
    pub(super) async fn agent_by_script(
        &self,
        name: &Scoped<AgentName>,
        newest: Option<&StoredAgent>,
        response: Option<StoredResponse>,
        entries: &NextEntries,
    ) -> Result<u8, StoreError> {
        self.run_agent_script(name, newest, ANY_REVISION, response, entries).await
    }

    async fn run_agent_script(
        &self,
        name: &Scoped<AgentName>,
        newest: Option<&StoredAgent>,
        expected: &str,
        response: Option<StoredResponse>,
        entries: &NextEntries,
    ) -> Result<u8, StoreError> {
        let (tag, scope) = (Tag::Agents, ResponseScope::Agent(name.clone()));
        let sealer = self.sealer.as_deref();
        let response = response.map(|it| seal_response(sealer, &scope, it)).transpose()?;
        let scope = scope.text();
        let nonce = self.nonce();
        let mut keys =
            ["newest", "revisions"].map(|kind| tag.listing(name.prefix(), kind)).to_vec();
        keys.push(tag.own("done", &nonce));
        keys.extend(["a", "x"].map(|kind| tag.own(kind, &scope)));
        keys.extend(["decisions", HISTORY].map(|kind| tag.own(kind, name.as_str())));
        keys.extend(entries.keys());
        if newest.is_some() {
            self.note_tenant(&name.tenant()).await?;
        }
        let script = if newest.is_some() { &AGENT } else { &DELETE_AGENT };
        let call = ScriptCall::new(script, tag, keys)
            .arg(name.local().as_str())
            .arg(newest.map_or("", |agent| agent.revision.as_str()))
            .arg(newest.map(|it| self.sealed_agent(name, it)).transpose()?.unwrap_or_default())
            .arg(response.as_ref().and_then(stored_at).map(keys::score_until).unwrap_or_default())
            .arg(expected)
            .arg(newest.and_then(|agent| agent.put_at).map(keys::score).unwrap_or_default())
            .responses("", response.as_slice())?
            .entries(entries)?;
        self.call_durably(call).await
    }

    /// Returns 1 if the rollout was changed, else 0.
    pub(super) async fn rollout_by_script(
        &self,
        change: &RolloutChange,
        entries: &NextEntries,
    ) -> Result<u8, StoreError> {
        let RolloutChange { name, rollout, response } = change;
        let (tag, scope) = (Tag::Agents, ResponseScope::Agent(name.clone()).text());
        let nonce = self.nonce();
        let mut keys =
            ["newest", "revisions"].map(|kind| tag.listing(name.prefix(), kind)).to_vec();
        keys.push(tag.own("done", &nonce));
        keys.extend(["a", "x"].map(|kind| tag.own(kind, &scope)));
        keys.extend(entries.keys());
        let script = if rollout.is_some() { &ROLLOUT } else { &END_ROLLOUT };
        let (revision, percent) = rollout
            .as_ref()
            .map_or(("", 0), |rollout| (rollout.revision.as_str(), rollout.percent));
        let call = ScriptCall::new(script, tag, keys)
            .arg(name.local().as_str())
            .arg(revision)
            .arg(percent)
            .arg(response.as_ref().and_then(stored_at).map(keys::score_until).unwrap_or_default())
            .responses("", response.as_slice())?
            .entries(entries)?;
        self.call_durably(call).await
    }

    /// Returns 1 if the decision was there before, else 0.
    pub(super) async fn decision_by_script(
        &self,
        agent: &Scoped<AgentName>,
        id: &DecisionId,
        decision: Option<&RememberedDecision>,
        entries: &NextEntries,
    ) -> Result<u8, StoreError> {
        let nonce = self.nonce();
        let keys = [("decisions", agent.as_str()), ("done", nonce.as_str())];
        let mut keys = keys.map(|(kind, name)| Tag::Agents.own(kind, name)).to_vec();
        keys.extend(entries.keys());
        let sealed = match decision {
            Some(decision) => {
                let label = Label { kind: "decision", owner: agent.as_str(), part: "" };
                self.seal(label, json(decision)?.into())?
            }
            None => Cow::default(),
        };
        let call = ScriptCall::new(&DECISION, Tag::Agents, keys)
            .arg(id.as_str())
            .arg(&*sealed)
            .entries(entries)?;
        self.call_durably(call).await
    }

    /// Returns 1 if the API key was there before, else 0.
    pub(super) async fn api_key_by_script(
        &self,
        change: &KeyChange,
        entries: &NextEntries,
    ) -> Result<u8, StoreError> {
        let (key, must_exist) = match change {
            KeyChange::Add(key) => (Some(key), ""),
            KeyChange::Update(key) => (Some(key), "1"),
            KeyChange::Remove(_) => (None, ""),
        };
        let nonce = self.nonce();
        let mut keys = api_keys::KEYS.map(|name| Tag::Agents.common(name)).to_vec();
        keys.push(Tag::Agents.own("done", &nonce));
        keys.extend(entries.keys());
        let call = ScriptCall::new(&API_KEY, Tag::Agents, keys)
            .arg(change.id().as_str())
            .arg(key.map(json).transpose()?.unwrap_or_default())
            .arg(must_exist)
            .entries(entries)?;
        self.call_durably(call).await
    }
}
