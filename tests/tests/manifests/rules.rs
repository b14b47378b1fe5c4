//! What belongs together in the manifests, as a function of the objects: no mistakes, or a line
//! for each.

mod network;
mod node;
mod pods;
mod references;
mod scale;
mod services;

use crate::built::Secrets;
use crate::objects::Objects;
use crate::workload::Workload;

/// What the rules look at.
pub(crate) struct Scene<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) workloads: Vec<Workload<'a>>,
    /// Those that the user makes beside the overlay.
    pub(crate) secrets: &'a Secrets,
}

/// Every mistake in the objects, given the Secrets that are made beside them.
pub(crate) fn mistakes(objects: &Objects, secrets: &Secrets) -> Vec<String> {
    let workloads = objects.sets.iter().map(Workload::of).collect();
    let scene = Scene { objects, workloads, secrets };
    let mut mistakes = Mistakes::default();
    for rule in
        [pods::rule, references::rule, services::rule, network::rule, node::rule, scale::rule]
    {
        rule(&scene, &mut mistakes);
    }
    mistakes.0
}

#[derive(Default)]
pub(crate) struct Mistakes(Vec<String>);

impl Mistakes {
    /// Notes the claim if it does not hold.
    pub(crate) fn unless(&mut self, holds: bool, claim: impl FnOnce() -> String) {
        if !holds {
            self.0.push(claim());
        }
    }
}
