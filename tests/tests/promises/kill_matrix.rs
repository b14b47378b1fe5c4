//! The kill matrix is complete, its page in the book has every row, and its most important rows hold.

use std::collections::BTreeSet;
use std::path::Path;

use abide_tests::kill_matrix::{Break, POINTS, break_at, missing_rows, observed_points};

use crate::ABIDE;

const KILL_MATRIX_PAGE: &str = include_str!("../../../deploy/docs/src/architecture/kill-matrix.md");

#[tokio::test]
async fn every_await_point_of_a_turn_is_in_the_kill_matrix() {
    let observed = observed_points(Path::new(ABIDE)).await.unwrap();
    let observed: BTreeSet<&str> = observed.iter().map(String::as_str).collect();
    let known: BTreeSet<&str> = POINTS.iter().map(|point| point.name).collect();
    assert_eq!(observed, known, "change the list, run the kill-matrix program, commit its page");
}

#[test]
fn every_place_of_the_kill_matrix_has_a_row_in_the_book() {
    assert_eq!(
        missing_rows(KILL_MATRIX_PAGE),
        [""; 0],
        "run the kill-matrix program, commit its page"
    );
}

#[tokio::test]
async fn a_node_that_dies_around_the_write_of_a_message_loses_and_doubles_nothing() {
    break_at(Path::new(ABIDE), "append: created, user_msg, turn_started", Break::Node)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_redis_that_dies_around_the_write_of_an_approval_loses_and_doubles_nothing() {
    let point = "append: resolution, decision_remembered, tool_started";
    break_at(Path::new(ABIDE), point, Break::Redis).await.unwrap();
}

#[tokio::test]
async fn a_link_that_breaks_around_the_write_of_a_result_loses_and_doubles_nothing() {
    break_at(Path::new(ABIDE), "append: tool_result", Break::Link).await.unwrap();
}
