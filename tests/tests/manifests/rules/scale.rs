//! Scaling: scalers, budgets and spread constraints refer to the nodes, and several nodes can share
//! their volumes.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::rules::{Manifests, Mistakes};
use crate::workload::Workload;

pub(crate) fn rule(manifests: &Manifests<'_>, mistakes: &mut Mistakes) {
    for scaler in &manifests.objects.scalers {
        let Some(spec) = &scaler.spec else { continue };
        let target = &spec.scale_target_ref;
        let workload = manifests.workloads.iter().find(|workload| {
            (target.kind.as_str(), target.name.as_str()) == ("StatefulSet", workload.name)
        });
        mistakes.unless(workload.is_some(), || format!("nothing to scale is {}", target.name));
        let least = spec.min_replicas.unwrap_or(1);
        mistakes.unless(1 < least && least < spec.max_replicas, || {
            format!("{least} to {} nodes are no scale", spec.max_replicas)
        });
        if let Some(workload) = workload {
            mistakes.unless(workload.spec.replicas.is_none(), || {
                format!("{}: every apply sets back how many there are", workload.name)
            });
            check_replicated(manifests, workload, least, mistakes);
        }
    }
    let scaled = !manifests.objects.scalers.is_empty();
    for workload in manifests.workloads.iter().filter(|it| !(scaled && it.is_node())) {
        mistakes.unless(workload.spec.replicas == Some(1), || {
            format!("{}: its volume is of one pod only", workload.name)
        });
    }
}

/// Checks a workload with several pods.
fn check_replicated(
    manifests: &Manifests<'_>,
    workload: &Workload<'_>,
    least: i32,
    mistakes: &mut Mistakes,
) {
    let budgets = || manifests.objects.budgets.iter().filter_map(|budget| budget.spec.as_ref());
    let mine =
        budgets().find(|it| it.selector.as_ref().is_some_and(|it| workload.is_selected_by(it)));
    let most = mine.and_then(|budget| budget.max_unavailable.as_ref());
    mistakes
        .unless(matches!(most, Some(IntOrString::Int(most)) if (1..least).contains(most)), || {
            format!("no budget leaves some of {least} nodes and lets one go")
        });
    let spread = || workload.pod.topology_spread_constraints.iter().flatten();
    let apart = spread().any(|it| it.topology_key == "kubernetes.io/hostname");
    let selects = |selector: Option<&_>| selector.is_some_and(|it| workload.is_selected_by(it));
    mistakes.unless(apart && spread().all(|it| selects(it.label_selector.as_ref())), || {
        "nodes are not spread over machines".to_owned()
    });
    for volume in workload.pod.volumes.iter().flatten() {
        let Some(wanted) = &volume.persistent_volume_claim else { continue };
        let mut claims = manifests.objects.claims.iter();
        let claim = claims.find(|it| it.metadata.name.as_ref() == Some(&wanted.claim_name));
        let modes = claim.and_then(|claim| claim.spec.as_ref()?.access_modes.as_ref());
        mistakes.unless(modes.is_some_and(|it| it.iter().any(|it| it == "ReadWriteMany")), || {
            format!("several nodes cannot share {}", wanted.claim_name)
        });
    }
}
