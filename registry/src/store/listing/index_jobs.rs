//! The agents whose conversations are to be indexed by keys that their definitions have added.

use abide_conversation::{AgentName, Scoped, Tenant, Timestamp};
use serde::{Deserialize, Serialize};

/// How many agents of a tenant wait at a time. Each list by metadata reads all.
const MAX_OF_TENANT: usize = 256;

/// An agent whose conversations are indexed anew: by what its newest definition indexes by then. It
/// names no keys, which an encrypted store shows nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexJob {
    pub agent: Scoped<AgentName>,
    /// When the definition was put that adds keys.
    pub asked_at: Timestamp,
    /// Where the next page of its conversations begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// The number of conversations so far.
    pub conversations: u64,
}

/// All of them, the one that was asked for first at the front.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexJobs {
    /// Raised by every change; 0 if there never was one.
    pub version: u64,
    pub jobs: Vec<IndexJob>,
}

impl IndexJobs {
    /// These and one for the agent, which begins anew if there is one; `None` if the tenant has too
    /// many.
    #[must_use]
    pub fn with(&self, agent: &Scoped<AgentName>, now: Timestamp) -> Option<Self> {
        let mut jobs = self.jobs.clone();
        jobs.retain(|job| job.agent != *agent);
        let tenant = agent.tenant();
        if jobs.iter().filter(|job| job.agent.is_of(&tenant)).count() >= MAX_OF_TENANT {
            return None;
        }
        let agent = agent.clone();
        jobs.push(IndexJob { agent, asked_at: now, cursor: None, conversations: 0 });
        Some(self.changed(jobs))
    }

    /// These after a step of a job, which goes on as `next` or is done; `None` if it is not there
    /// any more as it was.
    #[must_use]
    pub fn after_step(&self, job: &IndexJob, next: Option<&IndexJob>) -> Option<Self> {
        let at = self.jobs.iter().position(|other| other == job)?;
        let mut jobs = self.jobs.clone();
        jobs.splice(at..=at, next.cloned());
        Some(self.changed(jobs))
    }

    /// Whether conversations of this agent of the tenant, or of any, are not indexed yet by all
    /// keys.
    pub fn concern(&self, tenant: &Tenant, agent: Option<&AgentName>) -> bool {
        let is_meant = |name: AgentName| agent.is_none_or(|agent| *agent == name);
        self.jobs.iter().any(|job| job.agent.is_of(tenant) && is_meant(job.agent.local()))
    }

    fn changed(&self, jobs: Vec<IndexJob>) -> Self {
        Self { version: self.version.saturating_add(1), jobs }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn agent(name: &str) -> Scoped<AgentName> {
        Scoped::parse(name).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_job_that_is_asked_for_anew_begins_anew_and_forgets_a_step_of_the_one_before() {
        let first = IndexJobs::default().with(&agent("a"), at(1)).unwrap();
        let job = first.jobs[0].clone();
        let further = IndexJob { cursor: Some("x".to_owned()), conversations: 5, ..job.clone() };
        let stepped = first.after_step(&job, Some(&further)).unwrap();
        assert_eq!(stepped.jobs, std::slice::from_ref(&further));
        let again = stepped.with(&agent("a"), at(2)).unwrap();
        assert_eq!((again.jobs.len(), again.jobs[0].conversations), (1, 0));
        assert_eq!(again.after_step(&further, None), None);
        let done = stepped.after_step(&further, None).unwrap();
        assert_eq!((done.version, done.jobs.len()), (3, 0));
    }

    #[test]
    fn a_tenant_with_many_jobs_keeps_nobody_else_from_any() {
        let mut jobs = IndexJobs::default();
        for number in 0..MAX_OF_TENANT {
            jobs = jobs.with(&agent(&format!("acme/a{number}")), at(1)).unwrap();
        }
        assert_eq!(jobs.with(&agent("acme/b"), at(1)), None);
        assert!(jobs.with(&agent("acme/a7"), at(2)).is_some());
        assert!(jobs.with(&agent("b"), at(1)).is_some());
        let (acme, name) = (Tenant::parse("acme").unwrap(), |name: &str| AgentName::new(name));
        assert!(jobs.concern(&acme, None) && jobs.concern(&acme, Some(&name("a7"))));
        assert!(!jobs.concern(&acme, Some(&name("b"))) && !jobs.concern(&Tenant::default(), None));
    }
}
