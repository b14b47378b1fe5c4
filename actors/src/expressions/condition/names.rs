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

/// Whether the expression reads members of this variable, and nothing else of it.
pub(super) fn reads_only_members(expression: &IdedExpr, variable: &str) -> bool {
    let (mut members, mut whole) = (0_usize, 0_usize);
    count_uses(expression, variable, &mut members, &mut whole);
    members > 0 && whole == 0
}

fn count_uses(expression: &IdedExpr, variable: &str, members: &mut usize, whole: &mut usize) {
    let mut each = |inner: &IdedExpr| count_uses(inner, variable, members, whole);
    match &expression.expr {
        Expr::Unspecified | Expr::Literal(_) => {}
        Expr::Ident(name) => *whole += usize::from(name == variable),
        Expr::Select(select) => match &select.operand.expr {
            Expr::Ident(name) if name == variable => *members += 1,
            _ => each(&select.operand),
        },
        Expr::Call(call) => call.args.iter().chain(call.target.as_deref()).for_each(each),
        Expr::Comprehension(it) => {
            let within = [&it.iter_range, &it.accu_init, &it.loop_cond, &it.loop_step, &it.result];
            within.into_iter().for_each(&mut each);
        }
        Expr::List(list) => list.elements.iter().for_each(each),
        Expr::Map(map) => map.entries.iter().for_each(|it| in_parts(&it.expr, &mut each)),
        Expr::Struct(it) => it.entries.iter().for_each(|it| in_parts(&it.expr, &mut each)),
    }
}

fn in_parts(entry: &EntryExpr, each: &mut impl FnMut(&IdedExpr)) {
    match entry {
        EntryExpr::StructField(field) => each(&field.value),
        EntryExpr::MapEntry(entry) => {
            each(&entry.key);
            each(&entry.value);
        }
    }
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
