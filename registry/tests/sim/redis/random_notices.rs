//! Random calls about webhooks and what is owed to them.

use std::sync::Arc;

use abide_actors::notices::{NoticeKind, OwedNotice, Webhook, WebhookKey};
use abide_conversation::{ConversationId, Scoped, Seq, Tenant, Timestamp};
use abide_registry::partition::{Partition, PartitionSet};
use abide_registry::store::{
    Attempts, DeliveryState, NoticeQueue, Settlement, Store, WebhookChange, WebhookEdit,
};
use serde_json::json;

use super::random_calls::{Choice, at, outcome};

fn key_of(number: u64, tenant: &Tenant) -> WebhookKey {
    Scoped::new(tenant, &format!("w{}.g", number % 2))
}

/// What events of these numbers owe.
pub(super) fn owed(
    number: u64,
    tenant: &Tenant,
    seqs: impl IntoIterator<Item = Seq>,
) -> Vec<OwedNotice> {
    let owed = |seq| OwedNotice {
        webhook: key_of(number, tenant),
        seq,
        kind: NoticeKind::TurnCompleted,
        at: at(number),
        body: Arc::from(format!("{tenant} {number}")),
    };
    seqs.into_iter().map(owed).collect()
}

/// Calls a store, and returns what it answers.
pub(super) async fn call(store: &dyn Store, choice: &Choice) -> String {
    let Choice { kind, number, id, .. } = choice;
    let (number, tenant) = (*number, id.tenant());
    let webhook = key_of(number / 2, &tenant);
    let queue = NoticeQueue { webhook: webhook.clone(), conversation: id.clone() };
    match kind {
        40 => outcome(store.notice_head(&queue).await),
        41 => {
            let Ok(Some(head)) = store.notice_head(&queue).await else { return String::new() };
            let attempts = Attempts { count: 1, last_at: None, last_error: None };
            let settlement = match number % 3 {
                0 => Settlement::Delivered { at: at(number) },
                1 => Settlement::Retry { due: at(number + 9), attempts },
                _ => Settlement::Dead { at: at(number), attempts },
            };
            outcome(store.settle_notice(&queue, &head, &settlement).await)
        }
        42 => {
            let dead = store.deliveries(&webhook, DeliveryState::Dead, None, 9).await;
            let dead = dead.map(|page| page.items).unwrap_or_default();
            let Some(first) = dead.first() else { return String::new() };
            let conversation = first.conversation.clone();
            let queue = NoticeQueue { webhook, conversation };
            outcome(store.redeliver(&queue, first.notice.seq, at(number)).await)
        }
        43 if number % 8 == 0 => outcome(store.drop_notices(&webhook, Partition::from(id)).await),
        44 => {
            let Ok(list) = store.webhooks(None).await else { return "unavailable".to_owned() };
            let version = list.map_or(0, |list| list.version);
            let edit = match number % 3 {
                0 => WebhookEdit::Remove(webhook),
                _ => WebhookEdit::Put(Box::new(stored(number / 2, &tenant))),
            };
            let change = WebhookChange { version, changes: vec![edit] };
            outcome(store.change_webhooks(&change).await)
        }
        _ => {
            let here = PartitionSet::from_iter([Partition::from(id)]);
            let partitions: Vec<Partition> = here.iter().collect();
            let seen = (
                store.notice_counts(&webhook).await,
                store.due_queues(&webhook, &partitions, at(number), 9).await,
                store.old_queues(&webhook, &here, at(number), 9).await,
                store.deliveries(&webhook, DeliveryState::Owed, None, 9).await,
                store.deliveries(&webhook, DeliveryState::Dead, None, 9).await,
            );
            format!("{seen:?}")
        }
    }
}

/// All that a tenant's webhooks and their queues show.
pub async fn view(store: &dyn Store, tenant: &Tenant) -> String {
    let conversations = ["a", "b"].map(|name| Scoped::new(tenant, &ConversationId::new(name)));
    let here: PartitionSet = conversations.iter().map(Partition::from).collect();
    let partitions: Vec<Partition> = here.iter().collect();
    let webhooks = store.webhooks(None).await.ok().flatten().unwrap_or_default().webhooks;
    let own: Vec<_> = webhooks.iter().filter(|webhook| webhook.tenant == *tenant).collect();
    let mut due = store.due_webhooks(&here, Timestamp::MAX).await.unwrap_or_default();
    due.retain(|(_, webhook)| webhook.is_of(tenant));
    let mut seen = format!("{own:?} {due:?}");
    for webhook in [0, 1].map(|number| key_of(number, tenant)) {
        let of_webhook = (
            store.notice_counts(&webhook).await,
            store.due_queues(&webhook, &partitions, Timestamp::MAX, 99).await,
            store.old_queues(&webhook, &here, Timestamp::MAX, 99).await,
            store.deliveries(&webhook, DeliveryState::Owed, None, 99).await,
            store.deliveries(&webhook, DeliveryState::Dead, None, 99).await,
        );
        seen.push_str(&format!("{of_webhook:?}"));
        for conversation in conversations.clone() {
            let queue = NoticeQueue { webhook: webhook.clone(), conversation };
            seen.push_str(&format!("{:?}", store.notice_head(&queue).await));
        }
    }
    seen
}

fn stored(number: u64, tenant: &Tenant) -> Webhook {
    let name = format!("w{}", number % 2);
    serde_json::from_value(json!({
        "tenant": tenant, "name": name, "generation": "g", "url": "http://a.b/",
        "created_at": at(0), "updated_at": at(number), "by": "ann",
    }))
    .unwrap()
}
