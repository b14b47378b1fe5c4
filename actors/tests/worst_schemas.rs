//! What the worst accepted schemas take: the numbers of `reference/limits.md`.
//!
//! ```sh
//! cargo test --release -p abide-actors --test worst_schemas -- --nocapture
//! ```

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::time::Duration;

use abide_actors::expressions::schema::Schema;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};

/// Compiled schemas are counted by many copies, since memory is given in pages.
const COPIES: usize = 16;
const MAX_COMPILED_BYTES: usize = 16 << 20;
/// Twice what a check is promised to take: a check that reads no more is ended by its budget, and one
/// that works without reading is not.
const MAX_CHECK: Duration = Duration::from_millis(100);
/// Code that is not optimised takes this much longer.
const SLOWNESS: u32 = if cfg!(debug_assertions) { 20 } else { 1 };

/// The processor time of this process.
fn processor_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap()
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

fn objects(count: usize, value: impl Fn(usize) -> Value) -> Value {
    (0..count).map(|at| (format!("p{at}"), value(at))).collect::<Map<_, _>>().into()
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!({"a": inner}))
}

fn unevaluated(levels: usize) -> Value {
    let recursive = json!({"properties": {"a": {"$ref": "#"}}});
    let wrap = |inner, _| json!({"allOf": [inner], "unevaluatedProperties": false});
    (0..levels).fold(recursive, wrap)
}

/// All binary trees of this many leaves.
fn trees(leaves: usize) -> Vec<Value> {
    if leaves == 1 {
        return vec![json!(0)];
    }
    let mut all = Vec::new();
    for left in 1..leaves {
        for one in trees(left) {
            all.extend(trees(leaves - left).into_iter().map(|other| json!([one, other])));
        }
    }
    all
}

/// A schema, and a value that is costly to check against it.
type Case = (&'static str, Value, Box<dyn Fn() -> Value>);

/// The worst of some hundred schemas and values that were tried: in memory, and in time.
fn cases() -> Vec<Case> {
    let numbers = || Value::from(vec![1; 400_000]);
    let strings = || objects(60_000, |_| json!("x"));
    let text = |_| json!({"type": "string"});
    let next = |at: usize| json!({"properties": {"a": {"$ref": format!("#/$defs/p{}", at + 1)}}});
    let link = move |at| if at < 1_500 { next(at) } else { text(at) };
    let case = |name: &str| json!({"type": "object", "required": [name], "properties": {"a": {"$ref": "#/$defs/n"}}});
    let choice = json!({"anyOf": [case("x"), case("y"), case("z")]});
    let letters = |at| json!({"pattern": format!("^[\\p{{L}}\\p{{N}} ]{{1,3}}x{at}$")});
    let letters: Vec<_> = (0..20).map(letters).collect();
    let hundred = json!({"allOf": vec![json!({}); 95]});
    let twice = json!({"allOf": vec![json!({"$ref": "#/$defs/a"}); 95]});
    let short = vec![json!({"minLength": 1}); 1_000];
    let chain = json!({"$ref": "#/$defs/p0", "$defs": objects(1_501, link)});
    vec![
        ("properties", json!({"properties": objects(3_900, text)}), Box::new(strings)),
        ("alternatives", json!({"items": {"anyOf": vec![text(0); 3_900]}}), Box::new(numbers)),
        ("a chain", chain, Box::new(|| nested(120))),
        ("patterns", json!({"allOf": letters}), Box::new(|| json!("ab cé".repeat(100_000)))),
        ("items", json!({"items": {"allOf": vec![json!({}); 3_900]}}), Box::new(numbers)),
        ("references", json!({"$defs": {"a": hundred}, "items": twice}), Box::new(numbers)),
        ("unevaluated", unevaluated(6), Box::new(|| nested(120))),
        ("names", json!({"propertyNames": {"allOf": short}}), Box::new(strings)),
        (
            "a choice",
            json!({"$ref": "#/$defs/n", "$defs": {"n": choice}}),
            Box::new(|| nested(120)),
        ),
        (
            "fractions",
            json!({"items": {"multipleOf": 0.0001}}),
            Box::new(|| Value::from(vec![1e300; 200_000])),
        ),
        ("trees", json!({"uniqueItems": true}), Box::new(|| Value::from(trees(10)))),
    ]
}

#[test]
fn the_worst_accepted_schemas_keep_their_bounds() {
    let cases = cases();
    let mut all = Vec::new();
    let mut worst_bytes = 0;
    for (name, schema, _) in &cases {
        let before = resident_bytes();
        let copies: Vec<_> = (0..COPIES).map(|_| Schema::compile(schema).unwrap()).collect();
        let bytes = resident_bytes().saturating_sub(before) / COPIES;
        println!("{name}: {} kB compiled", bytes / 1_000);
        assert!(bytes <= MAX_COMPILED_BYTES, "{name}: {bytes} bytes");
        worst_bytes = worst_bytes.max(bytes);
        // Nothing is freed meanwhile, so that all that is compiled takes new memory.
        all.push(copies);
    }
    let mut worst_check = Duration::ZERO;
    for ((name, _, value), copies) in cases.iter().zip(&all) {
        let value = value();
        let before = processor_time();
        // Whether it is valid matters less than what finding out takes.
        let _ = copies[0].check(&value);
        let check = processor_time() - before;
        println!("{name}: {check:.1?} a check");
        assert!(check <= MAX_CHECK * SLOWNESS, "{name}: {check:?}");
        worst_check = worst_check.max(check);
    }
    println!("the worst: {} kB compiled, {worst_check:.1?} a check", worst_bytes / 1_000);
}
