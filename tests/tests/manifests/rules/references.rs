//! Everything that a pod refers to exists: volumes, ConfigMaps, Secrets, claims, its account.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Volume;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::rules::{Manifests, Mistakes};
use crate::workload::Workload;

pub(crate) fn rule(manifests: &Manifests<'_>, mistakes: &mut Mistakes) {
    for workload in &manifests.workloads {
        mounts(workload, mistakes);
        for volume in workload.pod.volumes.iter().flatten() {
            mistakes.unless(is_there(manifests, volume), || {
                format!("{}: the source of its volume {} is not there", workload.name, volume.name)
            });
        }
        let account = workload.pod.service_account_name.as_deref();
        let accounts = manifests.objects.accounts.iter().map(|account| &account.metadata);
        mistakes.unless(account.is_none_or(|name| named(accounts, name)), || {
            format!("{}: its account is not there", workload.name)
        });
        if let Err(why) = workload.environment(manifests.secrets) {
            mistakes.unless(false, || format!("{}: {why}", workload.name));
        }
        for source in workload.container.env_from.iter().flatten() {
            let secret = source.secret_ref.as_ref();
            mistakes
                .unless(secret.is_some_and(|it| manifests.secrets.contains_key(&it.name)), || {
                    format!("{}: nothing makes what its variables are from", workload.name)
                });
        }
    }
    let has_no_secrets = manifests.objects.secrets.is_empty();
    mistakes.unless(has_no_secrets, || "a Secret is in the repository".to_owned());
}

/// Every mount has its volume, and every volume is mounted.
fn mounts(workload: &Workload<'_>, mistakes: &mut Mistakes) {
    let templates = workload.spec.volume_claim_templates.iter().flatten();
    let templates = templates.filter_map(|claim| claim.metadata.name.as_deref());
    let volumes = workload.pod.volumes.iter().flatten().map(|volume| volume.name.as_str());
    let volumes: BTreeSet<&str> = volumes.chain(templates).collect();
    let mounts = workload.container.volume_mounts.iter().flatten();
    let mounts: BTreeSet<&str> = mounts.map(|mount| mount.name.as_str()).collect();
    for name in volumes.symmetric_difference(&mounts) {
        mistakes.unless(false, || {
            format!("{}: {name} is mounted without a volume, or the other way round", workload.name)
        });
    }
}

fn is_there(manifests: &Manifests<'_>, volume: &Volume) -> bool {
    if let Some(config) = &volume.config_map {
        return named(manifests.objects.configs.iter().map(|it| &it.metadata), &config.name);
    }
    if let Some(claim) = &volume.persistent_volume_claim {
        return named(manifests.objects.claims.iter().map(|it| &it.metadata), &claim.claim_name);
    }
    if let Some(secret) = &volume.secret {
        let name = secret.secret_name.as_deref();
        return name.is_some_and(|name| manifests.secrets.contains_key(name));
    }
    volume.empty_dir.is_some()
}

fn named<'a>(mut all: impl Iterator<Item = &'a ObjectMeta>, name: &str) -> bool {
    all.any(|meta| meta.name.as_deref() == Some(name))
}
