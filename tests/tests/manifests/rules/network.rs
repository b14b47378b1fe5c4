//! NetworkPolicies: everything is denied by default, each port has its own callers, and all
//! required traffic is allowed.

use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::rules::{Manifests, Mistakes};
use crate::workload::Workload;

/// The callers of each port: namespaces with this label, or the nodes.
const CALLERS: [(&str, Caller); 4] = [
    ("public", Caller::Namespaces("abide-public")),
    ("admin", Caller::Namespaces("abide-operators")),
    ("cluster", Caller::Nodes),
    ("redis", Caller::Nodes),
];

#[derive(Clone, Copy)]
enum Caller {
    Namespaces(&'static str),
    Nodes,
}

pub(crate) fn rule(manifests: &Manifests<'_>, mistakes: &mut Mistakes) {
    let denies = |spec: &NetworkPolicySpec| {
        let everyone = spec.pod_selector.as_ref().is_none_or(|it| it.match_labels.is_none());
        let both = spec.policy_types.as_ref().is_some_and(|types| types.len() == 2);
        everyone && both && spec.ingress.is_none() && spec.egress.is_none()
    };
    mistakes.unless(specs(manifests).any(|(_, spec)| denies(spec)), || {
        "no policy denies what the others do not allow".to_owned()
    });
    for (name, spec) in specs(manifests) {
        let to: Vec<_> = manifests.workloads.iter().filter(|it| selected(spec, it)).collect();
        mistakes.unless(!to.is_empty(), || format!("NetworkPolicy {name} is for no pod"));
        for workload in to {
            for rule in spec.ingress.iter().flatten() {
                let ports = rule.ports.as_deref().unwrap_or_default();
                check_callers(manifests, (name, workload), ports, rule.from.as_deref(), mistakes);
            }
        }
    }
    for workload in &manifests.workloads {
        check_reachable(manifests, workload, mistakes);
    }
    if let Some(node) = manifests.workloads.iter().find(|it| it.is_node()) {
        let out = |port, protocol| goes_out(manifests, node, port, protocol);
        let needs = [(53, "UDP"), (53, "TCP"), (443, "TCP")];
        for (port, protocol) in needs.into_iter().filter(|(port, protocol)| !out(*port, protocol)) {
            mistakes.unless(false, || format!("nodes cannot go out by {protocol} to {port}"));
        }
    }
}

/// Checks that a rule allows only the callers of each of its ports.
fn check_callers(
    manifests: &Manifests<'_>,
    (name, workload): (&str, &Workload<'_>),
    ports: &[NetworkPolicyPort],
    from: Option<&[NetworkPolicyPeer]>,
    mistakes: &mut Mistakes,
) {
    mistakes.unless(!ports.is_empty(), || format!("NetworkPolicy {name} opens every port"));
    for port in ports {
        let meant = port.port.as_ref().and_then(|port| workload.port_name(port));
        let caller = meant.and_then(|meant| CALLERS.iter().find(|(name, _)| *name == meant));
        let Some((port, caller)) = caller else {
            mistakes
                .unless(false, || format!("NetworkPolicy {name} opens a port that is not there"));
            continue;
        };
        let from = from.unwrap_or_default();
        let right = from.iter().all(|peer| is_caller(manifests, peer, *caller));
        mistakes.unless(!from.is_empty() && right, || {
            format!("NetworkPolicy {name} lets others in than those who may call {port}")
        });
    }
}

fn is_caller(manifests: &Manifests<'_>, peer: &NetworkPolicyPeer, caller: Caller) -> bool {
    match (caller, &peer.namespace_selector, &peer.pod_selector, &peer.ip_block) {
        (Caller::Namespaces(label), Some(selector), None, None) => selector
            .match_labels
            .iter()
            .flatten()
            .any(|(key, value)| key == label && value == "true"),
        (Caller::Nodes, None, Some(selector), None) => manifests
            .workloads
            .iter()
            .all(|workload| workload.is_selected_by(selector) == workload.is_node()),
        _ => false,
    }
}

/// Checks that every port of a pod is reachable, and that nodes can connect to it if they must.
fn check_reachable(manifests: &Manifests<'_>, workload: &Workload<'_>, mistakes: &mut Mistakes) {
    let node = manifests.workloads.iter().find(|it| it.is_node());
    for port in workload.container.ports.iter().flatten().filter_map(|port| port.name.as_deref()) {
        let named = |ports: &Option<Vec<NetworkPolicyPort>>| {
            let mut ports = ports.iter().flatten().filter_map(|port| port.port.as_ref());
            ports.any(|meant| workload.port_name(meant) == Some(port))
        };
        let mut into = specs(manifests).filter(|(_, spec)| selected(spec, workload));
        let enters = into.any(|(_, spec)| spec.ingress.iter().flatten().any(|it| named(&it.ports)));
        mistakes.unless(enters, || format!("nobody can reach {port} of {}", workload.name));
        let by_nodes =
            CALLERS.iter().any(|(name, it)| *name == port && matches!(it, Caller::Nodes));
        let aims = |peer: &NetworkPolicyPeer| {
            peer.pod_selector.as_ref().is_some_and(|it| workload.is_selected_by(it))
        };
        let mut out =
            specs(manifests).filter(|(_, spec)| node.is_some_and(|it| selected(spec, it)));
        let leaves = out.any(|(_, spec)| {
            let mut rules = spec.egress.iter().flatten();
            rules.any(|it| named(&it.ports) && it.to.iter().flatten().any(aims))
        });
        mistakes.unless(!by_nodes || leaves, || {
            format!("nodes cannot go out to {port} of {}", workload.name)
        });
    }
}

fn goes_out(manifests: &Manifests<'_>, node: &Workload<'_>, port: i32, protocol: &str) -> bool {
    let mut rules = specs(manifests)
        .filter(|(_, spec)| selected(spec, node))
        .flat_map(|(_, spec)| spec.egress.iter().flatten());
    rules.any(|rule| {
        rule.ports.iter().flatten().any(|it| {
            it.port == Some(IntOrString::Int(port)) && it.protocol.as_deref() == Some(protocol)
        })
    })
}

fn specs<'a>(
    manifests: &'a Manifests<'_>,
) -> impl Iterator<Item = (&'a str, &'a NetworkPolicySpec)> {
    let named =
        |policy: &'a NetworkPolicy| Some((policy.metadata.name.as_deref()?, policy.spec.as_ref()?));
    manifests.objects.policies.iter().filter_map(named)
}

fn selected(spec: &NetworkPolicySpec, workload: &Workload<'_>) -> bool {
    spec.pod_selector.as_ref().is_none_or(|selector| workload.is_selected_by(selector))
}
