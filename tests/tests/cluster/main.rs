//! One node as a real process: it is killed at any moment and restarted, and nothing is lost.
#![allow(clippy::unwrap_used)]

mod a2a;
mod a2a_client;
mod a2a_interrupted;
mod after_kill;
mod ag_ui;
mod ag_ui_agent;
mod ag_ui_copilotkit;
mod agents;
mod ai_sdk;
mod ai_sdk_interrupted;
mod authentication;
mod book_walks;
mod chat_page;
mod client_packages;
mod client_workers;
mod clients;
mod commands;
mod console;
mod console_extremes;
mod deadlines;
mod drained_streams;
mod example_app;
mod failing_tools;
mod fuzz;
mod hooks;
mod idempotency;
mod invalid_config;
mod kill_points;
mod many_parked;
mod mcp;
mod mcp_client;
mod mcp_server;
mod models;
mod notices;
mod oidc;
mod openai;
mod openai_client;
mod openai_interrupted;
mod operators;
mod outcomes;
mod pages;
mod react_pages;
mod repeated_kills;
mod shutdown;
mod streams;
mod telemetry;
mod tool_errors;
mod tools;
mod unread_streams;
mod workers;
mod workspaces;

/// The program, built from the sources of package `abide` for these tests.
const ABIDE: &str = env!("CARGO_BIN_EXE_abide-under-test");
