//! Lists the erasures of a tenant, each once: those that run, and then the reports of the others.
//!
//! A store sorts them by name, and an erasure has two names one after the other: that of its job,
//! and that of its report, which is there before the job is gone. The cursor therefore remembers
//! the jobs that were shown, of which a tenant has few.

use std::collections::BTreeSet;

use abide_conversation::{ConversationId, ErasureId, Scoped, Tenant};
use serde::{Deserialize, Serialize};

use crate::erasure::{Erasure, RUNNING_PREFIX};
use crate::store::{ListError, Page, Store, cursor_after, decode_cursor, encode_cursor};

/// More than a tenant has at once.
const JOBS_AT_ONCE: usize = 64;

/// Where a listing goes on.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ListCursor {
    /// The erasures that were shown while they ran.
    earlier_jobs: BTreeSet<ErasureId>,
    /// Whether all that ran were shown.
    is_past_jobs: bool,
    /// The store's cursor; `None` at the beginning of the jobs or of the reports.
    after: Option<String>,
}

/// A page of the erasures of a tenant. What was on an earlier page is not on a later one, whatever
/// happens between them. A page before the end may be short.
pub async fn list(
    store: &dyn Store,
    tenant: &Tenant,
    cursor: Option<&str>,
    limit: usize,
) -> Result<Page<Erasure>, ListError> {
    let mut next: ListCursor = decode_cursor(cursor)?.unwrap_or_default();
    let mut items = Vec::new();
    if !next.is_past_jobs {
        items = next.jobs(store, tenant, limit).await?;
    }
    let room = limit.saturating_sub(items.len());
    let has_more = if !next.is_past_jobs || room == 0 {
        true
    } else {
        items.extend(next.reports(store, tenant, room).await?);
        next.after.is_some()
    };
    Ok(Page { items, cursor: has_more.then(|| encode_cursor(&next)) })
}

