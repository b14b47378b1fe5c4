//! `plan_mode`: enters and exits the phase `plan`, in which nothing may be changed.

use abide_conversation::command::StateChange;
use abide_conversation::permission::PermissionPhase;
use serde_json::{Value, json};

use crate::tools::ToolReturn;

pub(super) const DESCRIPTION: &str = "Enters plan mode, in which nothing can be changed, or exits \
    it. Enter it to look around and make a plan; exit it to carry the plan out, with the plan as \
    the reason.";

/// The person who approves the exit reads the reason.
const MAX_REASON_CHARS: usize = 10_000;

pub(super) fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "action": {"enum": ["enter", "exit"]},
            "reason": {"type": "string", "maxLength": MAX_REASON_CHARS},
        },
        "required": ["action"],
        "additionalProperties": false,
    })
}

/// `granted` is the phase that applies outside of planning.
pub(super) fn run(args: &Value, granted: PermissionPhase) -> ToolReturn {
    let (text, phase) = match args["action"].as_str() {
        Some("enter") => ("entered plan mode", PermissionPhase::Plan),
        Some("exit") => ("exited plan mode", granted),
        Some(_) | None => {
            return ToolReturn::builtin_error("invalid_action", "must be enter or exit");
        }
    };
    let planning = phase == PermissionPhase::Plan;
    ToolReturn::ok(text).with_change(StateChange::Phase { phase, planning })
}

#[cfg(test)]
mod tests {
    use abide_conversation::message::Outcome;

    use super::*;

    #[test]
    fn plan_mode_is_entered_and_left_to_the_granted_phase() {
        let trusted = PermissionPhase::Trusted;
        for (action, text, phase, planning) in [
            ("enter", "entered plan mode", PermissionPhase::Plan, true),
            ("exit", "exited plan mode", trusted, false),
        ] {
            let returned = run(&json!({"action": action}), trusted);
            assert_eq!(returned.outcome, Outcome::Ok(json!(text)));
            assert_eq!(returned.state_changes, [StateChange::Phase { phase, planning }]);
        }
    }

    #[test]
    fn any_other_action_is_refused() {
        for args in [json!({}), json!({"action": "leave"}), json!({"action": 1})] {
            let returned = run(&args, PermissionPhase::Default);
            let Outcome::Err(error, _) = returned.outcome else { unreachable!() };
            assert!(error.starts_with("invalid_action"), "{error}");
        }
    }
}
