//! Checks what a definition reaches and names against the rules of its tenant.

use std::collections::BTreeMap;

use super::DefinitionError;
use crate::definition::{Definition, Endpoint, HookTarget, McpServer, McpTransport, Target};
use crate::model::ModelSettings;
use crate::outbound::{OutboundError, OutboundRules};

impl Definition {
    /// What these rules do not permit, each with its field.
    pub fn outbound_mistakes(&self, rules: &OutboundRules) -> Vec<DefinitionError> {
        let mut judge = Judge { rules, mistakes: Vec::new() };
        judge.models("", &self.model);
        let summary = self.summary.as_ref().and_then(|summary| summary.model.as_ref());
        if let Some(model) = summary {
            judge.models("summary.", model);
        }
        let prototypes = self.sets.iter().map(|set| &set.prototype);
        let mut servers = BTreeMap::new();
        for tool in self.tools.iter().chain(prototypes) {
            match tool.target() {
                Some(Target::Http(endpoint)) => {
                    judge.endpoint(Some(&tool.name), "run.http.", endpoint);
                }
                Some(Target::Mcp(tool)) => drop(servers.insert(&tool.server.name, &tool.server)),
                Some(
                    Target::Native(_) | Target::Builtin(_) | Target::Agent(_) | Target::Queue(_),
                )
                | None => {}
            }
        }
        for server in servers.into_values() {
            judge.server(server);
        }
        for (index, hook) in self.hooks.iter().enumerate() {
            match &hook.target {
                HookTarget::Http(endpoint) => {
                    judge.endpoint(None, &format!("hooks[{index}].http."), endpoint);
                }
                HookTarget::Native(_) => {}
            }
        }
        for entry in &self.permissions.allowed_hosts {
            judge.add(None, "permissions.allowed_hosts".to_owned(), rules.check_entry(entry));
        }
        judge.mistakes
    }
}

/// Collects what the rules do not permit.
struct Judge<'a> {
    rules: &'a OutboundRules,
    mistakes: Vec<DefinitionError>,
}

impl Judge<'_> {
    fn add<T>(&mut self, tool: Option<&str>, field: String, judged: Result<T, OutboundError>) {
        if let Err(error) = judged {
            let (tool, message) = (tool.map(str::to_owned), error.to_string());
            self.mistakes.push(DefinitionError { tool, field, message });
        }
    }

    /// Judges a model and its fallbacks.
    fn models(&mut self, prefix: &str, model: &ModelSettings) {
        self.model(&format!("{prefix}model"), model);
        for (at, fallback) in model.fallback.iter().enumerate() {
            self.model(&format!("{prefix}model.fallback[{at}]"), fallback);
        }
    }

    fn model(&mut self, field: &str, model: &ModelSettings) {
        if let Some(server) = model.server_needing_permission() {
            self.add(None, format!("{field}.base_url"), self.rules.route(&server));
        }
        if let Some(variable) = model.variable() {
            let judged = self.rules.check_variable(variable);
            self.add(None, format!("{field}.api_key_env"), judged);
        }
    }

    fn endpoint(&mut self, tool: Option<&str>, prefix: &str, endpoint: &Endpoint) {
        self.add(tool, format!("{prefix}url"), self.rules.route(&endpoint.url));
        for (header, variable) in &endpoint.secret_headers {
            let judged = self.rules.check_variable(variable);
            self.add(tool, format!("{prefix}headers_env.{header}"), judged);
        }
        if let Some(variable) = &endpoint.signing_secret_env {
            let judged = self.rules.check_variable(variable);
            self.add(tool, format!("{prefix}signing_secret_env"), judged);
        }
    }

    fn server(&mut self, server: &McpServer) {
        let prefix = format!("mcp_servers.{}.", server.name);
        match &server.transport {
            McpTransport::Http { url, secret_headers, .. } => {
                self.add(None, format!("{prefix}url"), self.rules.route(url));
                for (header, variable) in secret_headers {
                    let judged = self.rules.check_variable(variable);
                    self.add(None, format!("{prefix}headers_env.{header}"), judged);
                }
            }
            McpTransport::Stdio { env, .. } => {
                for variable in env {
                    let judged = self.rules.check_variable(variable);
                    self.add(None, format!("{prefix}env"), judged);
                }
            }
        }
    }
}
