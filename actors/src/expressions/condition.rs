//! Conditions of an approval, in CEL: one that fails, or takes too long, asks.

mod step_budget;

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use cel::objects::{Key, Map};
use cel::{Context, Env, IdedExpr};
use serde_json::Value;

use super::big_stack::aside;
use crate::limits::{encoded_len, one_line};
use step_budget::Meter;

/// The longest expression.
const LONGEST_SOURCE: usize = 4_096;
/// The most that a condition looks at; beyond it a person does.
const LARGEST_INPUT: usize = 256 * 1024;
/// The deepest nesting; a level of evaluation takes up to 40 kB of stack.
const DEEPEST: usize = 64;
/// Compiling may take this long, on the busiest machine.
const LONGEST_COMPILE: Duration = Duration::from_secs(10);
/// The conversation waits for its condition no longer than this.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// The longest message of the parser that is passed on.
const LONGEST_MESSAGE: usize = 300;

static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// A compiled condition.
///
/// The library bounds neither the time nor the stack of an evaluation. Here every round of every
/// `all`, `exists`, `map` … is counted, a pattern in it a hundredfold, up to 20,000; nesting is
/// bounded; and the work is done on a thread with a large stack, for which nobody waits longer than
/// a second. What goes over any of that asks.
#[derive(Clone)]
pub struct Condition {
    source: String,
    metered: Arc<IdedExpr>,
}

impl Condition {
    /// Compiles an expression, at most 4 kB. An unknown name in it fails when evaluated.
    pub fn compile(source: &str) -> Result<Self, String> {
        if source.len() > LONGEST_SOURCE {
            return Err(format!("must be at most {LONGEST_SOURCE} bytes"));
        }
        let owned = source.to_owned();
        let compiled = aside(LONGEST_COMPILE, move || {
            let program = ENV.compile(&owned).map_err(|errors| {
                format!("does not compile: {}", one_line(&errors.to_string(), LONGEST_MESSAGE))
            })?;
            let expression = program.expression();
            if step_budget::depth(expression) > DEEPEST {
                return Err(format!("must nest at most {DEEPEST} deep"));
            }
            Ok(Arc::new(step_budget::metered(expression.clone())))
        });
        let metered = compiled.unwrap_or_else(|| Err("does not compile".to_owned()))?;
        Ok(Self { source: source.to_owned(), metered })
    }

    /// Whether a person must be asked: true unless the condition is plainly false.
    pub fn asks(&self, values: Value) -> bool {
        if encoded_len(&values) > LARGEST_INPUT {
            return true;
        }
        let metered = Arc::clone(&self.metered);
        let evaluated = aside(LONGEST_WAIT, move || evaluate(&metered, &values));
        evaluated.flatten().unwrap_or(true)
    }
}

fn evaluate(metered: &IdedExpr, values: &Value) -> Option<bool> {
    let mut context = Context::with_env(Arc::clone(&ENV));
    Meter::default().attach(&mut context)?;
    for (name, value) in values.as_object()? {
        context.add_variable_from_value(name.as_str(), cel_value(value));
    }
    match cel::Value::resolve(metered, &context) {
        Ok(cel::Value::Bool(asks)) => Some(asks),
        Ok(_) | Err(_) => None,
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Condition").field(&self.source).finish()
    }
}

/// JSON in CEL's types: whole numbers are `int`, so that `args.amount * 2 > 100` works.
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
