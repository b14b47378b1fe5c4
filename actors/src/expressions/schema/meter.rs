//! The meter of a check: it counts steps, and ends a check that takes too many.
//!
//! The library that evaluates schemas has no limits, but reads the checked value only through
//! [`super::metered`]. So every read is charged here, and the bounds of a schema
//! ([`super::bounds`]) limit the work between two reads.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::patterns::MatchCost;

/// The stack is looked at after this many steps at most.
const MAX_STEPS_PER_LOOK: u64 = 64;
/// Paths of longer names are charged with each error.
const MAX_SHORT_NAME_BYTES: usize = 256;
/// Bytes of a path that are copied in one step.
const PATH_BYTES_PER_STEP: u64 = 64;

/// What one evaluation may use.
#[derive(Clone, Copy)]
pub(super) struct Budget {
    /// A step is one read of the checked value, some 10 to 40 ns.
    pub(super) steps: u64,
    /// The processor time of this thread: a backstop, since steps differ in cost.
    pub(super) processor_time: Option<Duration>,
    pub(super) stack_bytes: usize,
    /// The most subschemas that are applied to one value, and may run between two reads.
    pub(super) in_place: u64,
    /// What a string costs that is matched.
    pub(super) match_cost: MatchCost,
    /// What an error costs.
    pub(super) steps_per_error: u64,
}

/// The budget did not suffice.
#[derive(Debug, PartialEq)]
pub(super) struct ExhaustedError;

/// Runs the work, whose reads are charged, and ends it when the budget is used up.
///
/// The library cannot return early, so exhaustion leaves it by unwinding, with `resume_unwind`,
/// which calls no panic hook: nothing is wrong, and nothing must be logged. A panic of the library
/// itself also counts as exhaustion; the hook has logged it by then.
pub(super) fn run_within<T>(
    budget: &Budget,
    work: impl FnOnce() -> T,
) -> Result<T, ExhaustedError> {
    METER.with(|meter| meter.start(budget));
    let result = catch_unwind(AssertUnwindSafe(work));
    METER.with(Meter::stop);
    result.map_err(|_| ExhaustedError)
}

/// Charges for reading the checked value.
pub(super) fn charge(steps: u64) {
    METER.with(|meter| meter.charge(steps));
}

/// Charges for a string that may be matched against a pattern or a format.
pub(super) fn charge_match(text: &str) {
    METER.with(|meter| meter.charge(meter.match_cost.get().steps(text.len())));
}

/// Charges for an error, which copies parts of the schema, and the path to the value.
pub(super) fn charge_error() {
    METER.with(|meter| {
        let path = meter.long_name_bytes.get() / PATH_BYTES_PER_STEP;
        meter.charge(meter.steps_per_error.get().saturating_add(path));
    });
}

/// Charges for a member's name, which may be matched, and is part of the paths in errors.
pub(super) fn charge_name(name: &str) {
    charge_match(name);
    if name.len() > MAX_SHORT_NAME_BYTES {
        let bytes = u64::try_from(name.len()).unwrap_or(u64::MAX);
        METER.with(|meter| {
            meter.long_name_bytes.set(meter.long_name_bytes.get().saturating_add(bytes));
        });
    }
}

thread_local! {
    static METER: Meter = const { Meter::new() };
}

struct Meter {
    steps_left: Cell<u64>,
    /// The stack and the time are looked at when fewer steps than this are left.
    next_look: Cell<u64>,
    steps_per_look: Cell<u64>,
    stack_start: Cell<usize>,
    stack_bytes: Cell<usize>,
    /// The thread's processor time at which the check ends.
    deadline: Cell<Option<Duration>>,
    match_cost: Cell<MatchCost>,
    steps_per_error: Cell<u64>,
    /// The long names that were read.
    long_name_bytes: Cell<u64>,
}

impl Meter {
    const fn new() -> Self {
        Self {
            steps_left: Cell::new(u64::MAX),
            next_look: Cell::new(0),
            steps_per_look: Cell::new(MAX_STEPS_PER_LOOK),
            stack_start: Cell::new(0),
            stack_bytes: Cell::new(usize::MAX),
            deadline: Cell::new(None),
            match_cost: Cell::new(MatchCost::FREE),
            steps_per_error: Cell::new(0),
            long_name_bytes: Cell::new(0),
        }
    }

    fn start(&self, budget: &Budget) {
        self.steps_left.set(budget.steps);
        // Many subschemas may be evaluated between two reads; then each read is looked at.
        self.steps_per_look.set((4_096 / budget.in_place.max(1)).clamp(1, MAX_STEPS_PER_LOOK));
        self.next_look.set(budget.steps.saturating_sub(self.steps_per_look.get()));
        self.stack_start.set(stack_address());
        self.stack_bytes.set(budget.stack_bytes);
        self.deadline.set(budget.processor_time.map(|time| processor_time() + time));
        self.match_cost.set(budget.match_cost);
        self.steps_per_error.set(budget.steps_per_error);
        self.long_name_bytes.set(0);
    }

    fn stop(&self) {
        self.steps_left.set(u64::MAX);
        self.next_look.set(0);
    }

    fn charge(&self, steps: u64) {
        let Some(left) = self.steps_left.get().checked_sub(steps) else { leave() };
        self.steps_left.set(left);
        if left < self.next_look.get() {
            self.look(left);
        }
    }

    #[cold]
    fn look(&self, left: u64) {
        self.next_look.set(left.saturating_sub(self.steps_per_look.get()));
        let is_late = self.deadline.get().is_some_and(|deadline| processor_time() >= deadline);
        let used = self.stack_start.get().abs_diff(stack_address());
        if is_late || used > self.stack_bytes.get() {
            leave();
        }
    }
}

fn leave() -> ! {
    resume_unwind(Box::new(ExhaustedError))
}

#[inline(never)]
fn stack_address() -> usize {
    let local = 0_u8;
    std::ptr::from_ref(&local).addr()
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Budget = Budget {
        steps: 10_000,
        processor_time: None,
        stack_bytes: 64 * 1024,
        in_place: 1,
        match_cost: MatchCost::FREE,
        steps_per_error: 0,
    };

    #[test]
    fn work_within_its_budget_returns_and_work_beyond_is_ended() {
        let count = |steps: u64| (0..steps).for_each(|_| charge(1));
        assert_eq!(run_within(&BUDGET, || count(10_000)), Ok(()));
        assert_eq!(run_within(&BUDGET, || count(10_001)), Err(ExhaustedError));
        // Outside of a check nothing is charged.
        count(20_000);
    }

    #[test]
    fn work_that_recurses_too_deeply_is_ended() {
        fn recurse(depth: u64) -> u64 {
            charge(1);
            let frame = std::hint::black_box([depth; 64]);
            if depth == 0 { frame[0] } else { recurse(depth - 1) + std::hint::black_box(frame)[1] }
        }
        let budget = Budget { steps: 1_000_000, ..BUDGET };
        assert!(run_within(&budget, || recurse(20)).is_ok());
        assert_eq!(run_within(&budget, || recurse(100_000)), Err(ExhaustedError));
    }

    #[test]
    fn work_that_takes_too_long_is_ended() {
        let budget =
            Budget { steps: u64::MAX, processor_time: Some(Duration::from_millis(1)), ..BUDGET };
        let endless = || {
            loop {
                charge(1);
            }
        };
        assert_eq!(run_within::<()>(&budget, endless), Err(ExhaustedError));
    }
}
