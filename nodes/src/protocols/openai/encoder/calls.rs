//! The calls of the current step, and the events of those that a client is told of.

use std::collections::BTreeMap;

use abide_conversation::event::{Executor, SuspensionKind};
use abide_conversation::message::{CallRef, Outcome};
use abide_conversation::{CallArgs, CallId};
use serde_json::json;

use super::ResponseEncoder;
use crate::protocols::feed::{CallStart, SuspendedCall};
use crate::protocols::openai::items;

/// The calls of the current step.
#[derive(Debug, Default)]
pub(super) struct Calls(BTreeMap<CallId, CallOfStep>);

#[derive(Debug)]
struct CallOfStep {
    tool: String,
    args: CallArgs,
    /// `None` until it is known: the server's, if it never ran.
    executor: Option<Executor>,
}

/// A call that the server has executed.
#[derive(Debug)]
pub(super) struct ServerCall {
    call: CallId,
    tool: String,
    args: CallArgs,
    outcome: Outcome,
}

impl Calls {
    /// Begins a step with these calls.
    pub(super) fn begin(&mut self, calls: &[CallRef]) {
        let of_step = |call: &CallRef| {
            let (tool, args) = (call.name.clone(), call.args.clone());
            (call.id.clone(), CallOfStep { tool, args, executor: None })
        };
        self.0 = calls.iter().map(of_step).collect();
    }

    pub(super) fn started(&mut self, start: &CallStart) {
        self.set(&start.call, start.executor, &start.args);
    }

    pub(super) fn suspended(&mut self, call: &SuspendedCall) {
        self.set(&call.call, call.executor, &call.args);
    }

    fn set(&mut self, call: &CallId, executor: Executor, args: &CallArgs) {
        if let Some(known) = self.0.get_mut(call) {
            known.executor = Some(executor);
            known.args = args.clone();
        }
    }

    /// The call that has this outcome, if the server has executed it.
    pub(super) fn ended(&mut self, id: &CallId, outcome: &Outcome) -> Option<ServerCall> {
        let call = self.0.remove(id)?;
        match call.executor {
            Some(Executor::Client | Executor::Human) => None,
            Some(Executor::Server | Executor::Provider) | None => Some(ServerCall {
                call: id.clone(),
                tool: call.tool,
                args: call.args,
                outcome: outcome.clone(),
            }),
        }
    }
}

impl ResponseEncoder {
    /// Asks the client for an approval or for a result, unless it was asked, or may not answer.
    pub(super) fn ask(&mut self, call: &SuspendedCall) {
        if !call.may_answer {
            return;
        }
        let item = items::question(call);
        if let Some(known) = self.output.iter_mut().find(|known| known.item["id"] == item["id"]) {
            // An approver may have edited the arguments meanwhile.
            known.item = item;
            return;
        }
        match call.kind {
            SuspensionKind::Approval => {
                let index = self.add_item(item.clone());
                self.end_item(index, item);
            }
            SuspensionKind::Elicitation | SuspensionKind::ClientExec | SuspensionKind::InDoubt => {
                let (id, arguments) = (item["id"].clone(), item["arguments"].clone());
                let mut begun = item.clone();
                begun["arguments"] = json!("");
                begun["status"] = json!("in_progress");
                let index = self.add_item(begun);
                self.push(json!({"type": "response.function_call_arguments.delta", "item_id": id,
                    "output_index": index, "delta": arguments}));
                self.push(json!({"type": "response.function_call_arguments.done", "item_id": id,
                    "output_index": index, "name": call.tool, "arguments": arguments}));
                self.end_item(index, item);
            }
        }
    }

    /// Tells of a call that the server has executed.
    pub(super) fn server_call(&mut self, done: ServerCall) {
        let ServerCall { call, tool, args, outcome } = done;
        let begun = items::server_call(&call, &tool, &args, None);
        let item = items::server_call(&call, &tool, &args, Some(&outcome));
        let id = item["id"].clone();
        let index = self.add_item(begun);
        let event = |kind: &str| json!({"type": kind, "item_id": id, "output_index": index});
        self.push(event("response.mcp_call.in_progress"));
        let mut arguments = event("response.mcp_call_arguments.done");
        arguments["arguments"] = item["arguments"].clone();
        self.push(arguments);
        let is_ok = outcome.is_ok();
        self.push(event(if is_ok {
            "response.mcp_call.completed"
        } else {
            "response.mcp_call.failed"
        }));
        self.end_item(index, item);
    }
}
