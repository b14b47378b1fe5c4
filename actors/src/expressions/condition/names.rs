//! Finds names in an expression that mean nothing, so that it would fail whenever they are reached.

use std::sync::Arc;

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr};
use cel::{Context, Env, IdedExpr, Value};

/// The variables that every condition has.
const VARIABLES: [&str; 4] = ["args", "principal", "conversation", "message"];

/// The first variable or function that no condition has.
pub(super) fn unknown_name(expression: &IdedExpr, env: &Arc<Env>) -> Option<String> {
    let mut context = Context::with_env(Arc::clone(env));
    for name in VARIABLES {
        context.add_variable_from_value(name, Value::Null);
    }
    Names { context, env }.unknown_in(expression, &[])
}

struct Names<'a> {
    context: Context<'a, 'a>,
    env: &'a Arc<Env>,
}

impl Names<'_> {
    /// Looks below the expression, in which the names of loop variables are also known.
    fn unknown_in(&self, expression: &IdedExpr, bound: &[&str]) -> Option<String> {
        let unknown = |inner: &IdedExpr| self.unknown_in(inner, bound);
        match &expression.expr {
            Expr::Unspecified | Expr::Literal(_) => None,
            Expr::Ident(name) => {
                let is_known = bound.contains(&name.as_str())
                    || Value::resolve(expression, &self.context).is_ok();
                (!is_known).then(|| name.clone())
            }
            Expr::Select(select) => unknown(&select.operand),
            Expr::Call(call) => self.unknown_in_call(call, bound),
            Expr::Comprehension(comprehension) => self.unknown_in_loop(comprehension, bound),
            Expr::List(list) => list.elements.iter().find_map(unknown),
            Expr::Map(map) => map.entries.iter().find_map(|it| self.in_entry(&it.expr, bound)),
            Expr::Struct(it) => it.entries.iter().find_map(|it| self.in_entry(&it.expr, bound)),
        }
    }

    fn unknown_in_call(&self, call: &CallExpr, bound: &[&str]) -> Option<String> {
        let name = &call.func_name;
        // Operators have names that no expression can spell.
        let is_operator = !name.starts_with(|c: char| c.is_ascii_alphabetic());
        let namespace = match call.target.as_deref().map(|target| &target.expr) {
            Some(Expr::Ident(target)) => Some(format!("{target}.{name}")),
            Some(_) | None => None,
        };
        let is_namespaced = namespace.is_some_and(|name| self.is_function(&name));
        if !is_operator && !is_namespaced && !self.is_function(name) {
            return Some(format!("{name}()"));
        }
        let target = call.target.as_deref().filter(|_| !is_namespaced);
        call.args.iter().chain(target).find_map(|inner| self.unknown_in(inner, bound))
    }

    fn unknown_in_loop(&self, it: &ComprehensionExpr, bound: &[&str]) -> Option<String> {
        let mut inner = bound.to_vec();
        inner.extend([it.iter_var.as_str(), it.accu_var.as_str()]);
        inner.extend(it.iter_var2.as_deref());
        let outside = [&it.iter_range, &it.accu_init];
        let inside = [&it.loop_cond, &it.loop_step, &it.result];
        let unknown = outside.into_iter().find_map(|part| self.unknown_in(part, bound));
        unknown.or_else(|| inside.into_iter().find_map(|part| self.unknown_in(part, &inner)))
    }

    fn in_entry(&self, entry: &EntryExpr, bound: &[&str]) -> Option<String> {
        match entry {
            EntryExpr::StructField(field) => self.unknown_in(&field.value, bound),
            EntryExpr::MapEntry(entry) => {
                let key = self.unknown_in(&entry.key, bound);
                key.or_else(|| self.unknown_in(&entry.value, bound))
            }
        }
    }

    /// A name can be given to a function of one's own unless the library has one of that name.
    fn is_function(&self, name: &str) -> bool {
        let mut context = Context::with_env(Arc::clone(self.env));
        context.add_function(name, |value: i64| value).is_err()
    }
}
