//! What the page shows already, as its last message says. Pages send it back; it addresses calls, and
//! nothing in it is believed.

use std::collections::BTreeMap;

use abide_conversation::CallId;
use abide_conversation::message::{CallRef, ErrorType, Outcome};
use serde_json::Value;

/// The parts of a page's message that stand for calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    parts: BTreeMap<CallId, PagePart>,
}

/// The part of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct PagePart {
    /// The state, such as `approval-responded`.
    pub state: String,
    pub approval: Option<PageApproval>,
    pub output: Value,
    pub error_text: Option<String>,
    /// The suspension that the part was said to wait for.
    pub suspension: Option<u64>,
}

/// The approval in a part.
#[derive(Clone, Debug, PartialEq)]
pub struct PageApproval {
    pub id: String,
    pub approved: Option<bool>,
    pub reason: Option<String>,
}

impl Page {
    /// Reads the parts of a message of the assistant; those of no call, or of a shape that no client
    /// sends, are left out.
    pub fn of_parts(parts: &[Value]) -> Self {
        let mut page = Self::default();
        for part in parts {
            let kind = part["type"].as_str().unwrap_or_default();
            let is_tool = kind == "dynamic-tool" || kind.starts_with("tool-");
            let call = part["toolCallId"].as_str().filter(|id| is_tool && !id.is_empty());
            if let Some(call) = call {
                page.parts.insert(CallId::new(call), PagePart::new(part));
            }
        }
        page
    }

    /// The part of a call.
    pub fn part(&self, call: &CallId) -> Option<&PagePart> {
        self.parts.get(call)
    }

    /// All parts, in the order of the calls' ids.
    pub fn parts(&self) -> impl Iterator<Item = (&CallId, &PagePart)> {
        self.parts.iter()
    }

    /// Whether the page shows a step with these calls.
    pub fn shows(&self, calls: &[CallRef]) -> bool {
        !calls.is_empty() && calls.iter().all(|call| self.parts.contains_key(&call.id))
    }
}

impl PagePart {
    /// Whether the part has gone past the start of its call: it has a result, or its input is there.
    pub(super) fn is_past_its_start(&self) -> bool {
        self.state.starts_with("output-") || self.state == "input-available"
    }

    /// Whether the part asks for an approval.
    pub(super) fn asks_approval(&self) -> bool {
        self.state == "approval-requested"
    }

    /// Whether the part asks for this approval, or has an answer to it.
    pub(super) fn has_approval(&self, id: &str) -> bool {
        let has_id = |approval: &PageApproval| approval.id == id;
        self.state.starts_with("approval-") && self.approval.as_ref().is_some_and(has_id)
    }

    /// Whether the part waits for an answer to this suspension.
    pub(super) fn waits_for(&self, suspension: u32) -> bool {
        self.state == "input-available" && self.suspension == Some(u64::from(suspension))
    }

    /// Whether the part shows this result.
    pub(super) fn shows(&self, outcome: &Outcome) -> bool {
        match (self.state.as_str(), outcome) {
            ("output-available", Outcome::Ok(output)) => self.output == *output,
            ("output-denied", Outcome::Err(_, ErrorType::Denied)) => true,
            ("output-error", Outcome::Err(error, _)) => self.error_text.as_ref() == Some(error),
            _ => false,
        }
    }

    fn new(part: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let approval = &part["approval"];
        let approval = text(&approval["id"]).map(|id| PageApproval {
            id,
            approved: approval["approved"].as_bool(),
            reason: text(&approval["reason"]).filter(|reason| !reason.is_empty()),
        });
        Self {
            state: text(&part["state"]).unwrap_or_default(),
            approval,
            output: part["output"].clone(),
            error_text: text(&part["errorText"]),
            suspension: part["toolMetadata"]["abide"]["suspension"].as_u64(),
        }
    }
}
