//! Who holds which conversation, for stores whose holders all live in this process.

use std::collections::HashMap;

use abide_actors::journal::{Claim, Holder};
use abide_conversation::ConversationId;

/// The present holdings, and a floor under the epochs of those that were given up.
///
/// A holding that was given up is forgotten, and its epoch is below the floor. So no epoch is given
/// twice by this process, also to a claim that read the conversation's head before it was given up.
#[derive(Debug, Default)]
pub(super) struct Claims {
    held: HashMap<ConversationId, Claim>,
    floor: u64,
}

impl Claims {
    /// The present holding.
    pub(super) fn present(&self, id: &ConversationId) -> Option<&Claim> {
        self.held.get(id)
    }

    /// Whether `held` is the present holding, by holder and epoch.
    pub(super) fn admits(&self, id: &ConversationId, held: &Claim) -> bool {
        self.present(id) == Some(held)
    }

    /// The holding after `me` tried; `written` is the epoch that the conversation's head carries.
    pub(super) fn claim(
        &mut self,
        id: &ConversationId,
        me: &Holder,
        dead: Option<&Holder>,
        written: u64,
    ) -> Claim {
        let lost = match self.present(id) {
            Some(present) if Some(&present.holder) != dead => return present.clone(),
            Some(present) => present.epoch,
            None => 0,
        };
        let epoch = self.floor.max(written).max(lost) + 1;
        let holding = Claim { holder: me.clone(), epoch };
        self.held.insert(id.clone(), holding.clone());
        holding
    }

    /// Gives a holding up, if it is the present one.
    pub(super) fn release(&mut self, id: &ConversationId, held: &Claim) {
        if self.admits(id, held) {
            self.held.remove(id);
            self.floor = self.floor.max(held.epoch);
        }
    }
}
