//! Checks that each node gives back what it used: memory, threads and descriptors.

use crate::cluster::Cluster;
use crate::deadline::try_poll;
use crate::node::Resources;

/// What a node at rest may use beyond a node that was just started. Memory: the allocator returns
/// freed pages late, and parsed agents stay. Threads: those of blocking work live on for ten seconds,
/// and a few are kept. Descriptors: connections to peers, to Redis and of this harness; a node that waits
/// for replicas has up to 29 connections to each primary, each from its first use on.
const SLACK: Resources = Resources { memory_bytes: 128 << 20, threads: 16, descriptors: 128 };

/// What each node used when it had just been started.
pub(super) struct Baseline(Vec<Resources>);

impl Baseline {
    pub(super) fn of(cluster: &Cluster) -> Self {
        Self((0..cluster.clients().count()).map(|node| cluster.resources(node)).collect())
    }

    /// The nodes that use more than at their start and the slack, also some time after everything has
    /// come to rest.
    pub(super) async fn exceeded(&self, cluster: &Cluster) -> Vec<String> {
        let mut violations = Vec::new();
        for (node, before) in self.0.iter().enumerate() {
            let rested = async || is_within(*before, cluster.resources(node)).then_some(());
            if try_poll(rested).await.is_none() {
                let (name, now) = (cluster.name(node), cluster.resources(node));
                violations.push(format!("{name} does not come to rest: {before:?}, then {now:?}"));
            }
        }
        violations
    }
}

fn is_within(before: Resources, now: Resources) -> bool {
    now.memory_bytes <= before.memory_bytes + SLACK.memory_bytes
        && now.threads <= before.threads + SLACK.threads
        && now.descriptors <= before.descriptors + SLACK.descriptors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leak_of_any_resource_is_seen_and_the_slack_is_none() {
        let before = Resources { memory_bytes: 30 << 20, threads: 8, descriptors: 40 };
        let mut now = Resources { memory_bytes: 158 << 20, threads: 24, descriptors: 168 };
        assert!(is_within(before, now));
        for leak in [
            |now: &mut Resources| now.memory_bytes += 1,
            |now: &mut Resources| now.threads += 1,
            |now: &mut Resources| now.descriptors += 1,
        ] {
            let whole = now;
            leak(&mut now);
            assert!(!is_within(before, now), "{now:?}");
            now = whole;
        }
    }
}
