//! Why a request was not carried out, or not yet.

use std::sync::Arc;

use super::HookVerdict;
use crate::definition::Definition;
use crate::hooks::HookContext;
use crate::hooks::tool_use::ToolUse;
use crate::journal::StoreError;
use crate::request::{Request, RequestError};

/// Why a request was not carried out, as far as is known.
pub(super) enum NotDone {
    Failed(RequestError),
    /// Hooks must be asked first; nothing was done.
    AsksHooks(Box<HookQuestions>),
    /// A write failed; whether it happened is unknown, and the actor must die and replay.
    Unknown(StoreError),
}

/// What hooks must answer before the request is handled again.
pub(super) struct HookQuestions {
    pub(super) request: Box<Request>,
    pub(super) questions: Vec<HookQuestion>,
    /// What they have answered before.
    pub(super) verdicts: Vec<HookVerdict>,
}

impl HookQuestions {
    /// The one question that a request has.
    pub(super) fn one(request: Request, question: HookQuestion) -> Box<Self> {
        Box::new(Self {
            request: Box::new(request),
            questions: vec![question],
            verdicts: Vec::new(),
        })
    }
}

/// A use of a tool that hooks must judge.
pub(super) struct HookQuestion {
    pub(super) definition: Arc<Definition>,
    pub(super) context: HookContext,
    pub(super) tool_use: ToolUse,
}

impl<F: Into<RequestError>> From<F> for NotDone {
    fn from(error: F) -> Self {
        Self::Failed(error.into())
    }
}
