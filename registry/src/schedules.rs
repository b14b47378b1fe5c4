//! Schedules: messages that are sent again and again, by the clock.

pub mod cron;
mod schedule;

pub use schedule::{LastTick, MAX_MISSED_TICKS, Missed, Rhythm, Schedule, SentTick, tick_name};
