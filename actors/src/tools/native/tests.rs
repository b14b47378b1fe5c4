//! Tests of native tools: their arguments, their failures, and their start and stop.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_conversation::State;
use abide_conversation::message::Outcome;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::definition::Definition;
use crate::tools::fixtures::{ScriptedTool, a_run, runner, source};
use crate::tools::{Extensions, Gate};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Order {
    item: String,
    #[serde(default = "one")]
    count: u8,
    to: Option<Address>,
}

#[derive(Deserialize, JsonSchema)]
struct Address {
    #[serde(default)]
    city: String,
    /// The schema does not express this rule.
    zip: Zip,
}

/// Five digits; only deserialisation checks this.
#[derive(JsonSchema)]
#[schemars(with = "String")]
struct Zip;

impl<'de> Deserialize<'de> for Zip {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let legal = text.len() == 5 && text.bytes().all(|digit| digit.is_ascii_digit());
        legal.then_some(Self).ok_or_else(|| serde::de::Error::custom("must have five digits"))
    }
}

fn one() -> u8 {
    1
}

fn order() -> Extensions {
    let order = typed("Orders.", |order: Order, _| {
        Box::pin(async move {
            let city = order.to.map(|Address { city, zip: Zip }| city);
            format!("{} x {} to {}", order.count, order.item, city.unwrap_or_default())
        })
    });
    Extensions::new().with_tool("order", order)
}

/// Runs the only tool of an agent with a grant of the gate.
async fn run_call(extensions: Extensions, native: &str, args: Value) -> ToolReturn {
    let source = source(json!([{"name": "t", "run": {"native": native}, "run_timeout": "90s"}]));
    let definition = Arc::new(Definition::parse(source, &extensions).unwrap().definition);
    let runner = Arc::new(runner(extensions));
    let gate = Gate::new(definition.clone(), &State::default());
    runner.call(&definition.tools[0], &gate, Box::new(a_run("t", args)), |_| {}).await
}

fn invalid(why: &str) -> ToolReturn {
    let why = format!("invalid tool arguments: {why}");
    ToolReturn::failure(why, ErrorType::ValidationError)
}

#[tokio::test]
async fn typed_arguments_have_the_schema_of_their_type() {
    let extensions = order();
    let tool = extensions.tool("order").unwrap();
    let schema = tool.parameters();
    assert_eq!((tool.description().as_str(), &schema["type"]), ("Orders.", &json!("object")));
    assert_eq!(schema["required"], json!(["item"]));
    assert_eq!(schema["additionalProperties"], json!(false));
    assert_eq!(schema["properties"]["count"]["default"], json!(1));
    let given = run_call(extensions, "order", json!({"item": "tea", "to": {"zip": "12345"}})).await;
    assert_eq!(given, ToolReturn::ok("1 x tea to "));
}

#[tokio::test]
async fn what_does_not_fit_the_type_is_named_field_by_field() {
    let zip = json!({"item": "tea", "to": {"zip": "1"}});
    let wrong = invalid("to.zip: must have five digits");
    assert_eq!(run_call(order(), "order", zip).await, wrong);
    let many = run_call(order(), "order", json!({"item": "tea", "count": 500})).await;
    let Outcome::Err(why, ErrorType::ValidationError) = many.outcome else { panic!("{many:?}") };
    assert!(why.starts_with("invalid tool arguments: count: "), "{why}");
}

#[test]
fn what_a_tool_returns_is_text_json_blocks_or_an_error() {
    let block = json!({"type": "text", "text": "a"});
    assert_eq!(ToolReturn::from(vec![block.clone()]), ToolReturn::ok(json!([block])));
    assert_eq!(ToolReturn::from("a"), ToolReturn::ok("a"));
    assert_eq!(ToolReturn::from(()), ToolReturn::ok(Value::Null));
    assert_eq!(ToolReturn::from(Ok::<_, String>(1.5)), ToolReturn::ok(1.5));
    assert_eq!(ToolReturn::from(Err::<i64, _>("no luck")), ToolReturn::error("no luck"));
    let halted: ToolReturn = Ok::<_, String>(ToolReturn::halt("enough")).into();
    assert_eq!(halted.halt.as_deref(), Some("enough"));
}

struct Shop(&'static str);

/// Returns which shop it found, or whether it found a dependency of another type.
fn shops() -> Extensions {
    let shop = typed("Its shop.", |_: Empty, context: Context<'_>| {
        let found = context.dependency::<Shop>().map(|shop| shop.0);
        let other = context.dependency::<String>().cloned();
        Box::pin(async move { json!([found, other]) })
    });
    Extensions::new().with_tool("shop", shop)
}

#[derive(Deserialize, JsonSchema)]
struct Empty {}

#[tokio::test]
async fn a_tool_finds_its_agents_own_value_before_the_one_for_all() {
    let shop = async |extensions: Extensions| run_call(extensions, "shop", json!({})).await;
    assert_eq!(shop(shops()).await, ToolReturn::ok(json!([null, null])));
    let all = shops().provide_for("other", Shop("theirs")).provide(Shop("all"));
    assert_eq!(shop(all.clone()).await, ToolReturn::ok(json!(["all", null])));
    let own = all.provide_for("support", Shop("own")).provide("a text".to_owned());
    assert_eq!(shop(own).await, ToolReturn::ok(json!(["own", "a text"])));
}

