//! Binds a definition to the rules of its tenant, which judge what it reaches and names.

use std::sync::Arc;

use super::{Definition, Endpoint, HookTarget, McpServer, McpTransport, Target, Tool, ToolKind};
use crate::outbound::{Outbound, OutboundError};

impl Endpoint {
    /// The variables that it names.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &str> {
        let headers = self.secret_headers.iter().map(|(_, variable)| variable);
        headers.chain(&self.signing_secret_env).map(String::as_str)
    }
}

impl McpServer {
    /// Whether the rules permit its host and its variables now.
    pub(crate) fn check(&self) -> Result<(), OutboundError> {
        match &self.transport {
            McpTransport::Http { url, secret_headers, .. } => {
                let variables = secret_headers.iter().map(|(_, variable)| variable.as_str());
                self.outbound.check_variables(variables)?;
                self.outbound.route(url).map(drop)
            }
            McpTransport::Stdio { env, .. } => {
                self.outbound.check_variables(env.iter().map(String::as_str))
            }
        }
    }
}

impl Definition {
    /// The same definition within these bounds.
    #[must_use]
    pub fn bind(mut self, outbound: &Outbound) -> Self {
        self.outbound = outbound.clone();
        let summary = self.summary.as_mut().and_then(|summary| summary.model.as_mut());
        for model in std::iter::once(&mut self.model).chain(summary) {
            model.outbound = outbound.clone();
            model.fallback.iter_mut().for_each(|model| model.outbound = outbound.clone());
        }
        for hook in &mut self.hooks {
            match &mut hook.target {
                HookTarget::Http(endpoint) => endpoint.outbound = outbound.clone(),
                HookTarget::Native(_) => {}
            }
        }
        let prototypes = self.sets.iter_mut().map(|set| &mut set.prototype);
        for tool in self.tools.iter_mut().chain(prototypes) {
            bind_tool(tool, outbound);
        }
        self
    }
}

fn bind_tool(tool: &mut Tool, outbound: &Outbound) {
    let ToolKind::Server(server) = &mut tool.kind else { return };
    match &mut server.target {
        Target::Http(endpoint) => endpoint.outbound = outbound.clone(),
        Target::Mcp(tool) => Arc::make_mut(&mut tool.server).outbound = outbound.clone(),
        Target::Native(_) | Target::Builtin(_) | Target::Agent(_) | Target::Queue(_) => {}
    }
}
