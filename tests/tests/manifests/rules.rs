//! The rules of the manifests, as a function of the objects that returns one line per mistake.

mod network;
mod node;
mod pods;
mod references;
mod scale;
mod services;

use crate::objects::Objects;
use crate::overlay::Secrets;
use crate::workload::Workload;

/// The input of the rules.
pub(crate) struct Manifests<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) workloads: Vec<Workload<'a>>,
    /// The Secrets that the user makes in addition to the overlay.
    pub(crate) secrets: &'a Secrets,
}

/// Every mistake in the objects, given the Secrets that the user makes.
pub(crate) fn mistakes(objects: &Objects, secrets: &Secrets) -> Vec<String> {
    let workloads = objects.sets.iter().map(Workload::of).collect();
    let manifests = Manifests { objects, workloads, secrets };
    let mut mistakes = Mistakes::default();
    for rule in
        [pods::rule, references::rule, services::rule, network::rule, node::rule, scale::rule]
    {
        rule(&manifests, &mut mistakes);
    }
    mistakes.0
}

#[derive(Default)]
pub(crate) struct Mistakes(Vec<String>);

impl Mistakes {
    /// Records the mistake unless the condition holds.
    pub(crate) fn unless(&mut self, holds: bool, mistake: impl FnOnce() -> String) {
        if !holds {
            self.0.push(mistake());
        }
    }
}
