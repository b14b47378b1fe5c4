//! Whether the servers still keep the durability that the store was opened with.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::RedisResult;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::dial::ServerConnection;
use super::durability::Durability;
use super::opening::{self, OpenError};
use super::server_info::ServerInfo;
use super::url::{Host, RedisUrl};

/// How long a change of the servers' settings may go unnoticed.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// How often a durability that was lost is looked for.
const RECHECK_INTERVAL: Duration = Duration::from_millis(200);
/// How long all primaries together may take: to find them, to connect to each, and to ask.
const CHECK_TIMEOUT: Duration = Duration::from_secs(6);

/// The verdict on the servers: every new connection that carries durable writes adds to it, and a
/// task that looks every few seconds.
pub(in crate::store::redis) struct DurabilityWatch {
    durability: Durability,
    verdict: Mutex<Verdict>,
    refused: Notify,
}

#[derive(Default)]
struct Verdict {
    /// Why durable writes are refused.
    refusal: Option<String>,
    /// Which replicas are missing. It refuses nothing, because each write waits for its own.
    missing: Option<String>,
    /// Counts the refusals, so that a check that began before the last one does not end it.
    refusals: u64,
}

impl DurabilityWatch {
    pub(in crate::store::redis) fn new(durability: Durability) -> Self {
        Self { durability, verdict: Mutex::default(), refused: Notify::new() }
    }

    /// Refuses, with the reason, while a server cannot keep the durability of a write.
    pub(super) fn require(&self) -> Result<(), String> {
        self.verdict().refusal.clone().map_or(Ok(()), Err)
    }

    /// [`Self::require`], which also misses replicas.
    pub(in crate::store::redis) fn require_all(&self) -> Result<(), String> {
        let verdict = self.verdict();
        verdict.refusal.as_ref().or(verdict.missing.as_ref()).cloned().map_or(Ok(()), Err)
    }

    /// Checks a server before a connection to it is used. Returns why it must carry no durable
    /// writes.
    pub(super) async fn check_server(
        &self,
        host: &Host,
        server: &mut ServerConnection,
    ) -> RedisResult<Option<String>> {
        let info = ServerInfo::read(server).await?;
        let refusal = info.require_settings(self.durability).err();
        let refusal = refusal.map(|reason| self.describe(host, reason));
        if let Some(reason) = &refusal {
            self.refuse(reason);
        }
        Ok(refusal)
    }

    /// Checks every few seconds, until it is dropped.
    pub(in crate::store::redis) async fn watch(self: Arc<Self>, url: Arc<RedisUrl>) {
        loop {
            let is_sound = self.require_all().is_ok();
            let pause = if is_sound { CHECK_INTERVAL } else { RECHECK_INTERVAL };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.refused.notified(), if is_sound => continue,
            }
            let refusals = self.verdict().refusals;
            // Servers that are away refuse by themselves, and are checked when they are back.
            let Ok(Ok(survey)) = timeout(CHECK_TIMEOUT, self.survey(&url)).await else { continue };
            match survey.refusal {
                Some(reason) => self.refuse(&reason),
                None if survey.is_whole => self.accept(refusals),
                None => {}
            }
            self.note_missing(survey.missing);
        }
    }

    async fn survey(&self, url: &RedisUrl) -> RedisResult<Survey> {
        let mut survey = Survey { refusal: None, missing: None, is_whole: true };
        let primaries = opening::primaries(url).await?;
        let count = primaries.len();
        let mut missing = Vec::new();
        for (host, primary) in primaries {
            let info = match primary {
                Ok(mut primary) => ServerInfo::read(&mut primary).await,
                Err(error) => Err(error),
            };
            let Ok(info) = info else {
                survey.is_whole = false;
                continue;
            };
            if let Err(reason) = info.require_settings(self.durability) {
                survey.refusal = Some(self.describe(&host, reason));
            }
            if let Err(reason) = info.require_replicas(self.durability) {
                missing.push(self.describe(&host, reason));
            }
        }
        // The primaries of a cluster that have their replicas go on.
        survey.missing = missing.pop().filter(|_| missing.len() + 1 == count);
        Ok(survey)
    }

    fn describe(&self, host: &Host, reason: String) -> String {
        let (server, durability) = (host.to_string(), self.durability);
        OpenError::Promise { server, durability, reason }.to_string()
    }

    fn refuse(&self, reason: &str) {
        let mut verdict = self.verdict();
        verdict.refusals += 1;
        if verdict.refusal.as_deref() != Some(reason) {
            tracing::error!(why = reason, "durability lost: writes are refused");
            verdict.refusal = Some(reason.to_owned());
            self.refused.notify_one();
        }
    }

    /// Accepts writes again, unless they were refused since `refusals` was read.
    fn accept(&self, refusals: u64) {
        let mut verdict = self.verdict();
        if verdict.refusals == refusals && verdict.refusal.take().is_some() {
            tracing::info!("durability restored: writes are accepted");
        }
    }

    fn note_missing(&self, missing: Option<String>) {
        let mut verdict = self.verdict();
        if let (None, Some(reason)) = (&verdict.missing, &missing) {
            tracing::error!(why = reason, "replicas missing: writes fail");
        }
        verdict.missing = missing;
    }

    fn verdict(&self) -> MutexGuard<'_, Verdict> {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the primaries report.
struct Survey {
    /// Why one of them cannot keep the durability.
    refusal: Option<String>,
    /// Which replicas are missing, if no primary has enough.
    missing: Option<String>,
    /// Whether all of them answered.
    is_whole: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_began_before_the_last_refusal_does_not_end_it() {
        let watch = DurabilityWatch::new(Durability::Fsync);
        assert_eq!(watch.require(), Ok(()));
        watch.refuse("first");
        let began = watch.verdict().refusals;
        watch.refuse("second");
        watch.accept(began);
        assert_eq!(watch.require(), Err("second".to_owned()));
        let began = watch.verdict().refusals;
        watch.accept(began);
        assert_eq!(watch.require(), Ok(()));
    }

    #[test]
    fn missing_replicas_are_missed_and_refuse_no_write() {
        let watch = DurabilityWatch::new(Durability::Fsync);
        watch.note_missing(Some("a replica".to_owned()));
        assert_eq!((watch.require(), watch.require_all()), (Ok(()), Err("a replica".to_owned())));
        watch.refuse("appendonly");
        assert_eq!(watch.require_all(), Err("appendonly".to_owned()));
        watch.note_missing(None);
        let refusals = watch.verdict().refusals;
        watch.accept(refusals);
        assert_eq!(watch.require_all(), Ok(()));
    }
}
