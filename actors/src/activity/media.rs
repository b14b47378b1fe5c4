//! Bytes leave what an activity comes to before that is journalled.

use abide_conversation::Action;
use abide_conversation::command::Plan;
use abide_conversation::event::Executor;
use abide_conversation::message::{Outcome, Verbatim};
use serde_json::Value;

use crate::blobs::{Blobs, abridged, names_any, stored};
use crate::journal::Refusal;

/// The same action with blobs in place of the bytes of media: in results, in what a model said, and
/// in what hooks add for good. What providers ran and wrote has other forms than blocks: there, it
/// is any long base64.
pub(super) async fn kept(blobs: &dyn Blobs, mut action: Action) -> Result<Action, Refusal> {
    match &mut action {
        Action::ToolReturned(returned) => result(blobs, &mut returned.outcome).await?,
        Action::ModelReplied(replied) => {
            all(blobs, &mut replied.content).await?;
            for call in &mut replied.calls {
                if let Plan::Answer { executor, outcome, .. } = &mut call.plan {
                    result(blobs, outcome).await?;
                    if let (Executor::Provider, Outcome::Ok(value)) = (executor, outcome) {
                        abridged(blobs, value).await?;
                    }
                }
            }
            replied.verbatim = match replied.verbatim.take() {
                Some(verbatim) => written(blobs, verbatim).await?,
                None => None,
            };
        }
        Action::ContextAdded { added, .. } => {
            for added in added {
                all(blobs, &mut added.content).await?;
            }
        }
        Action::Create(_)
        | Action::Copied(_)
        | Action::Send(_)
        | Action::Start(_)
        | Action::ModelFailed(_)
        | Action::Resolve(_)
        | Action::PageMissing(_)
        | Action::Wake
        | Action::Cancel(_)
        | Action::Revive
        | Action::Dispatch(_)
        | Action::Spawn(_)
        | Action::ChildStarted(_)
        | Action::ChildEnded(_)
        | Action::ChildReleased(_)
        | Action::Told(_)
        | Action::WorkspaceOpened { .. }
        | Action::Abandon(_)
        | Action::Halt { .. }
        | Action::ContextReduced { .. }
        | Action::Summarized { .. }
        | Action::SummaryFailed { .. }
        | Action::DecisionKept(_)
        | Action::RevokeDecision(_) => {}
    }
    Ok(action)
}

/// `None` of a message in which a blob seems to be named already: what is put back would not be what
/// its provider wrote.
async fn written(blobs: &dyn Blobs, verbatim: Verbatim) -> Result<Option<Verbatim>, Refusal> {
    let Verbatim { provider, model, items } = verbatim;
    if items.iter().any(names_any) {
        return Ok(None);
    }
    let mut kept = Vec::with_capacity(items.len());
    for mut item in items {
        abridged(blobs, &mut item).await?;
        kept.push(item);
    }
    Ok(Some(Verbatim { provider, model, items: kept }))
}

async fn all(blobs: &dyn Blobs, values: &mut [Value]) -> Result<(), Refusal> {
    for value in values {
        stored(blobs, value).await?;
    }
    Ok(())
}

async fn result(blobs: &dyn Blobs, outcome: &mut Outcome) -> Result<(), Refusal> {
    match outcome {
        Outcome::Ok(value) => stored(blobs, value).await,
        Outcome::Err(..) => Ok(()),
    }
}