#[tokio::test]
async fn a_tool_runs_by_itself_with_its_arguments_checked_and_filled() {
    let given = order().run_tool("order", json!({"item": "tea"})).await;
    assert_eq!(given, ToolReturn::ok("1 x tea to "));
    let obedient = Extensions::new().with_tool("obedient", ScriptedTool);
    let Outcome::Ok(echo) = obedient.run_tool("obedient", json!({})).await.outcome else {
        panic!()
    };
    assert_eq!((&echo["args"], &echo["principal"]), (&json!({"do": "echo"}), &json!("direct")));
    let wrong = order().run_tool("order", json!({})).await;
    assert_eq!(wrong, invalid("\"item\" is a required property"));
    let unknown = ToolReturn::failure("unknown tool: tea", ErrorType::ToolNotFound);
    assert_eq!(order().run_tool("tea", json!({})).await, unknown);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_run_directly_has_a_time_limit() {
    let never = typed("Hangs.", |_: Empty, _| Box::pin(std::future::pending::<()>()));
    let late = ToolReturn::timeout("timed out after 60s");
    assert_eq!(
        Extensions::new().with_tool("never", never).run_tool("never", json!({})).await,
        late
    );
}

/// Fails as its arguments say, and recovers if it can.
struct Shaky;

#[async_trait]
impl NativeTool for Shaky {
    fn description(&self) -> String {
        String::new()
    }

    fn parameters(&self) -> Value {
        json!({"type": "object"})
    }

    async fn run(&self, args: Value, _: Context<'_>) -> ToolReturn {
        match args["do"].as_str() {
            Some("panic") => unreachable!("the test asked for a panic"),
            Some("hang") => std::future::pending().await,
            Some(error) => ToolReturn::error(error),
            None => ToolReturn::ok("fine"),
        }
    }

    async fn recover(
        &self,
        error: &str,
        kind: ErrorType,
        context: Context<'_>,
    ) -> Option<ToolReturn> {
        match error {
            "for good" => None,
            "twice" => unreachable!("the test asked for a panic"),
            _ => Some(ToolReturn::ok(json!([error, kind, context.attempt]))),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_may_recover_from_an_error_or_a_crash_and_from_nothing_else() {
    let shaky = async |what: Value| {
        run_call(Extensions::new().with_tool("shaky", Shaky), "shaky", json!({"do": what})).await
    };
    assert_eq!(shaky(json!(null)).await, ToolReturn::ok("fine"));
    let recovered = ToolReturn::ok(json!(["no luck", "TOOL_ERROR", 1]));
    assert_eq!(shaky(json!("no luck")).await, recovered);
    let recovered = ToolReturn::ok(json!(["tool crashed", "TOOL_CRASHED", 1]));
    assert_eq!(shaky(json!("panic")).await, recovered);
    assert_eq!(shaky(json!("for good")).await, ToolReturn::error("for good"));
    let crashed = ToolReturn::failure("tool crashed", ErrorType::ToolCrashed);
    assert_eq!(shaky(json!("twice")).await, crashed);
    let late = ToolReturn::timeout("timed out after 90s");
    assert_eq!(shaky(json!("hang")).await, late);
}

/// Records its start and stop.
struct Living(&'static str, Arc<Mutex<Vec<String>>>);

#[async_trait]
impl NativeTool for Living {
    fn description(&self) -> String {
        String::new()
    }

    fn parameters(&self) -> Value {
        json!({"type": "object"})
    }

    async fn run(&self, _: Value, _: Context<'_>) -> ToolReturn {
        ToolReturn::ok(())
    }

    async fn on_start(&self) -> Result<(), String> {
        self.1.lock().unwrap().push(format!("{} started", self.0));
        match self.0 {
            "broken" => Err("there is no database".to_owned()),
            "stuck" => std::future::pending().await,
            "rude" => unreachable!("the test asked for a panic"),
            _ => Ok(()),
        }
    }

    async fn on_stop(&self) {
        self.1.lock().unwrap().push(format!("{} stopped", self.0));
        match self.0 {
            "clingy" => std::future::pending().await,
            "rude" => unreachable!("the test asked for a panic"),
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn tools_begin_and_end_with_their_node_whatever_the_others_do() {
    let seen = Arc::default();
    let living = |name| Living(name, Arc::clone(&seen));
    let extensions =
        Extensions::new().with_tool("a", living("clingy")).with_tool("b", living("quiet"));
    extensions.start().await.unwrap();
    let began = tokio::time::Instant::now();
    extensions.stop().await;
    assert_eq!(began.elapsed(), Duration::from_secs(2));
    let seen = seen.lock().unwrap();
    assert_eq!(*seen, ["clingy started", "quiet started", "clingy stopped", "quiet stopped"]);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_cannot_start_is_named_and_the_others_are_stopped() {
    for (name, why) in [
        ("broken", "there is no database"),
        ("stuck", "it took longer than 10 s"),
        ("rude", "it panicked"),
    ] {
        let seen = Arc::default();
        let living = |name| Living(name, Arc::clone(&seen));
        let extensions =
            Extensions::new().with_tool("a", living("quiet")).with_tool("b", living(name));
        let error = extensions.start().await.unwrap_err().to_string();
        assert_eq!(error, format!("the native tool b did not start: {why}"));
        assert!(seen.lock().unwrap().contains(&"quiet stopped".to_owned()), "{seen:?}");
    }
}
