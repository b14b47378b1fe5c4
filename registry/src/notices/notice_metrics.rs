//! Counts what is owed, for the metrics.

use std::time::Duration;

use super::CourierDeps;

/// How often it is counted: as often as metrics are scraped.
const COUNT_INTERVAL: Duration = Duration::from_secs(15);

/// Runs until it is dropped. Each node counts its own partitions, so that the sum is right.
pub(crate) async fn run(deps: CourierDeps) {
    let mut was_empty = false;
    loop {
        let is_empty = deps.catalog.is_empty();
        if !(is_empty && was_empty) {
            count(&deps, is_empty).await;
        }
        was_empty = is_empty;
        tokio::time::sleep(COUNT_INTERVAL).await;
    }
}

async fn count(deps: &CourierDeps, is_empty: bool) {
    let view = deps.cluster.view();
    let counts =
        if is_empty { Ok(Default::default()) } else { deps.store.owed_in(&view.partitions).await };
    // A store that is away is reported elsewhere.
    let Ok(counts) = counts else { return };
    let now = deps.clock.now();
    let age = counts.oldest.map_or(0.0, |at| now.duration_since(at).as_secs_f64().max(0.0));
    metrics::gauge!("abide_notices_owed").set(counts.owed as f64);
    metrics::gauge!("abide_oldest_notice_seconds").set(age);
    let failing =
        deps.catalog.all().iter().filter(|it| it.is_active() && it.is_failing(now)).count();
    metrics::gauge!("abide_webhooks_failing").set(failing as f64);
}
