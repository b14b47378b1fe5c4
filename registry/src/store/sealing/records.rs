//! Records of which only a part is sealed, because stores look into the rest.

use abide_actors::journal::{ConversationSummary, ResponseScope, StoreError, StoredResponse};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::notices::StoredNotice;
use super::data_key::Label;
use super::{OwnKey, Sealer, is_sealed, parse, unreadable};
use crate::schedules::Schedule;

/// What a summary says of the content of its conversation.
#[derive(Debug, Serialize, Deserialize)]
pub(in super::super) struct SealedSummary {
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    metadata: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
}

impl SealedSummary {
    /// Takes the content out of a summary, and seals it. It is text, for a record of JSON.
    pub(in super::super) fn take(
        own: &OwnKey,
        summary: &mut ConversationSummary,
    ) -> Result<String, StoreError> {
        let metadata = std::mem::take(&mut summary.metadata);
        let content = Self { metadata, title: summary.listing.title.take() };
        Ok(BASE64_STANDARD.encode(own.seal("summary", "", &json(&content)?)?))
    }

    /// Puts the content back.
    pub(in super::super) fn put_back(
        own: &OwnKey,
        summary: &mut ConversationSummary,
        text: &str,
    ) -> Result<(), StoreError> {
        let name = own.id.as_str();
        let sealed = BASE64_STANDARD.decode(text).map_err(|_| unreadable(name, "no base64"))?;
        let content: Self = parse(name, &own.open("summary", "", &sealed)?)?;
        summary.metadata = content.metadata;
        summary.listing.title = content.title;
        Ok(())
    }
}

/// What a stored response says of the request and the answer.
#[derive(Debug, Serialize, Deserialize)]
struct SealedResponse {
    fingerprint: String,
    body: Value,
}

/// The fingerprint in place of the one that is sealed with the body; no real one is so.
const SEALED: &str = "sealed";

/// A response as it is stored under this scope.
pub(in super::super) fn seal_response(
    sealer: Option<&Sealer>,
    scope: &ResponseScope,
    response: StoredResponse,
) -> Result<StoredResponse, StoreError> {
    match sealer {
        Some(sealer) if sealer.seals() => sealer.seal_response(&scope.text(), response),
        Some(_) | None => Ok(response),
    }
}

/// A response, given the form in which it is stored.
pub(in super::super) fn open_response(
    sealer: Option<&Sealer>,
    scope: &ResponseScope,
    stored: StoredResponse,
) -> Result<StoredResponse, StoreError> {
    match sealer {
        Some(sealer) if stored.fingerprint == SEALED => sealer.open_response(&scope.text(), stored),
        Some(_) | None => Ok(stored),
    }
}

impl Sealer {
    fn seal_response(
        &self,
        scope: &str,
        response: StoredResponse,
    ) -> Result<StoredResponse, StoreError> {
        let StoredResponse { key, fingerprint, body, expires_at } = response;
        let label = Label { kind: "response", owner: scope, part: &key };
        let sealed = self.seal(label, json(&SealedResponse { fingerprint, body })?.into())?;
        let body = Value::String(BASE64_STANDARD.encode(&sealed));
        Ok(StoredResponse { key, fingerprint: SEALED.to_owned(), body, expires_at })
    }

    fn open_response(
        &self,
        scope: &str,
        stored: StoredResponse,
    ) -> Result<StoredResponse, StoreError> {
        let Value::String(text) = &stored.body else { return Ok(stored) };
        let StoredResponse { key, expires_at, .. } = &stored;
        let sealed = BASE64_STANDARD.decode(text).map_err(|_| unreadable(scope, "no base64"))?;
        let label = Label { kind: "response", owner: scope, part: key };
        let SealedResponse { fingerprint, body } = parse(scope, &self.open(label, sealed.into())?)?;
        Ok(StoredResponse { key: key.clone(), fingerprint, body, expires_at: *expires_at })
    }

    /// A notice that a conversation owes, as it is stored.
    pub(in super::super) fn seal_notice(
        &self,
        conversation: &str,
        notice: StoredNotice,
    ) -> Result<StoredNotice, StoreError> {
        if !self.seals() {
            return Ok(notice);
        }
        let part = notice.seq.to_string();
        let label = Label { kind: "notice", owner: conversation, part: &part };
        let sealed = self.seal(label, notice.body.into_bytes().into())?;
        Ok(StoredNotice { body: BASE64_STANDARD.encode(&sealed), ..notice })
    }

    /// A notice, given the form in which it is stored: the body of one that is not sealed is JSON.
    pub(in super::super) fn open_notice(
        &self,
        conversation: &str,
        stored: StoredNotice,
    ) -> Result<StoredNotice, StoreError> {
        if stored.body.starts_with('{') {
            return Ok(stored);
        }
        let sealed = BASE64_STANDARD.decode(&stored.body).ok().filter(|it| is_sealed(it));
        let sealed = sealed.ok_or_else(|| unreadable(conversation, "a notice is damaged"))?;
        let part = stored.seq.to_string();
        let label = Label { kind: "notice", owner: conversation, part: &part };
        let body = self.open(label, sealed.into())?.into_owned();
        let body = String::from_utf8(body);
        let body = body.map_err(|_| unreadable(conversation, "a notice is damaged"))?;
        Ok(StoredNotice { body, ..stored })
    }
}

/// What a schedule says.
#[derive(Debug, Serialize, Deserialize)]
struct SealedSchedule {
    content: Vec<Value>,
    assigns: Map<String, Value>,
}

impl Sealer {
    /// A schedule as it is stored under this name.
    pub(in super::super) fn seal_schedule(
        &self,
        name: &str,
        schedule: &Schedule,
    ) -> Result<Schedule, StoreError> {
        let mut schedule = schedule.clone();
        if self.seals() {
            let label = Label { kind: "schedule", owner: name, part: "" };
            let (content, assigns) =
                (std::mem::take(&mut schedule.content), std::mem::take(&mut schedule.assigns));
            let sealed = self.seal(label, json(&SealedSchedule { content, assigns })?.into())?;
            schedule.content = vec![Value::String(BASE64_STANDARD.encode(&sealed))];
        }
        Ok(schedule)
    }

    /// A schedule, given the form in which it is stored: the content of one that is not sealed has
    /// objects.
    pub(in super::super) fn open_schedule(
        &self,
        name: &str,
        mut schedule: Schedule,
    ) -> Result<Schedule, StoreError> {
        let [Value::String(text)] = schedule.content.as_slice() else { return Ok(schedule) };
        let sealed = BASE64_STANDARD.decode(text).map_err(|_| unreadable(name, "no base64"))?;
        let label = Label { kind: "schedule", owner: name, part: "" };
        let content: SealedSchedule = parse(name, &self.open(label, sealed.into())?)?;
        schedule.content = content.content;
        schedule.assigns = content.assigns;
        Ok(schedule)
    }
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(value).map_err(|error| StoreError::Unavailable(error.to_string()))
}
