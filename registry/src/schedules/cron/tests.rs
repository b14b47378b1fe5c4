//! Tests of the times that cron expressions name.

#![allow(clippy::unwrap_used)]

use super::*;

fn zone(name: &str) -> TimeZone {
    TimeZone::get(name).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The next times of an expression, as text.
fn times(cron: &str, zone_name: &str, after: &str, count: usize) -> Vec<String> {
    let (cron, zone) = (Cron::parse(cron).unwrap(), zone(zone_name));
    let mut after = at(after);
    let mut times = Vec::new();
    for _ in 0..count {
        after = cron.next_after(after, &zone).unwrap();
        times.push(after.to_string().replace(":00.000Z", "Z"));
    }
    times
}

#[test]
fn an_expression_names_its_times() {
    for (cron, expected) in [
        ("* * * * *", ["2026-11-26T06:01Z", "2026-11-26T06:02Z"]),
        ("30 7 * * *", ["2026-11-26T07:30Z", "2026-11-27T07:30Z"]),
        ("*/20 * * * *", ["2026-11-26T06:20Z", "2026-11-26T06:40Z"]),
        ("5/30 6 * * *", ["2026-11-26T06:05Z", "2026-11-26T06:35Z"]),
        ("0 9-17/4 * * mon-fri", ["2026-11-26T09:00Z", "2026-11-26T13:00Z"]),
        ("0 0 * * 7", ["2026-11-29T00:00Z", "2026-12-06T00:00Z"]),
        ("0 0 * * SUN,Wed", ["2026-11-29T00:00Z", "2026-12-02T00:00Z"]),
        ("0 0 1 jan *", ["2027-01-01T00:00Z", "2028-01-01T00:00Z"]),
        ("0 0 31 * *", ["2026-12-31T00:00Z", "2027-01-31T00:00Z"]),
        ("0 0 29 2 *", ["2028-02-29T00:00Z", "2032-02-29T00:00Z"]),
        ("@yearly", ["2027-01-01T00:00Z", "2028-01-01T00:00Z"]),
        ("@monthly", ["2026-12-01T00:00Z", "2027-01-01T00:00Z"]),
        ("@weekly", ["2026-11-29T00:00Z", "2026-12-06T00:00Z"]),
        ("@daily", ["2026-11-27T00:00Z", "2026-11-28T00:00Z"]),
        ("@midnight", ["2026-11-27T00:00Z", "2026-11-28T00:00Z"]),
        ("@hourly", ["2026-11-26T07:00Z", "2026-11-26T08:00Z"]),
    ] {
        assert_eq!(times(cron, "UTC", "2026-11-26T06:00:00Z", 2), expected, "{cron}");
    }
}

#[test]
fn either_of_two_kinds_of_day_suffices_if_both_are_limited() {
    let thirteenth_or_friday = times("0 0 13 * 5", "UTC", "2026-11-26T06:00:00Z", 4);
    let expected =
        ["2026-11-27T00:00Z", "2026-12-04T00:00Z", "2026-12-11T00:00Z", "2026-12-13T00:00Z"];
    assert_eq!(thirteenth_or_friday, expected);
    assert_eq!(times("0 0 */2 * 5", "UTC", "2026-11-26T06:00:00Z", 1), ["2026-11-27T00:00Z"]);
}

#[test]
fn a_leap_day_is_found_across_a_century_without_one() {
    assert_eq!(times("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", 1), ["2104-02-29T00:00Z"]);
}

#[test]
fn an_expression_that_never_comes_true_has_no_next_time() {
    for cron in ["0 0 30 2 *", "0 0 31 4,6,9,11 *"] {
        let cron = Cron::parse(cron).unwrap();
        assert_eq!(cron.next_after(at("2026-11-26T06:00:00Z"), &TimeZone::UTC), None);
    }
}

#[test]
fn what_is_no_expression_is_refused_by_its_field() {
    for (cron, why) in [
        ("", "five fields"),
        ("* * * *", "five fields"),
        ("* * * * * *", "five fields"),
        ("@often", "@yearly"),
        ("60 * * * *", "the minute \"60\""),
        ("* 24 * * *", "the hour \"24\""),
        ("* * 0 * *", "the day of the month \"0\""),
        ("* * * 13 *", "the month \"13\""),
        ("* * * * 8", "the day of the week \"8\""),
        ("*/0 * * * *", "no step"),
        ("5-1 * * * *", "ends before it begins"),
        ("1, * * * *", "the minute \"\""),
        ("-1 * * * *", "the minute \"\""),
        ("+1 * * * *", "the minute \"+1\""),
        ("* * * foo *", "the month \"foo\""),
    ] {
        let error = Cron::parse(cron).unwrap_err();
        assert!(error.contains(why), "{cron}: {error}");
    }
}

/// Clocks go from 02:00 to 03:00 on 29 March 2026.
#[test]
fn a_time_that_does_not_exist_runs_at_the_next_that_does() {
    let berlin = |cron, count| times(cron, "Europe/Berlin", "2026-03-28T12:00:00Z", count);
    assert_eq!(berlin("30 2 * * *", 2), ["2026-03-29T01:00Z", "2026-03-30T00:30Z"]);
    // Four times fall into the gap, and are one.
    let quarters = times("*/15 2,3 * * *", "Europe/Berlin", "2026-03-29T00:59:00Z", 3);
    assert_eq!(quarters, ["2026-03-29T01:00Z", "2026-03-29T01:15Z", "2026-03-29T01:30Z"]);
}

/// Clocks go from 03:00 back to 02:00 on 25 October 2026.
#[test]
fn a_time_that_exists_twice_runs_once() {
    let berlin = times("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2);
    assert_eq!(berlin, ["2026-10-25T00:30Z", "2026-10-26T01:30Z"]);
    let between = times("30 2 * * *", "Europe/Berlin", "2026-10-25T00:45:00Z", 1);
    assert_eq!(between, ["2026-10-26T01:30Z"]);
    let second_pass = times("*/30 * * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", 1);
    assert_eq!(second_pass, ["2026-10-25T02:00Z"]);
}

#[test]
fn midnight_may_be_what_does_not_exist() {
    // In Beirut, 29 March 2026 begins at 01:00.
    let beirut = times("@daily", "Asia/Beirut", "2026-03-28T12:00:00Z", 2);
    assert_eq!(beirut, ["2026-03-28T22:00Z", "2026-03-29T21:00Z"]);
}

#[test]
fn an_interval_is_counted_from_its_beginning() {
    let begin = at("2026-11-26T06:00:00Z");
    for (after, next) in [
        ("2026-11-26T05:00:00Z", "2026-11-26T06:00:00Z"),
        ("2026-11-26T06:00:00Z", "2026-11-26T06:00:10Z"),
        ("2026-11-26T06:00:09.999Z", "2026-11-26T06:00:10Z"),
        ("2026-11-26T06:00:10Z", "2026-11-26T06:00:20Z"),
    ] {
        assert_eq!(next_of_interval(begin, 10_000, at(after)), Some(at(next)), "{after}");
    }
    assert_eq!(next_of_interval(begin, u64::MAX, Timestamp::MAX), None);
}

proptest::proptest! {
    #[test]
    fn the_next_time_is_later_and_has_the_values_that_the_expression_names(
        seconds in 1_700_000_000_i64..2_000_000_000,
        minute in 0_u32..60,
        hour in 0_u32..24,
        zone_name in proptest::sample::select(vec![
            "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu",
        ]),
    ) {
        let cron = Cron::parse(&format!("{minute} {hour} * * *")).unwrap();
        let (zone, after) = (zone(zone_name), Timestamp::from_second(seconds).unwrap());
        let next = cron.next_after(after, &zone).unwrap();
        proptest::prop_assert!(next > after);
        let local = zone.to_datetime(*next);
        let wanted = (i8::try_from(hour).unwrap(), i8::try_from(minute).unwrap());
        let was_in_gap = (local.hour(), local.minute()) > wanted;
        proptest::prop_assert!(was_in_gap || (local.hour(), local.minute()) == wanted);
        proptest::prop_assert!(next.duration_since(after).as_hours() <= 50);
    }
}
