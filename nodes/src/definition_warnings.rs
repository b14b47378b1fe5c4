//! What the author of a definition may still want to know: in the answer to a PUT, and in the log.

use abide_actors::definition::Definition;
use abide_actors::journal::StoreError;
use abide_conversation::{AgentName, Scoped};
use abide_registry::store::Store;

/// The warning of a definition whose agent has conversations and indexes more than before.
pub(crate) const INDEXING: &str = "index: the agent's conversations are being indexed by the added \
    keys: until then lists by metadata may lack some, and say so by \"incomplete\"";

/// Logs the warnings of a definition.
pub(crate) fn log(agent: &str, warnings: &[String]) {
    for warning in warnings {
        tracing::warn!(agent, warning, "agent definition has a warning");
    }
}

/// Warns of tools that ask an agent that does not exist. It may be defined later.
pub(crate) async fn missing_agents(
    store: &dyn Store,
    name: &Scoped<AgentName>,
    definition: &Definition,
) -> Result<Vec<String>, StoreError> {
    let mut warnings = Vec::new();
    for (tool, agent) in definition.asked_agents() {
        let asked = name.sibling(agent);
        if asked != *name && store.agent(&asked).await?.is_none() {
            warnings.push(format!("tool {tool}: run.agent: there is no agent {agent}"));
        }
    }
    Ok(warnings)
}