/// The running erasure of a tenant with this id.
pub async fn find_running(
    store: &dyn Store,
    tenant: &Tenant,
    id: &ErasureId,
) -> Result<Option<Erasure>, ListError> {
    let mut cursor = ListCursor::default();
    while !cursor.is_past_jobs {
        let jobs = cursor.jobs(store, tenant, JOBS_AT_ONCE).await?;
        if let Some(found) = jobs.into_iter().find(|job| job.id == *id) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

impl ListCursor {
    /// The next erasures that run, and have no report yet.
    async fn jobs(
        &mut self,
        store: &dyn Store,
        tenant: &Tenant,
        limit: usize,
    ) -> Result<Vec<Erasure>, ListError> {
        let first = || cursor_after(tenant, &ConversationId::new(RUNNING_PREFIX));
        let after = self.after.take().unwrap_or_else(first);
        let Page { items, cursor } = store.erasures(tenant, Some(&after), limit).await?;
        self.is_past_jobs = cursor.is_none();
        self.after = cursor;
        let mut jobs = Vec::new();
        for job in items {
            let report: Scoped<ErasureId> = Scoped::new(tenant, &job.id);
            if store.erasure(&report).await?.is_none() {
                self.earlier_jobs.insert(job.id.clone());
                jobs.push(job);
            }
        }
        Ok(jobs)
    }

    /// The next reports of erasures that were not shown while they ran.
    async fn reports(
        &mut self,
        store: &dyn Store,
        tenant: &Tenant,
        limit: usize,
    ) -> Result<Vec<Erasure>, ListError> {
        let page = store.erasures(tenant, self.after.as_deref(), limit).await?;
        let (reports, jobs): (Vec<_>, Vec<_>) =
            page.items.into_iter().partition(|erasure| erasure.running().is_none());
        // The jobs come after all reports.
        self.after = page.cursor.filter(|_| jobs.is_empty());
        Ok(reports.into_iter().filter(|report| !self.earlier_jobs.contains(&report.id)).collect())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::erasure::ErasureState;
    use crate::store::conformance::at;
    use crate::store::memory::Memory;

    fn tenant() -> Tenant {
        Tenant::default()
    }

    fn erasure(id: &str, subject: &str) -> Erasure {
        Erasure::new(ErasureId::new(id), subject.to_owned(), b"salt", at(0))
    }

    async fn begin(store: &dyn Store, id: &str, subject: &str) {
        let name = Erasure::running_name(&tenant(), subject);
        assert!(store.replace_erasure(&name, None, Some(&erasure(id, subject))).await.unwrap());
    }

    /// Writes the report, as long before the job goes as a test wants.
    async fn report(store: &dyn Store, id: &str, subject: &str) {
        let state = ErasureState::Done { ended_at: at(1) };
        let done = Erasure { version: 2, state, ..erasure(id, subject) };
        let name = Scoped::new(&tenant(), &done.id);
        assert!(store.replace_erasure(&name, None, Some(&done)).await.unwrap());
    }

    async fn remove_job(store: &dyn Store, subject: &str) {
        let name = Erasure::running_name(&tenant(), subject);
        assert!(store.replace_erasure(&name, Some(1), None).await.unwrap());
    }

    async fn page(
        store: &dyn Store,
        cursor: Option<String>,
        limit: usize,
    ) -> (Vec<String>, Option<String>) {
        let page = list(store, &tenant(), cursor.as_deref(), limit).await.unwrap();
        (page.items.into_iter().map(|it| it.id.to_string()).collect(), page.cursor)
    }

    /// The ids of the rest of a listing.
    async fn rest(store: &dyn Store, mut cursor: Option<String>, limit: usize) -> Vec<String> {
        let mut ids = Vec::new();
        while cursor.is_some() {
            let (more, next) = page(store, cursor, limit).await;
            ids.extend(more);
            cursor = next;
        }
        ids
    }

    /// Two reports and two jobs.
    async fn store() -> Arc<dyn Store> {
        let store: Arc<dyn Store> = Arc::new(Memory::default());
        report(&*store, "er_1", "ada").await;
        report(&*store, "er_2", "bob").await;
        begin(&*store, "er_3", "cy").await;
        begin(&*store, "er_4", "dan").await;
        store
    }

    #[tokio::test]
    async fn those_that_run_come_first_and_pages_of_any_size_have_each_once() {
        let store = store().await;
        for limit in 1..6 {
            let (mut ids, cursor) = page(&*store, None, limit).await;
            ids.extend(rest(&*store, cursor, limit).await);
            ids[..2].sort();
            assert_eq!(ids, ["er_3", "er_4", "er_1", "er_2"], "pages of {limit}");
        }
    }

    #[tokio::test]
    async fn one_that_ends_between_two_pages_is_not_shown_again() {
        let store = store().await;
        let (mut ids, cursor) = page(&*store, None, 3).await;
        for (id, subject) in [("er_3", "cy"), ("er_4", "dan")] {
            report(&*store, id, subject).await;
        }
        remove_job(&*store, "cy").await;
        ids.extend(rest(&*store, cursor, 3).await);
        ids.sort();
        assert_eq!(ids, ["er_1", "er_2", "er_3", "er_4"]);
    }

    #[tokio::test]
    async fn one_whose_report_is_there_before_its_job_is_gone_is_shown_once() {
        let store = store().await;
        report(&*store, "er_3", "cy").await;
        for limit in [1, 9] {
            let (mut ids, cursor) = page(&*store, None, limit).await;
            ids.extend(rest(&*store, cursor, limit).await);
            assert_eq!(ids, ["er_4", "er_1", "er_2", "er_3"], "pages of {limit}");
        }
    }

    #[tokio::test]
    async fn one_that_runs_is_found_beside_many_of_other_tenants() {
        let store = store().await;
        for n in 0..80 {
            let tenant = Tenant::parse(&format!("acme{n}")).unwrap();
            let name = Erasure::running_name(&tenant, "cy");
            let other = erasure(&format!("er_9{n}"), "cy");
            assert!(store.replace_erasure(&name, None, Some(&other)).await.unwrap());
        }
        let found = async |id: &str| find_running(&*store, &tenant(), &ErasureId::new(id)).await;
        assert_eq!(found("er_4").await.unwrap().unwrap().id, ErasureId::new("er_4"));
        assert_eq!(found("er_91").await, Ok(None));
        assert_eq!(found("er_1").await, Ok(None));
    }

    #[tokio::test]
    async fn a_cursor_of_another_tenant_or_listing_is_refused() {
        let store = store().await;
        let (_, cursor) = page(&*store, None, 1).await;
        let acme = Tenant::parse("acme").unwrap();
        let of_listing = cursor_after(&tenant(), &ConversationId::new("a"));
        for (tenant, cursor) in [(&acme, cursor.unwrap()), (&tenant(), of_listing)] {
            let refused = list(&*store, tenant, Some(&cursor), 9).await;
            assert_eq!(refused, Err(ListError::Cursor));
        }
    }
}
