//! The floors of each crate: a top-level module imports from floors below its own and from nowhere
//! else, so that no two modules import each other in a circle.

use std::collections::BTreeSet;

use crate::sources;

/// A crate, and its top-level modules from the ground floor up. The modules of one floor do not
/// know each other.
struct House {
    source: &'static str,
    floors: &'static [&'static [&'static str]],
}

const HOUSES: [House; 5] = [
    House {
        source: "actors/conversation/src",
        floors: &[
            &[
                "answer_schema",
                "call_args",
                "extent",
                "identity",
                "ids",
                "json",
                "key_value",
                "numbers",
                "timestamp",
                "usage",
            ],
            &["approval", "context", "elicitation", "scoped"],
            &["activity", "call_ids", "fork", "message", "remembered_decision"],
            &["permission"],
            &["parent"],
            &["event"],
            &["state"],
            &["branch"],
            &["command"],
            &["evolve", "wanted"],
            &["checked_fold", "decide", "erase"],
            &["limits"],
        ],
    },
    House {
        source: "actors/src",
        floors: &[
            &["announcements"],
            &[
                "access",
                "attempt_failure",
                "credentials",
                "external",
                "identity",
                "limit_waits",
                "named_blobs",
                "notices",
                "permit_sync",
                "usage_counts",
            ],
            &["assigns", "clock", "environment", "exec", "journal", "limits", "outbound", "trace"],
            &["child_calls"],
            &["live"],
            &[
                "backoff",
                "blobs",
                "expressions",
                "near_alarms",
                "node_lease",
                "pending_commit",
                "recent_events",
                "streaming",
                "web_fetch",
                "webhooks",
                "workspace",
            ],
            &["model", "request"],
            &["audit", "conversation_client", "definition", "diagnosis", "metric"],
            &["agents", "context", "signed_post"],
            &["hooks"],
            &["tools"],
            &["agent", "services", "snapshot"],
            &["activity"],
            &["conversation"],
        ],
    },
    House {
        source: "registry/src",
        floors: &[
            &["erasure", "host", "member", "partition", "queue_calls", "schedules"],
            &["actor_view", "cluster_view"],
            &["membership", "permits", "placement", "protocol"],
            &["peers", "store"],
            &["added_keys", "revisions", "schedule_changes", "seed_record", "shared_reads"],
            &["agent_catalog", "cluster_client", "standalone"],
            &["index_rebuilder", "live", "notices", "suspension_metrics", "transfer"],
            &["router"],
            &["queues", "retention"],
            &["blob_sweeper"],
            &["erasures"],
            &["alarms", "rpc_server", "takeover"],
            &["runtime", "ticks"],
        ],
    },
    House {
        source: "nodes/cli/src",
        floors: &[
            &["call_address", "error", "host", "text", "time"],
            &["command", "context", "given", "options"],
            &["arguments", "http", "printer"],
            &["form", "session", "stream"],
            &["commands"],
        ],
    },
    House {
        source: "nodes/src",
        floors: &[
            &[
                "clock",
                "definition_warnings",
                "demo",
                "departures",
                "launcher",
                "protocols",
                "public_url",
                "start_error",
            ],
            &["problem"],
            &["headers"],
            &["access"],
            &[
                "callbacks",
                "ephemeral",
                "keys_command",
                "operations",
                "readiness",
                "schedule_sender",
            ],
            &["config"],
            &["client_host", "seed_agents", "telemetry"],
            &["http"],
            &["admin", "server"],
            &["node"],
            &["store_transfer"],
        ],
    },
];

#[test]
fn no_two_modules_of_a_crate_import_each_other_in_a_circle() {
    let sources = sources();
    for House { source, floors } in HOUSES {
        let floor = |module: &str| floors.iter().position(|floor| floor.contains(&module));
        for (path, text) in &sources {
            let Some(module) = module(path, source).filter(|_| !is_test(path)) else { continue };
            let own = floor(module).unwrap_or_else(|| panic!("{path}: {module} is on no floor"));
            for imported in imports(text).into_iter().filter(|imported| *imported != module) {
                let below = floor(imported).is_none_or(|floor| floor < own);
                assert!(
                    below,
                    "{path}: {module} imports {imported}, which is not on a lower floor"
                );
            }
        }
    }
}

/// The top-level module that a file below `source` belongs to; the crate's root belongs to none.
fn module<'p>(path: &'p str, source: &str) -> Option<&'p str> {
    let inside = path.strip_prefix(source)?.strip_prefix('/')?;
    let module = inside.split(['/', '.']).next()?;
    (module != "lib" && module != "main").then_some(module)
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/") || path.contains("fixtures")
}

/// What a module imports from its crate: `crate::name` in code that is not a test's.
fn imports(source: &str) -> BTreeSet<&str> {
    let code = source.split("#[cfg(test)]\n").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let paths = lines.flat_map(|line| line.split("crate::").skip(1));
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    paths.filter_map(|path| path.split(|c| !is_name(c)).next()).collect()
}

#[test]
fn an_import_is_found_in_code_and_in_no_comment_or_test() {
    let source = "use crate::one::A;\n// crate::two\nlet x = crate::three::f();\n\
        #[cfg(test)]\nmod tests {\n    use crate::four::B;\n}\n";
    assert_eq!(imports(source), BTreeSet::from(["one", "three"]));
}
