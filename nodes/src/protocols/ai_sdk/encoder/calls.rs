//! The parts of calls in a page's message.
//!
//! A page executes a call as soon as its input is available: for a call of a page that needs an
//! approval, that is not before the approval. What a call waits for is told once everything journalled
//! was told: a page must not execute anew, or be asked, what was answered meanwhile.

use std::collections::BTreeMap;

use abide_conversation::event::{Executor, SuspensionKind};
use abide_conversation::message::{CallRef, ErrorType, Outcome};
use abide_conversation::{CallArgs, CallId};
use serde_json::{Value, json};

use super::Version;
use crate::protocols::ai_sdk::page::{Page, PagePart};
use crate::protocols::feed::{CallStart, ResolvedCall, SuspendedCall};

/// The calls of the latest step.
#[derive(Debug)]
pub(super) struct CallParts {
    version: Version,
    page: Page,
    calls: BTreeMap<CallId, CallPart>,
    /// What calls wait for, as far as it has no chunks yet.
    waiting: Vec<SuspendedCall>,
}

/// The part of a call.
#[derive(Debug, Default)]
struct CallPart {
    tool: String,
    args: CallArgs,
    /// The input that was made available.
    input: Option<Value>,
    /// The approval that the part has.
    approval: Option<String>,
    /// The answer that denied the call.
    denial: Option<ResolvedCall>,
    /// Whether the call waited for a page.
    was_with_page: bool,
    executor: Option<Executor>,
}

impl CallParts {
    pub(super) fn new(version: Version, page: Page) -> Self {
        Self { version, page, calls: BTreeMap::new(), waiting: Vec::new() }
    }

    /// Begins a step with these calls.
    pub(super) fn begin(&mut self, calls: &[CallRef]) {
        let part = |call: &CallRef| {
            let of_page = self.page.part(&call.id).and_then(|part| part.approval.as_ref());
            let approval = of_page.map(|approval| approval.id.clone());
            let (tool, args) = (call.name.clone(), call.args.clone());
            (call.id.clone(), CallPart { tool, args, approval, ..CallPart::default() })
        };
        self.calls = calls.iter().map(part).collect();
        self.waiting.clear();
    }

    /// Whether the latest step has calls, which no step follows.
    pub(super) fn is_last(&self) -> bool {
        !self.calls.is_empty()
    }

    pub(super) fn started(&mut self, start: &CallStart, chunks: &mut Vec<Value>) {
        let shows_later = self.page.part(&start.call).is_some_and(PagePart::is_past_its_start);
        let Some(part) = self.calls.get_mut(&start.call) else { return };
        part.executor = Some(start.executor);
        part.args = start.args.clone();
        match start.executor {
            _ if shows_later => {}
            Executor::Server => part.make_available(&start.call, &start.args, json!({}), chunks),
            Executor::Provider => {
                let more = json!({"providerExecuted": true});
                part.make_available(&start.call, &start.args, more, chunks);
            }
            // What it waits for follows, or its result.
            Executor::Client | Executor::Human => {}
        }
    }

    pub(super) fn suspended(&mut self, call: &SuspendedCall) {
        self.waiting.retain(|other| other.call != call.call);
        self.waiting.push(call.clone());
    }

    pub(super) fn resolved(&mut self, resolved: &ResolvedCall, chunks: &mut Vec<Value>) {
        let is_it = |call: &SuspendedCall| {
            call.call == resolved.call && call.suspension == resolved.suspension
        };
        self.waiting.retain(|call| !is_it(call));
        let page = self.page.part(&resolved.call);
        let Some(part) = self.calls.get_mut(&resolved.call) else { return };
        match resolved.kind {
            SuspensionKind::ClientExec => part.was_with_page = true,
            SuspensionKind::Elicitation | SuspensionKind::InDoubt => {}
            SuspensionKind::Approval => {
                let id = resolved.id();
                let is_open = page.is_none_or(PagePart::asks_approval);
                if self.version == Version::V7 && is_open && part.approval.as_ref() == Some(&id) {
                    chunks.push(approval_response(&id, resolved));
                }
                if resolved.approved == Some(false) {
                    part.denial = Some(resolved.clone());
                }
            }
        }
    }

    /// The chunks of what calls wait for.
    pub(super) fn flush(&mut self, chunks: &mut Vec<Value>) {
        for call in std::mem::take(&mut self.waiting) {
            let page = self.page.part(&call.call);
            let Some(part) = self.calls.get_mut(&call.call) else { continue };
            if call.kind == SuspensionKind::ClientExec {
                part.was_with_page = true;
            }
            match call.kind {
                _ if !call.may_answer => part.waits_for_others(&call, chunks),
                SuspensionKind::Approval => {
                    part.ask_approval(&call, page, self.version, chunks);
                }
                SuspensionKind::Elicitation
                | SuspensionKind::ClientExec
                | SuspensionKind::InDoubt => {
                    part.ask_page(&call, page, chunks);
                }
            }
        }
    }

