//! The values that a program provides to native tools, by their type.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use abide_conversation::AgentName;

type Values = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// For each type one value for all agents, and overrides for single agents.
#[derive(Clone, Debug, Default)]
pub(in crate::tools) struct Dependencies {
    shared: Values,
    by_agent: BTreeMap<String, Values>,
}

impl Dependencies {
    pub(in crate::tools) fn provide<T: Any + Send + Sync>(
        &mut self,
        agent: Option<&str>,
        value: T,
    ) {
        let values = match agent {
            Some(agent) => self.by_agent.entry(agent.to_owned()).or_default(),
            None => &mut self.shared,
        };
        values.insert(TypeId::of::<T>(), Arc::new(value));
    }

    /// The agent's own value of the type, or else the one for all agents.
    pub(in crate::tools) fn get<T: Any>(&self, agent: &AgentName) -> Option<&T> {
        let own = self.by_agent.get(agent.as_str());
        let values = [own, Some(&self.shared)].into_iter().flatten();
        values.filter_map(|values| values.get(&TypeId::of::<T>())).find_map(|it| it.downcast_ref())
    }
}
