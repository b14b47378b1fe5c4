//! Puts the alias into the journals of others' conversations that name the subject.

use abide_actors::journal::StoreError;
use abide_actors::request::{Reply, Request, RequestError};
use abide_conversation::erase::SubjectAlias;
use abide_conversation::{ConversationId, Rejection, Scoped, Seq, Tenant, Timestamp};
use futures::{StreamExt, stream};

use super::eraser::{EraseError, Eraser};
use crate::CLOCK_SKEW;
use crate::erasure::{Erasure, ErasureStep};
use crate::store::{Direction, ListQuery, ListedConversation, Period, SummaryFilter};

/// The conversations of one step, after which the progress is stored: enough that what a step takes
/// by itself is little beside them.
const STEP_CONVERSATIONS: usize = 200;
/// How many of them are read at once: others use the store, too.
const MAX_CONCURRENT_READS: usize = 4;
/// How many events are read at once: each may be a megabyte.
const EVENT_PAGE_SIZE: usize = 64;

/// How many events of a journal named the subject, and how many had the alias before.
#[derive(Clone, Copy, Debug, Default)]
struct Rewritten {
    named: u64,
    aliased: u64,
}

impl Eraser {
    /// Goes through some more conversations of the tenant. One that cannot be rewritten holds up none
    /// of the others: the pass goes on, and is repeated later.
    pub(super) async fn rewrite_others(
        &self,
        tenant: &Tenant,
        erasure: &mut Erasure,
    ) -> Result<(), EraseError> {
        let (Some(running), Some(alias)) = (erasure.running(), erasure.alias()) else {
            return Ok(());
        };
        let (filter, cursor) = (SummaryFilter::default(), running.cursor.clone());
        let mut problem = running.problem.clone().filter(|_| cursor.is_some());
        if cursor.is_none() {
            // Whatever an earlier pass has rewritten is counted by its alias.
            (erasure.report.rewritten.conversations, erasure.report.rewritten.events) = (0, 0);
        }
        let page = self
            .store
            .conversations(tenant, &filter, cursor.as_deref(), STEP_CONVERSATIONS)
            .await?;
        // A list may not have shown all of the subject's own, and there may be new ones.
        let (own, others): (Vec<_>, Vec<_>) =
            page.items.into_iter().partition(|(_, it)| it.participants.is_owner(&alias.subject));
        for (id, _) in own {
            match self.delete_conversation(&id).await {
                Ok(true) => erasure.note_deleted(&id.local()),
                Ok(false) => {}
                Err(error) => problem = Some(format!("{}: {error}", id.local())),
            }
        }
        let others = others.into_iter().map(|(id, _)| id);
        let outcomes = self.rewrite_each(others.collect(), &alias).await;
        for outcome in outcomes {
            match outcome {
                Ok(Rewritten { named, aliased }) => erasure.count_rewritten(named + aliased),
                Err(error) => problem = Some(error),
            }
        }
        if erasure.end_page_of_others(page.cursor, problem)? {
            erasure.go_on(ErasureStep::Things);
        }
        Ok(())
    }

    /// Goes through some more of the conversations that were made since the erasure began: a fork, or a
    /// child, may have begun with what was not rewritten yet, where the pass over all had been already.
    /// Returns whether it has come to the end.
    pub(super) async fn rewrite_newer(
        &self,
        tenant: &Tenant,
        erasure: &mut Erasure,
    ) -> Result<bool, EraseError> {
        let (Some(running), Some(alias)) = (erasure.running(), erasure.alias()) else {
            return Ok(true);
        };
        let began = erasure.started_at.checked_sub(CLOCK_SKEW).unwrap_or(Timestamp::MIN);
        let query = ListQuery {
            created: Period { after: Some(began), before: None },
            direction: Direction::Ascending,
            ..ListQuery::default()
        };
        let cursor = running.cursor.clone();
        let mut problem = running.problem.clone().filter(|_| cursor.is_some());
        let page = self.store.list(tenant, &query, cursor.as_deref(), STEP_CONVERSATIONS).await?;
        let is_own = |it: &ListedConversation| it.summary.participants.is_owner(&alias.subject);
        let others = page.items.into_iter().filter(|it| !is_own(it)).map(|it| it.id);
        let outcomes = self.rewrite_each(others.collect(), &alias).await;
        for outcome in outcomes {
            match outcome {
                // The pass over all has counted those with aliases.
                Ok(Rewritten { named, .. }) => erasure.count_rewritten(named),
                Err(error) => problem = Some(error),
            }
        }
        erasure.end_page_of_others(page.cursor, problem)
    }

    /// Has each conversation rewritten whose journal names the subject. An error says which failed.
    async fn rewrite_each(
        &self,
        ids: Vec<Scoped<ConversationId>>,
        alias: &SubjectAlias,
    ) -> Vec<Result<Rewritten, String>> {
        let rewrites = ids.into_iter().map(|id| async move {
            let rewritten = self.rewrite_one(&id, alias).await;
            rewritten.map_err(|error| format!("{}: {error}", id.local()))
        });
        stream::iter(rewrites).buffer_unordered(MAX_CONCURRENT_READS).collect().await
    }

    /// Has the conversation rewritten if its journal names the subject.
    async fn rewrite_one(
        &self,
        id: &Scoped<ConversationId>,
        alias: &SubjectAlias,
    ) -> Result<Rewritten, EraseError> {
        let found = self.count_named(id, alias).await?;
        if found.named == 0 {
            return Ok(found);
        }
        let request = Request::EraseSubject(alias.clone());
        match self.conversations.deliver(id, request, Vec::new()).await {
            Ok(Reply::SubjectErased { events }) => Ok(Rewritten { named: events, ..found }),
            Ok(other) => Err(RequestError::Unavailable(format!("answered {other:?}")).into()),
            Err(RequestError::Rejected(Rejection::NotFound)) => Ok(Rewritten::default()),
            Err(error) => Err(error.into()),
        }
    }

    /// How many events of the journal name the subject, and how many the alias, which needs no actor
    /// to find out.
    async fn count_named(
        &self,
        id: &Scoped<ConversationId>,
        alias: &SubjectAlias,
    ) -> Result<Rewritten, StoreError> {
        let of_alias = SubjectAlias { subject: alias.alias.clone(), ..alias.clone() };
        let (mut after, mut found) = (Seq::ZERO, Rewritten::default());
        loop {
            let mut page = self.store.events(id, after, EVENT_PAGE_SIZE).await?;
            let Some(last) = page.last() else { return Ok(found) };
            after = last.seq;
            for event in &mut page {
                if alias.apply(&mut event.data) {
                    found.named += 1;
                } else {
                    found.aliased += u64::from(of_alias.apply(&mut event.data));
                }
            }
        }
    }
}

impl Erasure {
    /// Counts a conversation of which this many events have the alias.
    fn count_rewritten(&mut self, events: u64) {
        self.report.rewritten.conversations += u64::from(events > 0);
        self.report.rewritten.events += events;
    }

    /// Goes on behind a page of others' conversations. Returns whether it was the last one. A pass in
    /// which something failed is repeated: what is rewritten names the subject no more.
    fn end_page_of_others(
        &mut self,
        cursor: Option<String>,
        problem: Option<String>,
    ) -> Result<bool, EraseError> {
        let Some(running) = self.progress() else { return Ok(true) };
        let is_last = cursor.is_none();
        running.cursor = cursor;
        running.problem.clone_from(&problem);
        match problem.filter(|_| is_last) {
            Some(problem) => Err(EraseError::Left(problem)),
            None => Ok(is_last),
        }
    }
}
