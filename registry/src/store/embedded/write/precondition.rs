//! What must be so before a write is applied.

use abide_actors::journal::Claim;
use abide_conversation::{ConversationId, Scoped};

use super::super::super::StagedJournal;
use super::super::erasures::ErasureWrite;
use super::super::staging::StageWrite;
use super::Write;

/// What must be so before a write is applied. A write whose claim is not the present one is
/// refused; any other waits.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Precondition<'w> {
    None,
    /// The conversation is held under this claim.
    Held {
        id: &'w Scoped<ConversationId>,
        held: &'w Claim,
    },
    /// It is, and nothing is left of a deleted conversation of the same id; what this import has
    /// moved there is its own.
    HeldAndEmpty {
        id: &'w Scoped<ConversationId>,
        held: &'w Claim,
        import: Option<&'w StagedJournal>,
    },
    /// Nothing is left of any deleted conversation.
    Swept,
}

impl Write {
    pub(in super::super) fn precondition(&self) -> Precondition<'_> {
        match self {
            Write::Append(append) => Precondition::HeldAndEmpty {
                id: &append.id,
                held: &append.held,
                import: append.staged.as_ref(),
            },
            Write::Stage(StageWrite::Promote { staged, held }) => {
                Precondition::HeldAndEmpty { id: &staged.id, held, import: Some(staged) }
            }
            Write::Rewrite(rewrite) => Precondition::Held { id: &rewrite.id, held: &rewrite.held },
            Write::Delete { id, held, .. } | Write::CountDeath { id, held } => {
                Precondition::Held { id, held }
            }
            Write::Erasure(write) => match **write {
                ErasureWrite::Fill { .. } => Precondition::Swept,
                ErasureWrite::Replace { .. }
                | ErasureWrite::RenameUsage { .. }
                | ErasureWrite::ReplaceOperation { .. }
                | ErasureWrite::EndFilling => Precondition::None,
            },
            Write::ResetDeaths { .. }
            | Write::PutAgent { .. }
            | Write::ReplaceAgent(_)
            | Write::ChangeRevisions(_)
            | Write::DeleteAgent { .. }
            | Write::Reserve { .. }
            | Write::SetDecision { .. }
            | Write::ReplaceDecision { .. }
            | Write::ChangeKey { .. }
            | Write::MarkKeysUsed { .. }
            | Write::PutBlob(_)
            | Write::DeleteBlob { .. }
            | Write::Names(_)
            | Write::Audit(_)
            | Write::Notice(_)
            | Write::Operate(_)
            | Write::ReplaceSchedule(_)
            | Write::Stage(StageWrite::Add { .. } | StageWrite::Forget { .. })
            | Write::List(_)
            | Write::Keys(_) => Precondition::None,
        }
    }
}

impl<'w> Precondition<'w> {
    /// The conversation and the claim that must be its present one.
    pub(in super::super) fn claim(self) -> Option<(&'w Scoped<ConversationId>, &'w Claim)> {
        match self {
            Self::Held { id, held } | Self::HeldAndEmpty { id, held, .. } => Some((id, held)),
            Self::None | Self::Swept => None,
        }
    }

    /// The conversation of which nothing may be left.
    pub(in super::super) fn emptied(self) -> Option<&'w str> {
        match self {
            Self::HeldAndEmpty { id, .. } => Some(id.as_str()),
            Self::None | Self::Held { .. } | Self::Swept => None,
        }
    }
}