    pub(super) fn ended(&mut self, call: &CallId, outcome: &Outcome, chunks: &mut Vec<Value>) {
        self.waiting.retain(|waiting| waiting.call != *call);
        let page = self.page.part(call);
        let Some(part) = self.calls.get_mut(call) else { return };
        if page.is_some_and(|page| page.shows(outcome)) {
            return;
        }
        match outcome {
            Outcome::Ok(output) => {
                let is_for_page = part.executor == Some(Executor::Client) && !part.was_with_page;
                if is_for_page && part.input.is_none() && page.is_none() {
                    // The page executes it, and nobody waits for that.
                    let args = part.args.clone();
                    part.make_available(call, &args, json!({}), chunks);
                }
                chunks.push(json!({
                    "type": "tool-output-available", "toolCallId": call, "output": output}));
            }
            Outcome::Err(_, ErrorType::Denied) if part.denial.is_some() => {
                part.show_denial(self.version, chunks);
                chunks.push(json!({"type": "tool-output-denied", "toolCallId": call}));
            }
            Outcome::Err(error, _) => chunks.push(json!({
                "type": "tool-output-error", "toolCallId": call, "errorText": error})),
        }
    }
}

fn approval_response(id: &str, resolved: &ResolvedCall) -> Value {
    let mut chunk = json!({"type": "tool-approval-response", "approvalId": id,
        "approved": resolved.approved == Some(true)});
    if let Some(reason) = &resolved.reason {
        chunk["reason"] = json!(reason);
    }
    chunk
}

impl CallPart {
    /// Makes the input available, unless it is; with more fields, in any case.
    fn make_available(
        &mut self,
        call: &CallId,
        args: &Value,
        more: Value,
        chunks: &mut Vec<Value>,
    ) {
        let mut chunk = json!({
            "type": "tool-input-available", "toolCallId": call, "toolName": self.tool,
            "input": args});
        let Value::Object(more) = more else { return };
        if more.is_empty() && self.input.as_ref() == Some(args) {
            return;
        }
        if let Value::Object(chunk) = &mut chunk {
            chunk.extend(more);
        }
        chunks.push(chunk);
        self.input = Some(args.clone());
    }

    /// Asks for an approval. The input of a call that a page executes stays as it is: the page would
    /// execute it.
    fn ask_approval(
        &mut self,
        call: &SuspendedCall,
        page: Option<&PagePart>,
        version: Version,
        chunks: &mut Vec<Value>,
    ) {
        let id = call.id();
        if page.is_some_and(|page| page.has_approval(&id)) && call.args == self.args {
            return;
        }
        let mut descriptor = json!({
            "message": call.message, "expires_at": call.expires_at, "intent": call.intent});
        match call.executor {
            Executor::Server => self.make_available(&call.call, &call.args, json!({}), chunks),
            _ if call.args != self.args => descriptor["args"] = Value::clone(&call.args),
            Executor::Client | Executor::Human | Executor::Provider => {}
        }
        let mut chunk = json!({"type": "tool-approval-request", "approvalId": id,
            "toolCallId": call.call, "approvalDescriptor": descriptor});
        if version == Version::V7 && !call.message.is_empty() {
            chunk["reason"] = json!(call.message);
        }
        chunks.push(chunk);
        self.approval = Some(id);
    }

    /// Asks for an answer of a person, or of the page.
    fn ask_page(&mut self, call: &SuspendedCall, page: Option<&PagePart>, chunks: &mut Vec<Value>) {
        if page.is_some_and(|page| page.waits_for(call.suspension)) {
            return;
        }
        let mut abide = json!({"kind": call.kind, "expires_at": call.expires_at,
            "suspension": call.suspension});
        if let Some(schema) = &call.answer_schema {
            abide["schema"] = json!(schema);
        }
        let mut more = json!({"toolMetadata": {"abide": abide}});
        if !call.message.is_empty() {
            more["title"] = json!(call.message);
        }
        self.make_available(&call.call, &call.args, more, chunks);
    }

    /// Says that a call waits for somebody else. The page gets nothing that it could answer.
    fn waits_for_others(&mut self, call: &SuspendedCall, chunks: &mut Vec<Value>) {
        if call.kind == SuspensionKind::Approval && call.executor == Executor::Server {
            self.make_available(&call.call, &call.args, json!({}), chunks);
        }
        chunks.push(json!({"type": "data-abide-waiting", "transient": true, "data": {
            "call_id": call.call, "tool": call.tool, "kind": call.kind, "message": call.message,
            "suspension": call.suspension, "expires_at": call.expires_at}}));
    }

    /// Gives the part the approval that was denied: a part that was denied must have one.
    fn show_denial(&mut self, version: Version, chunks: &mut Vec<Value>) {
        let Some(denial) = &self.denial else { return };
        let id = denial.id();
        if self.approval.as_ref() == Some(&id) {
            return;
        }
        chunks.push(json!({"type": "tool-approval-request", "approvalId": id,
            "toolCallId": denial.call}));
        if version == Version::V7 {
            chunks.push(approval_response(&id, denial));
        }
        self.approval = Some(id);
    }
}
