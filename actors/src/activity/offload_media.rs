//! Bytes leave what an activity comes to before that is journalled.

use abide_conversation::Action;
use abide_conversation::command::CallPlan;
use abide_conversation::event::Executor;
use abide_conversation::message::{Outcome, ProviderMessage};
use serde_json::Value;

use crate::blobs::{Blobs, extract_media, has_placeholder, strip_base64};
use crate::journal::StoreError;

/// The same action with blobs in place of the bytes of media: in results, in what a model said, and
/// in what hooks add for good. What providers ran and wrote has other forms than blocks: there, it
/// is any long base64.
pub(super) async fn kept(blobs: &dyn Blobs, mut action: Action) -> Result<Action, StoreError> {
    match &mut action {
        Action::ToolReturned(returned) => result(blobs, &mut returned.outcome).await?,
        Action::ModelReplied(replied) => {
            all(blobs, &mut replied.content).await?;
            for call in &mut replied.calls {
                if let CallPlan::Answer { executor, outcome, .. } = &mut call.plan {
                    result(blobs, outcome).await?;
                    if let (Executor::Provider, Outcome::Ok(value)) = (executor, outcome) {
                        strip_base64(blobs, value).await?;
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
        | Action::EventsCopied(_)
        | Action::Send(_)
        | Action::Start(_)
        | Action::ModelFailed(_)
        | Action::Resolve(_)
        | Action::ClientMissing(_)
        | Action::FailCall(_)
        | Action::Wake
        | Action::Cancel(_)
        | Action::Revive
        | Action::Dispatch(_)
        | Action::Spawn(_)
        | Action::ChildStarted(_)
        | Action::ChildEnded(_)
        | Action::ChildReleased { .. }
        | Action::ParentNotified(_)
        | Action::WorkspaceOpened { .. }
        | Action::Abandon(_)
        | Action::Halt { .. }
        | Action::ContextReduced { .. }
        | Action::Summarized { .. }
        | Action::SummaryFailed { .. }
        | Action::DecisionPublished(_)
        | Action::RevokeDecision(_) => {}
    }
    Ok(action)
}

/// `None` of a message in which a blob seems to be named already: what is put back would not be
/// what its provider wrote.
async fn written(
    blobs: &dyn Blobs,
    verbatim: ProviderMessage,
) -> Result<Option<ProviderMessage>, StoreError> {
    let ProviderMessage { provider, model, items } = verbatim;
    if items.iter().any(has_placeholder) {
        return Ok(None);
    }
    let mut kept = Vec::with_capacity(items.len());
    for mut item in items {
        strip_base64(blobs, &mut item).await?;
        kept.push(item);
    }
    Ok(Some(ProviderMessage { provider, model, items: kept }))
}

async fn all(blobs: &dyn Blobs, values: &mut [Value]) -> Result<(), StoreError> {
    for value in values {
        extract_media(blobs, value).await?;
    }
    Ok(())
}

async fn result(blobs: &dyn Blobs, outcome: &mut Outcome) -> Result<(), StoreError> {
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
    use abide_conversation::{MessageId, TurnId};
    use serde_json::json;

    use super::*;
    use crate::blobs::tests::MemoryBlobs;

    /// A reply in which the provider ran a tool, whose item is this.
    fn replied(item: &Value) -> Action {
        let ran = PlannedCall {
            given_id: "ig_1".to_owned(),
            tool: "draw".to_owned(),
            args: json!({}),
            original_args: None,
            plan: CallPlan::Answer {
                executor: Executor::Provider,
                intent: Intent::Compute,
                outcome: Outcome::Ok(item.clone()),
            },
            gate: None,
        };
        let (provider, model) = ("openai_responses".to_owned(), "m".to_owned());
        Action::ModelReplied(ModelReplied {
            turn: TurnId::new("t"),
            step: 1,
            id: MessageId::new("m"),
            calls: vec![ran],
            content: Vec::new(),
            usage: None,
            stop: None,
            verbatim: Some(ProviderMessage { provider, model, items: vec![item.clone()] }),
            context_tokens: None,
            context_seq: 0,
            object: None,
            verdict: MessageVerdict::Accept,
        })
    }

    async fn journalled(shelf: &MemoryBlobs, item: &Value) -> ModelReplied {
        match kept(shelf, replied(item)).await.unwrap() {
            Action::ModelReplied(replied) => replied,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn no_base64_of_what_a_provider_ran_is_journalled() {
        let shelf = MemoryBlobs::default();
        let (data, kind) = ("AAECAwQF".repeat(1_000), "image_generation_call");
        let reply = journalled(&shelf, &json!({"type": kind, "result": data})).await;
        let told = format!("{reply:?}");
        assert!(!told.contains("AAECAwQF"), "{told}");
        let verbatim = reply.verbatim.unwrap();
        let CallPlan::Answer { outcome: Outcome::Ok(result), .. } = &reply.calls[0].plan else {
            panic!("{told}");
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
        assert_eq!(journalled(&MemoryBlobs::default(), &item).await.verbatim, None);
    }
}
