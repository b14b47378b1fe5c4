//! The nodes: their flags parse, and agree with their ports, probes, volumes and termination time.

use std::path::Path;
use std::time::Duration;

use abide::access::document::AuthDocument;
use abide::config::{Config, StoreUrl};
use abide_actors::agent;
use abide_actors::tools::Extensions;
use k8s_openapi::api::core::v1::Probe;

use crate::rules::{Manifests, Mistakes};
use crate::workload::Workload;

/// The shutdown time after `--drain-timeout`: cut-off work, the membership, open connections, and a
/// margin.
const SHUTDOWN_MARGIN: Duration = Duration::from_secs(10);
/// The least time-out of a readiness probe: the store may take two seconds to answer `/readyz`.
const MIN_PROBE_TIMEOUT_SECONDS: i32 = 3;

pub(crate) fn rule(manifests: &Manifests<'_>, mistakes: &mut Mistakes) {
    for workload in manifests.workloads.iter().filter(|it| it.is_node()) {
        match workload.parse_config(manifests.secrets) {
            Ok(config) => {
                ports(workload, &config, mistakes);
                cluster(manifests, workload, &config, mistakes);
                files(manifests, workload, &config, mistakes);
                ends(workload, &config, mistakes);
            }
            Err(why) => mistakes.unless(false, || why),
        }
        probes(workload, mistakes);
    }
}

fn ports(workload: &Workload<'_>, config: &Config, mistakes: &mut Mistakes) {
    let shared = matches!(config.store, StoreUrl::Redis(_));
    let listens = [
        ("public", Some(config.listen)),
        ("admin", config.admin_listen.tcp()),
        ("cluster", shared.then_some(config.cluster_listen)),
    ];
    for (name, address) in listens {
        let port = address.map(|address| i32::from(address.port()));
        mistakes.unless(workload.port(name) == port, || {
            format!("the program listens on {port:?}, the port {name} is {:?}", workload.port(name))
        });
        mistakes.unless(address.is_none_or(|it| it.ip().is_unspecified()), || {
            format!("nobody outside the pod can reach {name}")
        });
    }
}

fn cluster(
    manifests: &Manifests<'_>,
    workload: &Workload<'_>,
    config: &Config,
    mistakes: &mut Mistakes,
) {
    if !matches!(config.store, StoreUrl::Redis(_)) {
        return;
    }
    let environment = workload.environment(manifests.secrets).unwrap_or_default();
    let secret = environment.get("ABIDE_CLUSTER_SECRET");
    mistakes.unless(secret.is_some_and(|it| it.len() >= 32), || "no cluster secret".to_owned());
    let dialled = format!("10.1.2.3:{}", config.cluster_listen.port());
    mistakes.unless(config.cluster_advertise.as_ref() == Some(&dialled), || {
        format!("others dial {:?}, not {dialled}", config.cluster_advertise)
    });
    mistakes.unless(config.node.as_deref() == Some("abide-0"), || "no node's name".to_owned());
}

/// Checks that its files are on volumes, and that its agents are valid.
fn files(
    manifests: &Manifests<'_>,
    workload: &Workload<'_>,
    config: &Config,
    mistakes: &mut Mistakes,
) {
    let mounts = || workload.container.volume_mounts.iter().flatten();
    let embedded = match &config.store {
        StoreUrl::Embedded(dir) => Some(dir.as_path()),
        StoreUrl::Memory | StoreUrl::Redis(_) => None,
    };
    for dir in [embedded, config.workspaces.as_deref()].into_iter().flatten() {
        let is_on_volume =
            mounts().any(|it| dir.starts_with(&it.mount_path) && it.read_only.is_none());
        mistakes.unless(is_on_volume, || format!("{} is on no volume", dir.display()));
    }
    mistakes.unless(mounts().any(|it| it.mount_path == "/tmp"), || {
        "commands of agents have nowhere to write".to_owned()
    });
    let auth = config.auth.as_deref().unwrap_or(Path::new("/"));
    let mount = mounts().find(|it| auth.parent() == Some(Path::new(&it.mount_path)));
    let volumes = || workload.pod.volumes.iter().flatten();
    let volume = mount.and_then(|mount| volumes().find(|it| it.name == mount.name));
    let secret = volume.and_then(|it| it.secret.as_ref()?.secret_name.as_deref());
    let name = auth.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let file = secret.and_then(|secret| manifests.secrets.get(secret)?.get(name));
    let knows_somebody = file.is_some_and(|text| {
        let document = AuthDocument::parse(text, &mut |_| Err(std::io::ErrorKind::NotFound.into()));
        document.is_ok_and(|document| !document.keys.is_empty())
    });
    mistakes.unless(knows_somebody, || format!("{} lets nobody in", auth.display()));
    let agents = config.agents.as_deref().unwrap_or(Path::new("/"));
    let mount = mounts().find(|it| Path::new(&it.mount_path) == agents);
    let volume = mount.and_then(|mount| volumes().find(|it| it.name == mount.name));
    let config = volume.and_then(|volume| volume.config_map.as_ref());
    let mut configs = manifests.objects.configs.iter();
    let found = config.and_then(|config| {
        configs.find(|it| it.metadata.name.as_deref() == Some(config.name.as_str()))
    });
    let Some(found) = found else {
        return mistakes
            .unless(false, || format!("{} is not the agents' ConfigMap", agents.display()));
    };
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in found.data.iter().flatten() {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let loaded = agent::load_dir(dir.path(), &Extensions::new());
    let right = loaded.as_ref().is_ok_and(|loaded| !loaded.is_empty());
    mistakes.unless(right, || format!("the agents are invalid: {:?}", loaded.err()));
}

fn ends(workload: &Workload<'_>, config: &Config, mistakes: &mut Mistakes) {
    let lifecycle = workload.container.lifecycle.as_ref();
    let before = lifecycle.and_then(|it| it.pre_stop.as_ref()?.sleep.as_ref());
    let before = before.map_or(0, |sleep| sleep.seconds);
    mistakes.unless(before > 0, || "gateways do not learn in time that a pod ends".to_owned());
    let before = Duration::from_secs(u64::try_from(before).unwrap_or_default());
    let needed = before + config.drain_timeout + SHUTDOWN_MARGIN;
    let given = workload.pod.termination_grace_period_seconds.unwrap_or(30);
    let given = Duration::from_secs(u64::try_from(given).unwrap_or_default());
    mistakes
        .unless(given >= needed, || format!("a pod has {given:?} to end, and needs {needed:?}"));
}

fn probes(workload: &Workload<'_>, mistakes: &mut Mistakes) {
    let container = workload.container;
    let probes = [
        ("startup", &container.startup_probe, "/healthz"),
        ("liveness", &container.liveness_probe, "/healthz"),
        ("readiness", &container.readiness_probe, "/readyz"),
    ];
    for (name, probe, path) in probes {
        let asks = |probe: &Probe| {
            let get = probe.http_get.as_ref();
            get.is_some_and(|get| {
                get.path.as_deref() == Some(path) && workload.port_name(&get.port) == Some("admin")
            })
        };
        mistakes.unless(probe.as_ref().is_some_and(asks), || {
            format!("the {name} probe does not ask {path} of the operators' port")
        });
    }
    let timeout = container.readiness_probe.as_ref().and_then(|it| it.timeout_seconds);
    mistakes.unless(timeout.is_some_and(|it| it >= MIN_PROBE_TIMEOUT_SECONDS), || {
        "the readiness probe gives up before the store may answer".to_owned()
    });
}
