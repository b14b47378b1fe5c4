//! Tests that conditions are true in doubt, and that they end.

#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;

fn is_true(source: &str, args: Value) -> bool {
    let conversation = json!({"id": "c1", "assigns": {"limit": 10}, "metadata": {}});
    let values = json!({"args": args, "principal": "ann", "conversation": conversation});
    Condition::compile(source).unwrap().is_true_or_fails(values)
}

#[test]
fn a_condition_sees_arguments_principal_and_conversation() {
    for amount in [json!(101), json!(100.5), json!(u64::MAX)] {
        assert!(is_true("args.amount > 100", json!({"amount": amount})));
    }
    for amount in [json!(100), json!(99.5), json!(-1)] {
        assert!(!is_true("args.amount > 100", json!({"amount": amount})));
    }
    assert!(!is_true("principal != 'ann'", json!({})));
    assert!(!is_true("conversation.id != 'c1' || conversation.assigns.limit * 2 > 20", json!({})));
    assert!(!is_true("has(args.to) && args.to.endsWith('.org')", json!({"to": "a@b.c"})));
    assert!(!is_true("args.to.exists(to, !to.matches('^[a-z]+$'))", json!({"to": ["a", "b"]})));
    assert!(!is_true("args.l.map(x, x * 2).filter(x, x > 3).size() > 2", json!({"l": [1, 2, 3]})));
}

#[test]
fn a_condition_that_fails_or_is_not_boolean_asks() {
    for source in ["args.amount > 100", "args.amount", "1", "'text'", "args", "1 / 0 == 1"] {
        assert!(is_true(source, json!({"amount": "text"})), "{source}");
        assert!(is_true(source, json!({})), "{source}");
    }
    assert!(is_true("args.n + 1 == 0", json!({"n": i64::MAX})));
}

#[test]
fn a_condition_that_does_not_compile_is_refused() {
    for bad in ["", "args.", "args.x >", &"(".repeat(2000), "a b"] {
        assert!(Condition::compile(bad).is_err(), "{bad}");
    }
    let long = format!("{} > 1", "1 + ".repeat(2000) + "1");
    assert!(Condition::compile(&long).is_err());
}

#[test]
fn a_name_that_no_condition_has_is_refused() {
    for (source, name) in [
        ("nosuch(args)", "nosuch()"),
        ("args.to.nosuch()", "nosuch()"),
        ("amount > 100", "amount"),
        ("args.amount > 1 || [1, amount].size() > 0", "amount"),
        ("args.l.exists(x, x > y)", "y"),
        ("args.l.exists(x, x > 1) && x > 1", "x"),
        ("{'a': amount}.a > 1", "amount"),
        ("nosuch.of(args)", "nosuch.of"),
    ] {
        let why = Condition::compile(source).unwrap_err();
        assert!(why.contains(name.split('.').next_back().unwrap()), "{source}: {why}");
    }
    for source in [
        "args.l.all(x, args.m.exists(y, x == y))",
        "type(args.n) == int || string(args.n) == '1'",
        "optional.of(args).hasValue()",
        "'a' in args.l && !(-args.n in [1u, 2u]) && size(args.l) > 0 ? true : args.x[0] == null",
        "args.t.startsWith('a') || args.t.contains(principal) || args.t.matches('b')",
        "double(args.n) > 1.5 && int('1') == 1 && uint(1) == 1u && bool('true')",
    ] {
        assert!(Condition::compile(source).is_ok(), "{source}: {:?}", Condition::compile(source));
    }
}

#[test]
fn loops_within_loops_are_cut_short_and_ask() {
    let args = json!({"l": vec![1; 1000]});
    let deep = "args.l.exists(a, args.l.exists(b, args.l.exists(c, a + b + c > 3)))";
    assert!(is_true(deep, args.clone()));
    assert!(is_true("args.l.map(a, args.l.map(b, args.l.map(c, 1))).size() < 0", args.clone()));
    assert!(is_true("args.l.exists(a, args.p.matches('x'))", json!({"l": vec![1; 300], "p": "y"})));
    assert!(!is_true("args.l.exists(a, a > 1)", args));
}

#[test]
fn more_than_a_condition_can_look_at_asks() {
    assert!(is_true("false", json!({"text": "x".repeat(MAX_INPUT_BYTES)})));
    assert!(!is_true("false", json!({"text": "x".repeat(MAX_INPUT_BYTES / 2)})));
}
#[test]
fn nesting_ends_in_a_refusal_and_never_in_an_overflow() {
    let nested = |open: &str, close: &str, n: usize| open.repeat(n) + "1" + &close.repeat(n);
    for source in [
        nested("(", ")", 95),
        nested("(", ")", 1300),
        nested("size([", "])", 45),
        nested("[", "]", 1300),
        nested("{1: ", "}", 600),
        nested("true ? 1 : ", "", 90),
        nested("1 + ", "", 1000),
        nested("!", "", 3000),
        "args".to_owned() + &".a".repeat(1500),
        "args".to_owned() + &"[0]".repeat(1300),
        nested("[1].exists(x, ", ")", 90),
    ] {
        let _ = Condition::compile(&source)
            .map(|condition| condition.is_true_or_fails(json!({"args": {}})));
    }
    let sum = |n| Condition::compile(&(nested("1 + ", "", n) + " < 0"));
    assert!(!sum(40).unwrap().is_true_or_fails(json!({})));
    assert!(sum(100).unwrap_err().contains("deep"));
}
