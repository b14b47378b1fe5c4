//! Limits the work of an expression by counting the iterations of its loops from the inside.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators};
use cel::{Context, ExecutionError, IdedExpr};

/// The function that a metered expression calls in every iteration; no identifier can spell it.
const ROUND_FUNCTION: &str = "@round";
/// Steps that one evaluation may take.
const MAX_STEPS: i64 = 20_000;
/// The steps of one call of `matches`, which compiles its pattern every time.
const PATTERN_STEPS: i64 = 100;

/// The steps that one evaluation has left.
pub(super) struct StepBudget(Arc<AtomicI64>);

impl Default for StepBudget {
    fn default() -> Self {
        Self(Arc::new(AtomicI64::new(MAX_STEPS)))
    }
}

impl StepBudget {
    /// Makes the metered expressions of a context spend this budget.
    pub(super) fn attach(&self, context: &mut Context<'_, '_>) -> Option<()> {
        let left = Arc::clone(&self.0);
        let round = move |cost: i64| -> Result<bool, ExecutionError> {
            if left.fetch_sub(cost, Ordering::Relaxed) >= cost {
                Ok(true)
            } else {
                Err(ExecutionError::function_error("round", "step budget exceeded"))
            }
        };
        context.add_function(ROUND_FUNCTION, round).ok()
    }
}

/// How deep an expression nests.
pub(super) fn depth(expression: &IdedExpr) -> usize {
    let entry = |entry: &EntryExpr| match entry {
        EntryExpr::StructField(field) => depth(&field.value),
        EntryExpr::MapEntry(entry) => depth(&entry.key).max(depth(&entry.value)),
    };
    let deepest = match &expression.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => None,
        Expr::Call(call) => call.args.iter().chain(call.target.as_deref()).map(depth).max(),
        Expr::Comprehension(it) => {
            let within = [&it.iter_range, &it.accu_init, &it.loop_cond, &it.loop_step, &it.result];
            within.into_iter().map(depth).max()
        }
        Expr::List(list) => list.elements.iter().map(depth).max(),
        Expr::Map(map) => map.entries.iter().map(|it| entry(&it.expr)).max(),
        Expr::Struct(it) => it.entries.iter().map(|it| entry(&it.expr)).max(),
        Expr::Select(select) => Some(depth(&select.operand)),
    };
    1 + deepest.unwrap_or(0)
}

/// Rewrites the expression so that every iteration of every loop spends steps.
pub(super) fn with_step_budget(mut expression: IdedExpr) -> IdedExpr {
    match &mut expression.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
        Expr::Call(call) => {
            meter_each(call.target.as_deref_mut());
            meter_each(&mut call.args);
        }
        Expr::Comprehension(comprehension) => meter_loop(comprehension),
        Expr::List(list) => meter_each(&mut list.elements),
        Expr::Map(map) => map.entries.iter_mut().for_each(|entry| meter_entry(&mut entry.expr)),
        Expr::Struct(it) => it.entries.iter_mut().for_each(|entry| meter_entry(&mut entry.expr)),
        Expr::Select(select) => meter_each([&mut *select.operand]),
    }
    expression
}

fn meter_each<'e>(expressions: impl IntoIterator<Item = &'e mut IdedExpr>) {
    for expression in expressions {
        *expression = with_step_budget(std::mem::take(expression));
    }
}

fn meter_entry(entry: &mut EntryExpr) {
    match entry {
        EntryExpr::StructField(field) => meter_each([&mut field.value]),
        EntryExpr::MapEntry(entry) => meter_each([&mut entry.key, &mut entry.value]),
    }
}

fn meter_loop(comprehension: &mut ComprehensionExpr) {
    let cost = 1 + PATTERN_STEPS * pattern_count(&comprehension.loop_step);
    meter_each([
        &mut comprehension.iter_range,
        &mut comprehension.accu_init,
        &mut comprehension.loop_cond,
        &mut comprehension.loop_step,
        &mut comprehension.result,
    ]);
    let slot = metered_operand(comprehension);
    let operand = std::mem::take(slot);
    let round = call(ROUND_FUNCTION, vec![literal(LiteralValue::Int(cost.into()))]);
    let never = literal(LiteralValue::Boolean(false.into()));
    *slot = call(operators::CONDITIONAL, vec![round, operand, never]);
}

/// The operand that a comprehension evaluates in every iteration: the guard or the item of a `map`
/// or `filter`, whose shape must stay so that the library appends in place, else the loop
/// condition.
fn metered_operand(comprehension: &mut ComprehensionExpr) -> &mut IdedExpr {
    let ComprehensionExpr { loop_step, loop_cond, .. } = comprehension;
    match &mut loop_step.expr {
        Expr::Call(step) => match (step.func_name.as_str(), step.args.as_mut_slice()) {
            (operators::CONDITIONAL, [guard, step, _]) if appends(step) => guard,
            (operators::ADD, [_, list]) => appended_item(list).unwrap_or(loop_cond),
            _ => loop_cond,
        },
        Expr::Unspecified
        | Expr::Ident(_)
        | Expr::Literal(_)
        | Expr::Comprehension(_)
        | Expr::List(_)
        | Expr::Map(_)
        | Expr::Struct(_)
        | Expr::Select(_) => loop_cond,
    }
}

/// Whether the step is `list + [item]`.
fn appends(step: &IdedExpr) -> bool {
    let Expr::Call(step) = &step.expr else { return false };
    let list = |arg: &IdedExpr| matches!(&arg.expr, Expr::List(list) if !list.elements.is_empty());
    step.func_name == operators::ADD && step.args.get(1).is_some_and(list)
}

fn appended_item(list: &mut IdedExpr) -> Option<&mut IdedExpr> {
    let Expr::List(list) = &mut list.expr else { return None };
    list.elements.first_mut()
}

/// The number of patterns that one iteration may compile; nested loops are counted by themselves.
fn pattern_count(expression: &IdedExpr) -> i64 {
    let all = |them: &[IdedExpr]| them.iter().map(pattern_count).sum::<i64>();
    match &expression.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) | Expr::Comprehension(_) => 0,
        Expr::Call(call) => {
            let own = i64::from(call.func_name == "matches");
            own + call.target.as_deref().map_or(0, pattern_count) + all(&call.args)
        }
        Expr::List(list) => all(&list.elements),
        Expr::Map(map) => map.entries.iter().map(|entry| entry_pattern_count(&entry.expr)).sum(),
        Expr::Struct(it) => it.entries.iter().map(|entry| entry_pattern_count(&entry.expr)).sum(),
        Expr::Select(select) => pattern_count(&select.operand),
    }
}

fn entry_pattern_count(entry: &EntryExpr) -> i64 {
    match entry {
        EntryExpr::StructField(field) => pattern_count(&field.value),
        EntryExpr::MapEntry(entry) => pattern_count(&entry.key) + pattern_count(&entry.value),
    }
}

fn call(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    let expr = Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args });
    IdedExpr { id: 0, expr }
}

fn literal(value: LiteralValue) -> IdedExpr {
    IdedExpr { id: 0, expr: Expr::Literal(value) }
}
