//! How many nodes: what scales, protects and spreads them means them, and they share what they
//! must.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::rules::{Mistakes, Scene};
use crate::workload::Workload;

pub(crate) fn rule(scene: &Scene<'_>, mistakes: &mut Mistakes) {
    for scaler in &scene.objects.scalers {
        let Some(spec) = &scaler.spec else { continue };
        let target = &spec.scale_target_ref;
        let workload = scene.workloads.iter().find(|workload| {
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
            many(scene, workload, least, mistakes);
        }
    }
    let scaled = !scene.objects.scalers.is_empty();
    for workload in scene.workloads.iter().filter(|it| !(scaled && it.is_node())) {
        mistakes.unless(workload.spec.replicas == Some(1), || {
            format!("{}: its volume is of one pod only", workload.name)
        });
    }
}

/// Nodes of which there are several.
fn many(scene: &Scene<'_>, workload: &Workload<'_>, least: i32, mistakes: &mut Mistakes) {
    let budgets = || scene.objects.budgets.iter().filter_map(|budget| budget.spec.as_ref());
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
        let mut claims = scene.objects.claims.iter();
        let claim = claims.find(|it| it.metadata.name.as_ref() == Some(&wanted.claim_name));
        let modes = claim.and_then(|claim| claim.spec.as_ref()?.access_modes.as_ref());
        mistakes.unless(modes.is_some_and(|it| it.iter().any(|it| it == "ReadWriteMany")), || {
            format!("several nodes cannot share {}", wanted.claim_name)
        });
    }
}
