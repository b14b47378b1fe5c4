//! The middleware that an agent or a tool names.

use abide_conversation::event::Executor;
use serde_json::Value;

use super::document::Items;
use super::reader::Mistakes;
use crate::limits::cut;
use crate::tools::Extensions;

/// The middleware around the runs of all tools, outermost first.
pub(super) fn of_agent(
    mistakes: &mut Mistakes,
    names: Option<Items<16>>,
    extensions: &Extensions,
) -> Vec<String> {
    let mut known = |(at, name): (usize, Value)| {
        let name = name.as_str().map_or_else(|| name.to_string(), str::to_owned);
        if extensions.middlewares().contains(&name) {
            return Some(name);
        }
        let message = format!("names no middleware of this program: {}", cut(&name, 64));
        mistakes.add(&format!("middleware[{at}]"), message);
        None
    };
    names.unwrap_or_default().0.into_iter().enumerate().filter_map(&mut known).collect()
}

/// The middleware around the runs of one tool, which must be a server tool.
pub(super) fn of_tool(
    mistakes: &mut Mistakes,
    names: Option<Items<16>>,
    executor: Executor,
    extensions: &Extensions,
) -> Vec<String> {
    let names = of_agent(mistakes, names, extensions);
    if executor != Executor::Server && !names.is_empty() {
        mistakes.add("middleware", "is for a server tool only");
    }
    names
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use async_trait::async_trait;
    use serde_json::{Value, json};

    use super::*;
    use crate::agent::join_errors;
    use crate::definition::Definition;
    use crate::tools::fixtures::source;
    use crate::tools::middleware::{Middleware, Middlewares, Next};
    use crate::tools::{Run, ToolReturn};

    struct Open;

    #[async_trait]
    impl Middleware for Open {
        async fn call(&self, _: &Run, next: Next<'_>) -> ToolReturn {
            next.run().await
        }
    }

    fn parse(agent: Value, tool: Value) -> Result<Definition, String> {
        let natives = Extensions::new().with_middlewares(
            Middlewares::new().with_named("audit", Open).with_named("cache", Open),
        );
        let mut source = source(json!([tool]));
        source["middleware"] = agent;
        let parsed = Definition::parse(source, &natives);
        parsed.map(|parsed| parsed.definition).map_err(|mistakes| join_errors(&mistakes))
    }

    fn tool(middleware: Value) -> Value {
        let run = json!({"http": {"url": "http://127.0.0.1:9/"}});
        json!({"name": "t", "run": run, "middleware": middleware})
    }

    #[test]
    fn an_agent_and_its_tools_name_middleware_in_their_order() {
        let agent = parse(json!(["cache", "audit"]), tool(json!(["audit"]))).unwrap();
        assert_eq!(agent.middleware, ["cache", "audit"]);
        assert_eq!(agent.tools[0].middleware, ["audit"]);
        let human = json!({"name": "t", "executor": "human", "middleware": []});
        assert_eq!(parse(json!(null), human).unwrap().middleware, Vec::<String>::new());
    }

    #[test]
    fn middleware_that_cannot_be_is_refused_by_tool_and_field() {
        let human = json!({"name": "t", "executor": "human", "middleware": ["audit"]});
        for (agent, tool, wanted) in [
            (json!(["audti"]), tool(json!([])), "middleware[0]: names no middleware"),
            (json!([7]), tool(json!([])), "middleware[0]: names no middleware"),
            (json!("audit"), tool(json!([])), "middleware: must be a list"),
            (json!(vec!["audit"; 17]), tool(json!([])), "middleware: must have at most 16"),
            (json!([]), tool(json!(["audit", "x"])), "tool t: middleware[1]: names no middleware"),
            (json!([]), tool(json!(vec!["audit"; 17])), "tool t: middleware: must have at most 16"),
            (json!([]), human, "tool t: middleware: is for a server tool only"),
        ] {
            let found = parse(agent, tool).unwrap_err();
            assert!(found.starts_with(wanted), "{wanted}: {found}");
        }
    }
}
