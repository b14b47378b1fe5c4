//! The list of all metrics.

use super::MetricKind::{Counter, Gauge, Histogram};
use super::Unit::{Count, Seconds};
use super::{Metric, MetricKind, Unit};

const fn metric(
    name: &'static str,
    kind: MetricKind,
    unit: Unit,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { name, kind, unit, labels, help }
}

/// All metrics. A counter counts once, on the node where the event happened: a replay does not
/// count again.
#[rustfmt::skip] // A line each.
pub const METRICS: &[Metric] = &[
    // Conversations.
    metric("abide_turns_total", Counter, Count, &["outcome"], "Turns that ended."),
    metric("abide_turn_seconds", Histogram, Seconds, &["outcome"], "From a turn's start to its end, waiting included."),
    metric("abide_steps_total", Counter, Count, &["outcome"], "Assistant messages that were journalled: complete, cancelled or error."),
    metric("abide_calls_total", Counter, Count, &["executor", "outcome"], "Calls that got their result: ok, or the kind of the error."),
    metric("abide_call_seconds", Histogram, Seconds, &["executor"], "From handing a call to its executor until its result."),
    metric("abide_tool_retries_total", Counter, Count, &["reason"], "Failed attempts of tools that another attempt follows."),
    metric("abide_suspensions_total", Counter, Count, &["kind"], "Suspensions opened."),
    metric("abide_suspension_seconds", Histogram, Seconds, &["kind", "outcome"], "How long suspensions waited until they were resolved, or until their call ended otherwise."),
    metric("abide_open_suspensions", Gauge, Count, &["kind"], "Open suspensions of the cluster, counted by one node at a time; add up the nodes."),
    metric("abide_oldest_suspension_seconds", Gauge, Seconds, &["kind"], "Age of the oldest open suspension of the cluster, as one node last saw it; take the maximum of the nodes."),
    metric("abide_resolution_seconds", Histogram, Seconds, &[], "From a resolution's arrival to its acceptance, commit included."),
    metric("abide_model_call_seconds", Histogram, Seconds, &["provider", "purpose", "outcome"], "Model calls, retries included: ok, failed, or cut off."),
    metric("abide_model_first_part_seconds", Histogram, Seconds, &["provider", "purpose"], "From the request to a model to the first chunk of its reply."),
    metric("abide_tokens_total", Counter, Count, &["model", "direction"], "Tokens as the provider counted them: input (cached included), output, and cached."),
    // Queues.
    metric("abide_queue_depth", Gauge, Count, &["queue"], "Calls that wait for a worker, counted by one node at a time; add up the nodes."),
    metric("abide_queue_oldest_seconds", Gauge, Seconds, &["queue"], "How long the first of the waiting calls has waited; take the maximum of the nodes."),
    metric("abide_queue_unattended_seconds", Gauge, Seconds, &["queue"], "For how long calls have waited and no worker was seen."),
    metric("abide_queue_leases_total", Counter, Count, &[], "Calls that were given to workers."),
    metric("abide_queue_leases_lost_total", Counter, Count, &[], "Leases of workers that ran out."),
    // Actors.
    metric("abide_live_actors", Gauge, Count, &[], "Conversations in this node's memory."),
    metric("abide_mailbox_deepest", Gauge, Count, &[], "Requests that wait for the conversation with the longest queue."),
    metric("abide_mailbox_waiting", Gauge, Count, &[], "Requests that wait for conversations of this node."),
    metric("abide_claims_total", Counter, Count, &[], "Claims made by actors that started here."),
    metric("abide_actor_deaths_total", Counter, Count, &[], "Actors that ended with an error."),
    metric("abide_quarantined", Gauge, Count, &[], "Conversations that crashed too often and wait for an operator."),
    metric("abide_takeovers_total", Counter, Count, &[], "Conversations started because no node ran them any more."),
    metric("abide_conversations_deleted_total", Counter, Count, &["reason"], "Conversations that were deleted, by the reason."),
    metric("abide_alarm_lag_seconds", Histogram, Seconds, &[], "How late alarms were delivered."),
    metric("abide_tick_lag_seconds", Histogram, Seconds, &[], "How late ticks of schedules were sent."),
    metric("abide_ticks_total", Counter, Count, &["result"], "Ticks of schedules: sent, or refused."),
    metric("abide_hook_notes_dropped_total", Counter, Count, &[], "Notifications that were not delivered to hooks."),
    metric("abide_audit_lost_total", Counter, Count, &[], "Audit entries that were lost."),
    // Notices.
    metric("abide_notices_owed", Gauge, Count, &[], "Notices owed to webhooks in this node's partitions; add up the nodes."),
    metric("abide_oldest_notice_seconds", Gauge, Seconds, &[], "Age of the oldest notice that is owed; take the maximum of the nodes."),
    metric("abide_webhooks_failing", Gauge, Count, &[], "Webhooks whose receivers have failed for a day; each node knows of all."),
    metric("abide_notice_attempts_total", Counter, Count, &["outcome"], "Attempts at notices: delivered, failed or gone."),
    metric("abide_notice_delivery_seconds", Histogram, Seconds, &[], "From an event to the receipt of its notice."),
    metric("abide_notices_dead_total", Counter, Count, &[], "Notices that nobody tries any more."),
    // The store.
    metric("abide_store_commits_total", Counter, Count, &[], "Commits that the store acknowledged."),
    metric("abide_store_fsyncs_total", Counter, Count, &[], "Times the embedded store's file was flushed."),
    metric("abide_store_errors_total", Counter, Count, &[], "Calls to Redis that failed."),
    metric("abide_store_unreadable_total", Counter, Count, &[], "Values that could not be opened: changed, moved, or without their key."),
    metric("abide_commit_seconds", Histogram, Seconds, &[], "How long a conversation waited for its append."),
    metric("abide_fenced_writes_total", Counter, Count, &[], "Writes refused because another holder has the conversation."),
    // Between nodes.
    metric("abide_peers_connected", Gauge, Count, &[], "Nodes that this one is connected to."),
    metric("abide_peer_sessions_total", Counter, Count, &["end"], "Connections between nodes that ended, and how."),
    metric("abide_peers_refused_total", Counter, Count, &["cause"], "Connections that failed the handshake."),
    metric("abide_members", Gauge, Count, &[], "Members of the cluster as this node sees it."),
    metric("abide_burials_total", Counter, Count, &[], "Times this node was declared dead and rejoined as a new process."),
    metric("abide_late_messages_total", Counter, Count, &[], "Calls of other nodes that arrived after their deadline and were not carried out."),
    metric("abide_unintelligible_messages_total", Counter, Count, &[], "Messages of other nodes that could not be read."),
    metric("abide_relays_lost_total", Counter, Count, &[], "Batches of signals that another node did not receive."),
    // HTTP.
    metric("abide_requests_total", Counter, Count, &["method", "route", "status"], "Public requests answered."),
    metric("abide_request_seconds", Histogram, Seconds, &["method", "route"], "From a public request to the head of its response."),
    metric("abide_auth_total", Counter, Count, &["result"], "Credentials verified or refused."),
    metric("abide_auth_key_fetches_total", Counter, Count, &["result"], "How often issuers were asked for their keys."),
    metric("abide_auth_file_mistakes", Gauge, Count, &[], "Mistakes in the newest file of --auth, which is not in force."),
    metric("abide_quota_refusals_total", Counter, Count, &["quota"], "Requests refused because a quota of their tenant was used up."),
    metric("abide_event_streams", Gauge, Count, &[], "Event streams open on this node."),
    metric("abide_deltas_dropped_total", Counter, Count, &[], "Signals that slow listeners missed; journalled frames are read from the store."),
    metric("abide_spans_dropped_total", Counter, Count, &["cause"], "Spans that were not exported: the queue was full, or the collector refused."),
    metric("abide_build_info", Gauge, Count, &["version"], "Always 1."),
];
