//! Native tools whose arguments have a Rust type.

use std::marker::PhantomData;

use async_trait::async_trait;
use futures::future::BoxFuture;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Context, NativeTool};
use crate::tools::ToolReturn;

/// Makes a tool from a function whose arguments are a Rust type, from which their JSON Schema is
/// derived. Arguments that do not fit the type are an error, VALIDATION_ERROR, that names the
/// field.
///
/// The function returns anything that converts into a [`ToolReturn`]: text, a number, JSON, a list
/// of content blocks, a `ToolReturn`, or a `Result` of these, whose error the model reads.
///
/// ```
/// use abide_actors::tools::native::typed;
/// use abide_actors::tools::{Extensions, ToolReturn};
/// use serde_json::json;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Division {
///     /// The number to divide.
///     dividend: f64,
///     #[serde(default = "two")]
///     divisor: f64,
/// }
///
/// fn two() -> f64 {
///     2.0
/// }
///
/// let divide = typed("Divides two numbers.", |args: Division, _| {
///     Box::pin(async move {
///         match args.divisor {
///             0.0 => Err("nothing can be divided by 0"),
///             divisor => Ok(args.dividend / divisor),
///         }
///     })
/// });
/// let extensions = Extensions::new().with_tool("divide", divide);
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// // Called directly, as in a test; in a conversation it runs like any other native tool.
/// let half = extensions.run_tool("divide", json!({"dividend": 3})).await;
/// assert_eq!(half, ToolReturn::ok(1.5));
/// let wrong = extensions.run_tool("divide", json!({"dividend": 3, "divisor": 0})).await;
/// assert_eq!(wrong, ToolReturn::error("nothing can be divided by 0"));
/// # });
/// ```
pub fn typed<A, R, F>(description: impl Into<String>, run: F) -> impl NativeTool
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    R: Into<ToolReturn> + 'static,
    F: for<'a> Fn(A, Context<'a>) -> BoxFuture<'a, R> + Send + Sync + 'static,
{
    TypedTool { description: description.into(), run, types: PhantomData }
}

struct TypedTool<A, R, F> {
    description: String,
    run: F,
    types: PhantomData<fn(A) -> R>,
}

#[async_trait]
impl<A, R, F> NativeTool for TypedTool<A, R, F>
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    R: Into<ToolReturn> + 'static,
    F: for<'a> Fn(A, Context<'a>) -> BoxFuture<'a, R> + Send + Sync + 'static,
{
    fn description(&self) -> String {
        self.description.clone()
    }

    fn parameters(&self) -> Value {
        // Inlined, since defaults are taken only from the schema itself, not from references; and
        // without the keys that only describe the schema document.
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        });
        let mut schema = settings.into_generator().into_root_schema_for::<A>();
        schema.remove("title");
        schema.to_value()
    }

    async fn run(&self, args: Value, context: Context<'_>) -> ToolReturn {
        match serde_path_to_error::deserialize(args) {
            Ok(args) => (self.run)(args, context).await.into(),
            Err(error) => {
                let (at, why) = (error.path().to_string(), error.inner());
                ToolReturn::invalid_args(&match at.as_str() {
                    "." => why.to_string(),
                    at => format!("{at}: {why}"),
                })
            }
        }
    }
}
