//! Every pod has minimal rights, states its resources, and is matched by its own selector.

use crate::rules::{Manifests, Mistakes};
use crate::workload::Workload;

pub(crate) fn rule(manifests: &Manifests<'_>, mistakes: &mut Mistakes) {
    mistakes.unless(manifests.workloads.iter().filter(|it| it.is_node()).count() == 1, || {
        "there is not one StatefulSet of nodes".to_owned()
    });
    for workload in &manifests.workloads {
        let name = workload.name;
        mistakes.unless(workload.is_selected_by(&workload.spec.selector), || {
            format!("{name}: its selector does not select its own pods")
        });
        let tag = workload.container.image.as_deref().and_then(|image| image.split_once(':'));
        mistakes.unless(tag.is_some_and(|(_, tag)| tag != "latest"), || {
            format!("{name}: its image has no version")
        });
        check_confinement(workload, mistakes);
        let resources = workload.container.resources.as_ref();
        let requests = resources.and_then(|it| it.requests.as_ref());
        let limits = resources.and_then(|it| it.limits.as_ref());
        let asks = requests.is_some_and(|it| it.contains_key("cpu") && it.contains_key("memory"));
        mistakes.unless(asks && limits.is_some_and(|it| it.contains_key("memory")), || {
            format!("{name}: does not state its requests, or not the most memory that it may take")
        });
    }
    for namespace in &manifests.objects.namespaces {
        let labels = namespace.metadata.labels.as_ref();
        let level = labels.and_then(|it| it.get("pod-security.kubernetes.io/enforce"));
        mistakes.unless(level.is_some_and(|level| level == "restricted"), || {
            "the namespace lets in pods that are not restricted".to_owned()
        });
    }
}

fn check_confinement(workload: &Workload<'_>, mistakes: &mut Mistakes) {
    let name = workload.name;
    let pod = workload.pod.security_context.as_ref();
    let own = workload.container.security_context.as_ref();
    let profile = pod.and_then(|pod| pod.seccomp_profile.as_ref());
    let dropped = own.and_then(|own| own.capabilities.as_ref()?.drop.as_ref());
    let user = pod.and_then(|pod| pod.run_as_user);
    let claims = [
        (pod.is_some_and(|pod| pod.run_as_non_root == Some(true)), "may run as root"),
        (user.is_some_and(|user| user > 0), "has no user of its own"),
        (pod.is_some_and(|pod| pod.fs_group == user), "cannot write to its volumes"),
        (profile.is_some_and(|it| it.type_ == "RuntimeDefault"), "has no seccomp profile"),
        (own.is_some_and(|own| own.read_only_root_filesystem == Some(true)), "writes to its root"),
        (own.is_some_and(|own| own.allow_privilege_escalation == Some(false)), "may gain rights"),
        (dropped.is_some_and(|it| it.iter().any(|it| it == "ALL")), "keeps capabilities"),
        (workload.pod.automount_service_account_token == Some(false), "has a token"),
        (workload.pod.enable_service_links == Some(false), "gets variables of Services"),
    ];
    for (holds, claim) in claims {
        mistakes.unless(holds, || format!("{name}: {claim}"));
    }
}
