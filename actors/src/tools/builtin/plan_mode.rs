//! `plan_mode`: enters and leaves the phase in which nothing is changed.
