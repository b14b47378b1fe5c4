//! Services: each leads to pods that are there, on a port that they have, and the operators' port
//! is in no other than its own.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::rules::{Mistakes, Scene};

/// The Services of the nodes, and the only port that each has.
const OF_NODES: [(&str, &str); 3] =
    [("abide", "public"), ("abide-admin", "admin"), ("abide-nodes", "cluster")];

pub(crate) fn rule(scene: &Scene<'_>, mistakes: &mut Mistakes) {
    for service in &scene.objects.services {
        led(scene, service, mistakes);
    }
    for (name, port) in OF_NODES {
        let found = scene.objects.services.iter().find(|it| named(it, name));
        mistakes.unless(found.is_some(), || format!("there is no Service {name}"));
        let spec = found.and_then(|service| service.spec.as_ref());
        let others = spec.into_iter().flat_map(|it| it.ports.iter().flatten());
        for other in others.filter(|other| other.name.as_deref() != Some(port)) {
            mistakes.unless(false, || format!("Service {name} has another port, {}", other.port));
        }
        let kind = spec.and_then(|spec| spec.type_.as_deref()).unwrap_or("ClusterIP");
        mistakes.unless(kind == "ClusterIP", || format!("Service {name} is open to the outside"));
        let early = spec.is_some_and(|spec| spec.publish_not_ready_addresses == Some(true));
        mistakes.unless(early != (port == "public"), || {
            format!("Service {name}: who is not ready is found by nodes and operators only")
        });
    }
    for workload in &scene.workloads {
        let governing = workload.spec.service_name.as_deref().unwrap_or_default();
        let service = scene.objects.services.iter().find(|it| named(it, governing));
        let spec = service.and_then(|service| service.spec.as_ref());
        let selector = spec.and_then(|spec| spec.selector.as_ref());
        let headless = spec.is_some_and(|spec| spec.cluster_ip.as_deref() == Some("None"));
        mistakes.unless(headless && selector.is_some_and(|it| workload.has(it)), || {
            format!("{}: {governing} is not a headless Service of it", workload.name)
        });
    }
}

/// Where it leads to, and on which ports.
fn led(scene: &Scene<'_>, service: &Service, mistakes: &mut Mistakes) {
    let name = service.metadata.name.as_deref().unwrap_or_default();
    let Some(spec) = &service.spec else {
        return mistakes.unless(false, || format!("{name}: empty"));
    };
    let selector = spec.selector.clone().unwrap_or_default();
    let mut selected = scene.workloads.iter().filter(|workload| workload.has(&selector));
    let (Some(workload), None) = (selected.next(), selected.next()) else {
        return mistakes
            .unless(false, || format!("Service {name} does not select one kind of pod"));
    };
    for port in spec.ports.iter().flatten() {
        let own = IntOrString::Int(port.port);
        let target = port.target_port.as_ref().unwrap_or(&own);
        mistakes.unless(workload.names(target) == port.name.as_deref(), || {
            format!("Service {name}: {} is no port {:?} of its pods", port.port, port.name)
        });
    }
}

fn named(service: &Service, name: &str) -> bool {
    service.metadata.name.as_deref() == Some(name)
}
