//! Finds a response again: in the journal, on any node.

use abide_conversation::event::{Event, EventData};
use abide_conversation::{ConversationId, Scoped, Seq, TurnId};

use crate::access::permission::ConversationPermission;
use crate::access::{Allowed, StreamPermit};
use crate::http::Api;
use crate::http::turn_stream::{TurnStream, find_in_turn};
use crate::problem::Problem;
use crate::protocols::feed::Feed;
use crate::protocols::openai::response::{ResponseHead, ResponseId};

/// A segment of a turn.
pub(super) struct Segment {
    pub(super) id: Scoped<ConversationId>,
    pub(super) head: ResponseHead,
    /// The event after which the feed begins.
    after: Seq,
    /// Whether the feed begins before the segment.
    pub(super) is_primed: bool,
}

impl Segment {
    /// The segment that begins with this event of this turn.
    pub(super) async fn find(
        api: &Api,
        id: &Scoped<ConversationId>,
        (from, turn): (Seq, Option<&TurnId>),
    ) -> Result<Self, Problem> {
        let missing = || Problem::not_found("response");
        let events = api.store.events(id, from.saturating_sub(1), 1).await?;
        let began = events.into_iter().next().filter(|event| event.seq == from && begins(event));
        let began = began.ok_or_else(missing)?;
        let of = began.turn_id.clone().filter(|own| turn.is_none_or(|turn| turn == own));
        let turn = of.ok_or_else(missing)?;
        let summary = api.store.summary(id).await?.ok_or_else(missing)?;
        let is_message = matches!(began.data, EventData::UserMsg(_));
        let first = if is_message { from } else { step_before(api, id, &turn, from).await? };
        let response = ResponseId { from, turn, conversation: id.local() };
        let head = ResponseHead { id: response, model: summary.agent, created_at: began.at };
        let (after, is_primed) = (first.saturating_sub(1), !is_message);
        Ok(Self { id: id.clone(), head, after, is_primed })
    }

    /// Follows the segment, for a caller who may read the conversation.
    pub(super) async fn open<P: ConversationPermission>(
        &self,
        api: &Api,
        allowed: &Allowed<P>,
        permit: Option<StreamPermit>,
    ) -> Result<TurnStream, Problem> {
        let feed = Feed::new(self.head.id.turn.clone(), self.after);
        let stream = TurnStream::open(api, allowed, (&self.id, permit), feed).await?;
        Ok(stream.with_history())
    }
}

/// Whether a response may begin with this event.
fn begins(event: &Event) -> bool {
    matches!(event.data, EventData::UserMsg(_) | EventData::Resolution(_) | EventData::Voted(_))
}

/// The event that names the calls of the step that this answer belongs to.
async fn step_before(
    api: &Api,
    id: &Scoped<ConversationId>,
    turn: &TurnId,
    from: Seq,
) -> Result<Seq, Problem> {
    let is_step =
        |event: &Event| event.seq < from && matches!(event.data, EventData::AssistantMsg(_));
    let step = find_in_turn(api, id, turn, is_step).await?;
    step.map(|event| event.seq).ok_or_else(|| Problem::not_found("response"))
}
