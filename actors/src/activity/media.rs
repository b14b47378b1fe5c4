//! Bytes leave what an activity comes to before that is journalled.

use abide_conversation::Action;
use abide_conversation::command::Plan;
use abide_conversation::message::Outcome;
use serde_json::Value;

use crate::blobs::{Blobs, stored};
use crate::journal::Refusal;

/// The same action with blobs in place of the bytes of media: in results, in what a model said, and
/// in what hooks add for good.
pub(super) async fn kept(blobs: &dyn Blobs, mut action: Action) -> Result<Action, Refusal> {
    match &mut action {
        Action::ToolReturned(returned) => result(blobs, &mut returned.outcome).await?,
        Action::ModelReplied(replied) => {
            all(blobs, &mut replied.content).await?;
            for call in &mut replied.calls {
                if let Plan::Answer { outcome, .. } = &mut call.plan {
                    result(blobs, outcome).await?;
                }
            }
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
        | Action::ChildReleased { .. }
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
