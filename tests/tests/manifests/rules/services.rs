//! Services: each selects existing pods and ports, and the operators' port is only in its own
//! Service.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::rules::{Manifests, Mistakes};

/// The Services of the nodes, each with its only port.
const NODE_SERVICES: [(&str, &str); 3] =
    [("abide", "public"), ("abide-admin", "admin"), ("abide-nodes", "cluster")];

pub(crate) fn rule(manifests: &Manifests<'_>, mistakes: &mut Mistakes) {
    for service in &manifests.objects.services {
        check_target(manifests, service, mistakes);
    }
    for (name, port) in NODE_SERVICES {
        let found = manifests.objects.services.iter().find(|it| named(it, name));
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
            format!("Service {name}: only nodes and operators may find pods that are not ready")
        });
    }
    for workload in &manifests.workloads {
        let governing = workload.spec.service_name.as_deref().unwrap_or_default();
        let service = manifests.objects.services.iter().find(|it| named(it, governing));
        let spec = service.and_then(|service| service.spec.as_ref());
        let selector = spec.and_then(|spec| spec.selector.as_ref());
        let headless = spec.is_some_and(|spec| spec.cluster_ip.as_deref() == Some("None"));
        mistakes.unless(headless && selector.is_some_and(|it| workload.has(it)), || {
            format!("{}: {governing} is not a headless Service of it", workload.name)
        });
    }
}

/// Checks the pods and ports of a Service.
fn check_target(manifests: &Manifests<'_>, service: &Service, mistakes: &mut Mistakes) {
    let name = service.metadata.name.as_deref().unwrap_or_default();
    let Some(spec) = &service.spec else {
        return mistakes.unless(false, || format!("{name}: empty"));
    };
    let selector = spec.selector.clone().unwrap_or_default();
    let mut selected = manifests.workloads.iter().filter(|workload| workload.has(&selector));
    let (Some(workload), None) = (selected.next(), selected.next()) else {
        return mistakes
            .unless(false, || format!("Service {name} does not select one kind of pod"));
    };
    for port in spec.ports.iter().flatten() {
        let own = IntOrString::Int(port.port);
        let target = port.target_port.as_ref().unwrap_or(&own);
        mistakes.unless(workload.port_name(target) == port.name.as_deref(), || {
            format!("Service {name}: {} is no port {:?} of its pods", port.port, port.name)
        });
    }
}

fn named(service: &Service, name: &str) -> bool {
    service.metadata.name.as_deref() == Some(name)
}
