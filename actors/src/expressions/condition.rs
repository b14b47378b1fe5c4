//! Conditions of an approval, in CEL. A condition that fails or takes too long counts as true.

mod names;
mod step_budget;

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use cel::objects::{Key, Map};
use cel::{Context, Env, IdedExpr};
use serde_json::Value;

use super::big_stack::run_on_big_stack;
use crate::limits::{encoded_len, one_line};
use step_budget::StepBudget;

/// The longest expression.
const MAX_SOURCE_BYTES: usize = 4_096;
/// The largest input of a condition; with a larger one a person is asked.
const MAX_INPUT_BYTES: usize = 256 * 1024;
/// The deepest nesting of an expression; a level of evaluation takes up to 40 kB of stack.
const MAX_DEPTH: usize = 64;
/// Compiling may take this long on a very busy machine.
const COMPILE_TIMEOUT: Duration = Duration::from_secs(10);
/// A conversation waits for its condition no longer than this.
const EVALUATION_TIMEOUT: Duration = Duration::from_secs(1);
/// A name in an error is cut to this length.
const MAX_SHOWN_NAME_BYTES: usize = 64;
/// The parser's messages are cut to this length.
const MAX_PARSER_MESSAGE_BYTES: usize = 300;

static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// A compiled condition.
///
/// The library limits neither the time nor the stack of an evaluation. So every iteration of `all`,
/// `exists`, `map` and the like costs one step of a budget of 20,000, and a pattern in it costs
/// 100; nesting is limited; and the work runs on a thread with a large stack, for which a caller
/// waits at most a second. A condition that exceeds any of these limits counts as true, and a
/// person is asked.
#[derive(Clone)]
pub struct Condition {
    source: String,
    expression: Arc<IdedExpr>,
    reads_principal: bool,
}

impl Condition {
    /// Compiles an expression, at most 4 kB. A variable or function that it does not
    /// have is refused; whether `args` has a member is known only when it is evaluated.
    pub fn compile(source: &str) -> Result<Self, String> {
        if source.len() > MAX_SOURCE_BYTES {
            return Err(format!("must be at most {MAX_SOURCE_BYTES} bytes"));
        }
        let owned = source.to_owned();
        let compiled = run_on_big_stack(COMPILE_TIMEOUT, move || {
            let program = ENV.compile(&owned).map_err(|errors| {
                format!(
                    "does not compile: {}",
                    one_line(&errors.to_string(), MAX_PARSER_MESSAGE_BYTES)
                )
            })?;
            let expression = program.expression();
            if step_budget::depth(expression) > MAX_DEPTH {
                return Err(format!("must nest at most {MAX_DEPTH} deep"));
            }
            if let Some(name) = names::unknown_name(expression, &ENV) {
                let name = one_line(&name, MAX_SHOWN_NAME_BYTES);
                return Err(format!(
                    "names {name}, but has args, principal, conversation, message and the functions of \
                     CEL"
                ));
            }
            let reads_principal = names::reads_only_members(expression, "principal");
            let metered = step_budget::with_step_budget(expression.clone());
            Ok((Arc::new(metered), reads_principal))
        });
        let (expression, reads_principal) =
            compiled.unwrap_or_else(|| Err("does not compile".to_owned()))?;
        Ok(Self { source: source.to_owned(), expression, reads_principal })
    }

    /// Whether `principal` is to be an object, whose members the expression reads. Otherwise it is the
    /// subject alone.
    pub(crate) fn reads_principal(&self) -> bool {
        self.reads_principal
    }

    /// The expression as it was written.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Whether a person must be asked: true unless the condition evaluates to false.
    pub fn is_true_or_fails(&self, values: Value) -> bool {
        if encoded_len(&values) > MAX_INPUT_BYTES {
            return true;
        }
        let expression = Arc::clone(&self.expression);
        let evaluated =
            run_on_big_stack(EVALUATION_TIMEOUT, move || evaluate(&expression, &values));
        evaluated.flatten().unwrap_or(true)
    }
}

fn evaluate(expression: &IdedExpr, values: &Value) -> Option<bool> {
    let mut context = Context::with_env(Arc::clone(&ENV));
    StepBudget::default().attach(&mut context)?;
    for (name, value) in values.as_object()? {
        context.add_variable_from_value(name.as_str(), cel_value(value));
    }
    match cel::Value::resolve(expression, &context) {
        Ok(cel::Value::Bool(result)) => Some(result),
        Ok(_) | Err(_) => None,
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Condition").field(&self.source).finish()
    }
}

/// Converts JSON to CEL's types. Whole numbers become `int`, so that `args.amount * 2 > 100` works.
fn cel_value(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(value) => cel::Value::Bool(*value),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => cel::Value::Int(number),
            (None, Some(number)) => cel::Value::UInt(number),
            (None, None) => cel::Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => cel::Value::String(Arc::new(text.clone())),
        Value::Array(items) => cel::Value::List(Arc::new(items.iter().map(cel_value).collect())),
        Value::Object(object) => {
            let entry =
                |(name, value): (&String, &Value)| (Key::from(name.clone()), cel_value(value));
            cel::Value::Map(Map { map: Arc::new(object.iter().map(entry).collect()) })
        }
    }
}

#[cfg(test)]
mod tests;
