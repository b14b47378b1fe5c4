//! The promises that every store keeps, as one suite: a test for each promise and store.

mod access;
mod agents;
mod audit;
mod blob_names;
mod blobs;
mod claims;
mod encryption;
mod erasures;
mod fixtures;
mod indexes;
mod journal;
mod lists;
mod notices;
mod operations;
mod queues;
mod revisions;
mod rollouts;
mod schedules;
mod staging;
mod tenants;
mod usage;

pub(super) use access::*;
pub(super) use agents::*;
pub(super) use audit::*;
pub(super) use blob_names::*;
pub(super) use blobs::*;
pub(super) use claims::*;
pub(super) use encryption::*;
pub(super) use erasures::*;
pub(crate) use fixtures::*;
pub(super) use indexes::*;
pub(super) use journal::*;
pub(super) use lists::*;
pub(super) use notices::*;
pub(super) use operations::*;
pub(super) use queues::*;
pub(super) use revisions::*;
pub(super) use rollouts::*;
pub(super) use schedules::*;
pub(super) use staging::*;
pub(super) use tenants::*;
pub(super) use usage::*;

/// Runs the suite, a test for each promise, against the store that the expression creates: a pair
/// of a value that keeps the store alive and an `Arc<dyn Store>`. The form `as one` is for servers
/// that take long to start: it is a single test, whose expression creates a value with a method
/// `fresh` that returns the emptied store.
macro_rules! conformance {
    (as one: $name:ident, $servers:expr) => {
        $crate::store::conformance::conformance! { @all (one $name $servers) }
    };
    (@all $how:tt) => {
        $crate::store::conformance::conformance! { @these $how
            a_commit_is_read_back,
            a_commit_elsewhere_than_at_the_end_conflicts,
            a_commit_with_a_gap_conflicts,
            a_commit_without_events_needs_a_conversation,
            an_append_under_an_older_epoch_is_fenced,
            an_append_of_another_incarnation_with_the_same_epoch_is_fenced,
            an_append_after_a_release_is_fenced,
            an_append_without_a_claim_is_fenced,
            a_refused_commit_leaves_nothing,
            of_two_commits_at_the_same_place_one_wins,
            a_load_begins_at_the_cached_state,
            events_are_read_in_pages_in_both_directions,
            large_events_are_kept_whole,
            an_event_of_an_unknown_type_is_kept_whole,
            conversations_whose_ids_share_a_prefix_are_separate,
            a_response_is_stored_until_it_expires,
            a_response_under_the_same_key_replaces_one_that_has_expired,
            a_response_that_never_expires_stays,
            a_key_is_reserved_once_until_it_expires,
            one_of_many_claimants_wins_and_all_learn_which,
            a_claim_of_the_present_holder_changes_nothing,
            a_node_fences_its_own_former_actor,
            a_claim_over_a_dead_holder_raises_the_epoch,
            a_claim_over_the_wrong_holder_changes_nothing,
            claim_and_load_returns_the_journal_only_to_the_holder,
            the_first_commit_of_what_is_new_claims_it,
            a_first_commit_claims_nothing_that_is_held_or_exists,
            a_first_commit_after_a_deletion_has_a_later_epoch,
            a_first_commit_keeps_its_responses,
            deaths_are_counted_until_a_commit_resets_them,
            deaths_under_which_nothing_ran_are_not_counted,
            no_epoch_is_given_twice,
            a_stale_release_changes_nothing,
            the_inbox_is_ordered_by_deadline_and_read_in_pages,
            the_inbox_is_filtered,
            a_closed_suspension_leaves_the_inbox,
            a_vote_replaces_the_entry_of_its_suspension,
            each_open_suspension_is_counted_once,
            an_alarm_can_be_moved_and_removed,
            conversations_are_listed_as_active_while_they_have_work,
            active_conversations_are_listed_with_their_claims,
            active_conversations_and_due_alarms_are_read_by_partition,
            calls_that_wait_in_queues_are_found_by_queue_and_tool,
            the_heads_of_a_long_queue_are_bounded,
            the_last_seqs_of_many_conversations_are_read_at_once,
            conversations_are_listed_by_id_in_pages_and_filtered,
            long_listings_are_read_in_order_page_by_page,
            an_invalid_cursor_is_refused,
            lists_are_sorted_by_creation_or_activity,
            an_activity_moves_a_conversation_in_its_lists,
            lists_are_filtered,
            changed_metadata_moves_a_conversation_in_the_index,
            a_deleted_conversation_leaves_all_lists,
            a_cursor_of_another_list_is_refused,
            long_lists_are_read_page_by_page,
            an_entry_is_written_anew_if_the_journal_is_as_it_was_read,
            a_commit_that_is_late_after_its_entry_was_written_anew_says_why,
            the_progress_of_a_rebuild_is_replaced_only_if_it_is_known,
            the_agents_to_index_are_replaced_only_if_they_are_known,
            what_is_aside_is_seen_by_nobody_until_it_is_published,
            a_publication_with_the_key_of_a_deletion_is_whole_or_nothing,
            a_publication_is_refused_where_a_conversation_is_or_events_are_missing,
            a_deletion_leaves_nothing_but_its_response,
            a_deletion_by_another_is_fenced,
            a_deleted_conversation_may_be_created_again,
            an_agent_is_reported_as_new_once,
            a_replaced_revision_stays,
            a_deleted_agent_leaves_its_revisions,
            an_agent_is_put_only_over_the_revision_that_is_expected,
            agents_are_listed_by_name,
            a_history_has_each_revision_once_in_the_order_in_which_they_were_put,
            only_old_revisions_are_dropped,
            a_revision_that_is_added_is_the_oldest,
            a_rollout_is_read_with_the_newest_revision,
            a_rollout_of_what_is_not_there_or_is_the_newest_changes_nothing,
            a_rollout_ends_with_its_agent_and_when_its_revision_is_the_newest,
            a_revision_of_a_rollout_is_not_dropped,
            decisions_belong_to_one_agent_and_are_deleted_with_it,
            every_change_of_a_key_is_seen_by_its_version,
            a_removed_key_is_not_updated_nor_marked,
            lists_show_what_their_viewer_may_see,
            a_blob_is_stored_whole_and_once,
            a_deleted_blob_is_gone_and_can_be_stored_again,
            blobs_that_nobody_named_outlive_deleted_conversations,
            a_blob_goes_with_the_last_conversation_that_names_it,
            a_hold_keeps_a_blob_that_nothing_names,
            a_name_ends_the_holds_of_whoever_names_and_of_nobody_else,
            what_a_conversation_names_itself_ends_the_holds_of_its_owner,
            the_holds_on_a_blob_are_bounded_and_nobodys_ends_early,
            names_of_conversations_that_are_there_are_not_lost,
            a_blob_that_is_about_to_be_named_outlives_the_last_deletion,
            a_refused_commit_or_deletion_takes_no_name,
            nothing_removes_a_blob_before_all_names_are_known,
            an_operator_deletes_a_named_blob_and_its_names_stay,
            an_import_names_what_its_events_aside_name,
            the_names_of_tenants_are_apart,
            of_a_last_deletion_and_a_new_name_at_once_the_blob_stays_or_is_seen_gone,
            the_audit_is_read_newest_first_and_in_pages,
            an_entry_of_the_audit_expires,
            the_audit_keeps_the_newest_of_many,
            the_audit_is_deleted_with_its_conversation,
            an_operation_is_in_the_chain_of_its_tenant_and_of_the_cluster,
            an_operation_has_its_effect_and_one_entry,
            an_operation_on_nothing_has_no_effect_and_no_entry,
            operations_at_once_do_not_fork_a_chain,
            a_chain_keeps_the_newest_of_many_operations,
            a_tenant_sees_what_it_would_see_alone,
            alarms_and_active_marks_name_the_tenant,
            a_tenant_is_found_by_whatever_it_has,
            a_page_of_one_tenant_has_nothing_of_others,
            a_cursor_of_another_tenant_is_refused,
            a_tenant_may_have_any_name,
            usage_is_added_up_by_day_agent_and_owner,
            a_repeated_or_refused_commit_counts_once,
            usage_outlives_its_conversation,
            a_day_has_room_for_a_bounded_number_of_owners,
            a_tenants_usage_and_counts_are_its_own,
            deletions_give_conversations_and_bytes_back,
            every_change_of_a_webhook_applies_to_the_version_it_was_made_for,
            what_is_owed_is_a_queue_of_which_only_the_head_is_due,
            a_notice_that_failed_stays_the_head_until_its_time,
            dead_notices_are_kept_up_to_a_bound_and_can_be_sent_once_more,
            what_is_owed_is_counted_and_listed,
            what_is_owed_outlives_its_conversation,
            a_webhooks_notices_can_be_dropped,
            a_refused_commit_owes_nothing,
            an_extended_suspension_has_one_entry_at_its_new_place,
            a_schedule_is_replaced_only_over_the_version_that_is_known,
            due_schedules_are_found_by_partition_earliest_first,
            schedules_are_listed_by_name_and_tenant,
            an_erasure_is_replaced_only_over_the_version_that_is_known,
            erasures_are_listed_by_tenant_and_found_when_they_are_due,
            a_rewrite_replaces_events_and_what_follows_from_them,
            a_rewrite_of_another_holder_or_journal_changes_nothing,
            what_was_read_before_a_rewrite_is_not_listed_after_it,
            the_usage_of_an_owner_goes_to_the_alias,
            an_entry_of_the_operators_audit_is_replaced_at_its_place,
            a_decision_is_replaced_only_as_it_was_read,
        }
    };
    (@these (one $name:ident $servers:expr) $($promise:ident),+ $(,)?) => {
        #[tokio::test]
        async fn $name() {
            let servers = $servers;
            $($crate::store::conformance::$promise(servers.fresh().await).await;)+
        }
    };
    (@these (each $store:expr) $($promise:ident),+ $(,)?) => {
        $(
            #[tokio::test]
            async fn $promise() {
                let (_keeper, store) = $store;
                $crate::store::conformance::$promise(store).await;
            }
        )+
    };
    ($store:expr) => {
        $crate::store::conformance::conformance! { @all (each $store) }
    };
}
pub(super) use conformance;
