//! `spawn_agent`: asks another agent.
