//! A run waits for its place, if its tool or its MCP server has limits.

use abide_conversation::CallId;

use super::ActivityContext;
use crate::definition::{LimitScope, McpToolRef, RunLimits, Target, Tool};
use crate::limit_waits::LimitWait;
use crate::tools::gate::exact_fingerprint;
use crate::tools::limiter::RunPermit;

/// Waits until the call may run. The places are given back when what this returns is dropped.
pub(super) async fn wait_for_places(
    ctx: &ActivityContext,
    call: &CallId,
    agent: &str,
    tool: &Tool,
) -> Vec<RunPermit> {
    let mut places = Vec::new();
    for (key, limits) in limits_of(ctx, agent, tool) {
        let since = ctx.services.clock.now();
        let _listed = ctx.limit_waits.begin(call, LimitWait { limits: limits.to_string(), since });
        places.push(
            ctx.services.runner.limiter().enter(key, limits, &ctx.services.conversations).await,
        );
    }
    places
}

/// The limits that concern the tool, each with what its runs are counted under: the tenant and the
/// MCP server, or the tenant, the agent and the tool.
fn limits_of(ctx: &ActivityContext, agent: &str, tool: &Tool) -> Vec<(String, RunLimits)> {
    let Some(server) = tool.server() else { return Vec::new() };
    let tenant = ctx.id.tenant();
    let scoped = |key: String, limits: RunLimits| match limits.per {
        LimitScope::Conversation => (format!("{key} {}", ctx.id), limits),
        LimitScope::Node | LimitScope::Cluster => (key, limits),
    };
    let of_server = match &server.target {
        Target::Mcp(McpToolRef { server, .. }) => server.limits.map(|limits| {
            // Its configuration, without what it says.
            let digest = exact_fingerprint(&server.name, &server.key.as_str().into());
            scoped(format!("mcp {tenant} {digest}"), limits)
        }),
        Target::Http(_)
        | Target::Native(_)
        | Target::Builtin(_)
        | Target::Agent(_)
        | Target::Queue(_) => None,
    };
    let of_tool =
        server.limits.map(|limits| scoped(format!("tool {tenant} {agent} {}", tool.name), limits));
    of_server.into_iter().chain(of_tool).collect()
}
