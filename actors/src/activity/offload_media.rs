//! Moves media bytes out of an activity's result into blobs before the result is journalled.

use abide_conversation::Action;
use abide_conversation::command::CallPlan;
use abide_conversation::event::Executor;
use abide_conversation::message::{Outcome, ProviderMessage};
use serde_json::Value;

use crate::blobs::{TenantBlobs, extract_media, has_placeholder, strip_base64};
use crate::journal::StoreError;

/// Replaces media bytes in the action by references to blobs: in results, in the model's message,
/// and in durable additions of hooks. What a provider ran and wrote does not consist of blocks;
/// there, any long base64 is replaced.
pub(super) async fn offload_media(
    blobs: TenantBlobs<'_>,
    action: &mut Action,
) -> Result<(), StoreError> {
    match action {
        Action::ToolReturned(returned) => offload_result(blobs, &mut returned.outcome).await?,
        Action::ModelReplied(replied) => {
            offload_values(blobs, &mut replied.content).await?;
            for call in &mut replied.calls {
                if let CallPlan::Complete { executor, outcome, .. } = &mut call.plan {
                    offload_result(blobs, outcome).await?;
                    if let (Executor::Provider, Outcome::Ok(value)) = (executor, outcome) {
                        strip_base64(blobs, value).await?;
                    }
                }
            }
            replied.verbatim = match replied.verbatim.take() {
                Some(verbatim) => offload_verbatim(blobs, verbatim).await?,
                None => None,
            };
        }
        Action::ContextAdded { added, .. } => {
            for added in added {
                offload_values(blobs, &mut added.content).await?;
            }
        }
        Action::Create(_)
        | Action::EventsCopied(_)
        | Action::OriginalGone
        | Action::Send(_)
        | Action::Start(_)
        | Action::ModelFailed(_)
        | Action::Resolve(_)
        | Action::ClientMissing(_)
        | Action::FailCall(_)
        | Action::Wake
        | Action::Cancel(_)
        | Action::Revive
        | Action::ReviveAfter(_)
        | Action::AttemptFailed(_)
        | Action::AttemptNow
        | Action::ConnectionBroke { .. }
        | Action::ChangeState(_)
        | Action::Dispatch(_)
        | Action::Spawn(_)
        | Action::ChildStarted(_)
        | Action::ChildEnded(_)
        | Action::ChildReleased { .. }
        | Action::ParentNotified(_)
        | Action::WorkspaceOpened { .. }
        | Action::Abandon(_)
        | Action::External(_)
        | Action::Halt { .. }
        | Action::ContextReduced { .. }
        | Action::Summarized { .. }
        | Action::SummaryFailed { .. }
        | Action::DecisionPublished(_)
        | Action::Update(_)
        | Action::Operate(_)
        | Action::Schedule(_)
        | Action::Unschedule(_)
        | Action::Extend(_)
        | Action::WakeToInterrupt(_)
        | Action::Withdraw(_)
        | Action::Rewind(_)
        | Action::Regenerate(_)
        | Action::RevokeDecision(_) => {}
    }
    Ok(())
}

/// `None` for a message that already seems to name a blob: restoring it would not give what the
/// provider wrote.
async fn offload_verbatim(
    blobs: TenantBlobs<'_>,
    verbatim: ProviderMessage,
) -> Result<Option<ProviderMessage>, StoreError> {
    let ProviderMessage { provider, model, items } = verbatim;
    if items.iter().any(has_placeholder) {
        return Ok(None);
    }
    let mut offloaded = Vec::with_capacity(items.len());
    for mut item in items {
        strip_base64(blobs, &mut item).await?;
        offloaded.push(item);
    }
    Ok(Some(ProviderMessage { provider, model, items: offloaded }))
}

async fn offload_values(blobs: TenantBlobs<'_>, values: &mut [Value]) -> Result<(), StoreError> {
    for value in values {
        extract_media(blobs, value).await?;
    }
    Ok(())
}

async fn offload_result(blobs: TenantBlobs<'_>, outcome: &mut Outcome) -> Result<(), StoreError> {
    match outcome {
        Outcome::Ok(value) => extract_media(blobs, value).await,
        Outcome::Err(..) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use abide_conversation::command::{MessageVerdict, ModelReplied, PlannedCall};
    use abide_conversation::event::Intent;
    use abide_conversation::{MessageId, Seq, Step, TurnId};
    use serde_json::json;

    use super::*;
    use crate::blobs::tests::MemoryBlobs;

    /// A reply in which the provider ran a tool and returned this item.
    fn replied(item: &Value) -> Action {
        let ran = PlannedCall {
            given_id: "ig_1".to_owned(),
            tool: "draw".to_owned(),
            args: json!({}).into(),
            original_args: None,
            plan: CallPlan::Complete {
                executor: Executor::Provider,
                intent: Intent::Compute,
                outcome: Outcome::Ok(item.clone()),
            },
            verdict: None,
        };
        let (provider, model) = ("openai_responses".to_owned(), "m".to_owned());
        Action::ModelReplied(ModelReplied {
            turn: TurnId::new("t"),
            step: Step::FIRST,
            id: MessageId::new("m"),
            calls: vec![ran],
            content: Vec::new(),
            usage: None,
            stop: None,
            verbatim: Some(ProviderMessage { provider, model, items: vec![item.clone()] }),
            fallback: None,
            context_tokens: None,
            context_seq: Seq::ZERO,
            object: None,
            verdict: MessageVerdict::Accept,
        })
    }

    async fn offload(shelf: &MemoryBlobs, item: &Value) -> ModelReplied {
        let mut action = replied(item);
        offload_media(shelf.all(), &mut action).await.unwrap();
        match action {
            Action::ModelReplied(replied) => replied,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn no_base64_of_what_a_provider_ran_is_journalled() {
        let shelf = MemoryBlobs::default();
        let (data, kind) = ("AAECAwQF".repeat(1_000), "image_generation_call");
        let reply = offload(&shelf, &json!({"type": kind, "result": data})).await;
        let debug = format!("{reply:?}");
        assert!(!debug.contains("AAECAwQF"), "{debug}");
        let verbatim = reply.verbatim.unwrap();
        let CallPlan::Complete { outcome: Outcome::Ok(result), .. } = &reply.calls[0].plan else {
            panic!("{debug}");
        };
        assert_eq!(verbatim.items, std::slice::from_ref(result));
        let blobs = shelf.blobs.lock().unwrap();
        assert_eq!(
            blobs.keys().map(|id| json!(id)).collect::<Vec<_>>(),
            [result["result"]["$abide_blob"].clone()]
        );
    }

    #[tokio::test]
    async fn what_would_be_taken_for_a_blob_is_not_kept_as_its_provider_wrote_it() {
        let item = json!({"type": "x", "args": {"$abide_blob": "blob_1"}});
        assert_eq!(offload(&MemoryBlobs::default(), &item).await.verbatim, None);
    }
}
