//! A StatefulSet as the rules see it, and the configuration of the program that it starts.

use std::collections::BTreeMap;

use abide::config::{Cli, Config};
use clap::{CommandFactory, Parser};
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::overlay::Secrets;

pub(crate) type Labels = BTreeMap<String, String>;

/// A StatefulSet with the one container of its pods.
pub(crate) struct Workload<'a> {
    pub(crate) name: &'a str,
    pub(crate) spec: &'a StatefulSetSpec,
    pub(crate) labels: &'a Labels,
    pub(crate) pod: &'a PodSpec,
    pub(crate) container: &'a Container,
}

impl<'a> Workload<'a> {
    pub(crate) fn of(set: &'a StatefulSet) -> Self {
        let spec = set.spec.as_ref().unwrap();
        let pod = spec.template.spec.as_ref().unwrap();
        let [container] = pod.containers.as_slice() else { panic!("not one container") };
        Self {
            name: set.metadata.name.as_deref().unwrap(),
            spec,
            labels: spec.template.metadata.as_ref().and_then(|meta| meta.labels.as_ref()).unwrap(),
            pod,
            container,
        }
    }

    /// Whether the container is Abide, in contrast to Redis.
    pub(crate) fn is_node(&self) -> bool {
        self.container.name == "abide"
    }

    pub(crate) fn port(&self, name: &str) -> Option<i32> {
        let ports = self.container.ports.iter().flatten();
        let port = ports.into_iter().find(|port| port.name.as_deref() == Some(name));
        port.map(|port| port.container_port)
    }

    /// The name of the container's port that a reference means, by name or by number.
    pub(crate) fn port_name(&self, reference: &IntOrString) -> Option<&'a str> {
        let ports = self.container.ports.iter().flatten();
        let is_meant = |number: i32, name: Option<&str>| match reference {
            IntOrString::Int(reference) => *reference == number,
            IntOrString::String(reference) => Some(reference.as_str()) == name,
        };
        let mut names =
            ports.into_iter().filter(|port| is_meant(port.container_port, port.name.as_deref()));
        names.next().and_then(|port| port.name.as_deref())
    }

    /// An empty selector means every pod.
    pub(crate) fn is_selected_by(&self, selector: &LabelSelector) -> bool {
        self.has(selector.match_labels.as_ref().unwrap_or(&Labels::new()))
    }

    pub(crate) fn has(&self, labels: &Labels) -> bool {
        labels.iter().all(|(key, value)| self.labels.get(key) == Some(value))
    }

    /// The environment as the kubelet makes it: each value can refer to earlier variables.
    pub(crate) fn environment(&self, secrets: &Secrets) -> Result<Labels, String> {
        let mut known = Labels::new();
        for variable in self.container.env.iter().flatten() {
            let value = value(variable, secrets)?;
            known.insert(variable.name.clone(), expand(&value, &known)?);
        }
        Ok(known)
    }

    /// The configuration that the program would parse from its arguments and environment.
    pub(crate) fn parse_config(&self, secrets: &Secrets) -> Result<Config, String> {
        let environment = self.environment(secrets)?;
        let mut words = vec!["abide".to_owned()];
        let command = Cli::command();
        for (name, value) in &environment {
            let flag = command
                .get_arguments()
                .find(|flag| flag.get_env().is_some_and(|it| it == name.as_str()));
            match flag.and_then(|flag| flag.get_long()) {
                Some(flag) => words.push(format!("--{flag}={value}")),
                None if name.starts_with("ABIDE_") && name != "ABIDE_CLUSTER_SECRET" => {
                    return Err(format!("the program does not know {name}"));
                }
                None => {}
            }
        }
        for word in self.container.args.iter().flatten() {
            words.push(expand(word, &environment)?);
        }
        Cli::try_parse_from(words).map(|cli| cli.serve).map_err(|why| why.to_string())
    }
}

fn value(variable: &EnvVar, secrets: &Secrets) -> Result<String, String> {
    let name = &variable.name;
    let Some(source) = &variable.value_from else {
        return Ok(variable.value.clone().unwrap_or_default());
    };
    if let Some(field) = &source.field_ref {
        return match field.field_path.as_str() {
            "metadata.name" => Ok("abide-0".to_owned()),
            "status.podIP" => Ok("10.1.2.3".to_owned()),
            other => Err(format!("{name}: the value of {other} is unknown")),
        };
    }
    let Some(key_ref) = &source.secret_key_ref else {
        return Err(format!("{name}: has no source"));
    };
    let found = secrets.get(&key_ref.name).and_then(|secret| secret.get(&key_ref.key));
    found.cloned().ok_or(format!("{name}: no Secret {} has {}", key_ref.name, key_ref.key))
}

/// Replaces `$(NAME)` in the text. Kubernetes leaves unknown names as they are; here they are a
/// mistake.
fn expand(text: &str, known: &Labels) -> Result<String, String> {
    let mut parts = text.split("$(");
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once(')').ok_or(format!("{text}: no end of a name"))?;
        whole += known.get(name).ok_or(format!("{text}: {name} is not known before it"))?;
        whole += rest;
    }
    Ok(whole)
}
