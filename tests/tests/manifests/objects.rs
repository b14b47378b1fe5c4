//! The objects of an overlay, parsed strictly into Kubernetes' own types.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{
    ConfigMap, Namespace, PersistentVolumeClaim, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// All objects of an overlay, by kind.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) accounts: Vec<ServiceAccount>,
    pub(crate) budgets: Vec<PodDisruptionBudget>,
    pub(crate) claims: Vec<PersistentVolumeClaim>,
    pub(crate) configs: Vec<ConfigMap>,
    pub(crate) namespaces: Vec<Namespace>,
    pub(crate) policies: Vec<NetworkPolicy>,
    pub(crate) scalers: Vec<HorizontalPodAutoscaler>,
    pub(crate) secrets: Vec<Secret>,
    pub(crate) services: Vec<Service>,
    pub(crate) sets: Vec<StatefulSet>,
}

impl Objects {
    /// Parses YAML documents. Unknown fields are refused, and so are kinds that no rule checks.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut objects = Self::default();
        for document in text.split("\n---\n") {
            let value: Value = serde_saphyr::from_str(document).map_err(|why| why.to_string())?;
            let at = format!("{} {}", value["kind"], value["metadata"]["name"]).replace('"', "");
            objects.add(&value).map_err(|why| format!("{at}: {why}"))?;
        }
        Ok(objects)
    }

    fn add(&mut self, value: &Value) -> Result<(), String> {
        match value["kind"].as_str().unwrap_or_default() {
            "ConfigMap" => self.configs.push(strict(value)?),
            "HorizontalPodAutoscaler" => self.scalers.push(strict(value)?),
            "Namespace" => self.namespaces.push(strict(value)?),
            "NetworkPolicy" => self.policies.push(strict(value)?),
            "PersistentVolumeClaim" => self.claims.push(strict(value)?),
            "PodDisruptionBudget" => self.budgets.push(strict(value)?),
            "Secret" => self.secrets.push(strict(value)?),
            "Service" => self.services.push(strict(value)?),
            "ServiceAccount" => self.accounts.push(strict(value)?),
            "StatefulSet" => self.sets.push(strict(value)?),
            _ => return Err("no rule checks this kind".to_owned()),
        }
        Ok(())
    }
}

/// Parses strictly: the types skip unknown fields, so the value written back must equal the source.
fn strict<T: DeserializeOwned + Serialize>(source: &Value) -> Result<T, String> {
    let typed: T = serde_json::from_value(source.clone()).map_err(|why| why.to_string())?;
    let back = serde_json::to_value(&typed).map_err(|why| why.to_string())?;
    match first_difference(source, &back) {
        None => Ok(typed),
        Some(path) => Err(format!("{path} is not a field that Kubernetes knows")),
    }
}

/// The path of the first difference.
fn first_difference(source: &Value, back: &Value) -> Option<String> {
    let inner = |name: String, source: &Value, back: &Value| {
        first_difference(source, back).map(|path| format!(".{name}{path}"))
    };
    match (source, back) {
        (Value::Object(fields), Value::Object(_)) => fields.iter().find_map(|(name, value)| {
            inner(name.clone(), value, back.get(name).unwrap_or(&Value::Null))
        }),
        (Value::Array(items), Value::Array(others)) if items.len() == others.len() => {
            let pairs = items.iter().zip(others).enumerate();
            pairs.into_iter().find_map(|(at, (one, other))| inner(at.to_string(), one, other))
        }
        _ => (source != back).then(String::new),
    }
}
