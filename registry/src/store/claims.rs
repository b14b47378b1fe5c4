//! Who holds which conversation, for stores whose holders all live in this process.

use std::collections::HashMap;

use abide_actors::journal::{Holder, Holding};
use abide_conversation::ConversationId;

/// The present holdings, and a floor under the epochs of those that were given up.
///
/// A holding that was given up is forgotten: its epoch stands with the conversation's head, or, if
/// nothing was ever appended under it, below the floor. So no epoch is given twice.
#[derive(Debug, Default)]
pub(super) struct Claims {
    held: HashMap<ConversationId, Held>,
    floor: u64,
}

#[derive(Debug)]
struct Held {
    holding: Holding,
    /// Whether the head carries the epoch.
    written: bool,
}

impl Claims {
    /// The present holding.
    pub(super) fn present(&self, id: &ConversationId) -> Option<&Holding> {
        self.held.get(id).map(|held| &held.holding)
    }

    /// Whether `held` is the present holding, by holder and epoch.
    pub(super) fn admits(&self, id: &ConversationId, held: &Holding) -> bool {
        self.present(id) == Some(held)
    }

    /// The holding after `me` tried; `written` is the epoch that the conversation's head carries.
    pub(super) fn claim(
        &mut self,
        id: &ConversationId,
        me: &Holder,
        dead: Option<&Holder>,
        written: u64,
    ) -> Holding {
        let lost = match self.present(id) {
            Some(present) if Some(&present.holder) != dead => return present.clone(),
            Some(present) => present.epoch,
            None => 0,
        };
        let epoch = self.floor.max(written).max(lost) + 1;
        let holding = Holding { holder: me.clone(), epoch };
        self.held.insert(id.clone(), Held { holding: holding.clone(), written: false });
        holding
    }

    /// Something was appended under the present holding.
    pub(super) fn wrote(&mut self, id: &ConversationId) {
        if let Some(held) = self.held.get_mut(id) {
            held.written = true;
        }
    }

    /// Gives a holding up, if it is the present one.
    pub(super) fn release(&mut self, id: &ConversationId, held: &Holding) {
        if self.admits(id, held) {
            self.remove(id);
        }
    }

    /// The conversation is gone, and its head with it.
    pub(super) fn forget(&mut self, id: &ConversationId) {
        if let Some(held) = self.held.get_mut(id) {
            held.written = false;
        }
        self.remove(id);
    }

    fn remove(&mut self, id: &ConversationId) {
        match self.held.remove(id) {
            Some(held) if !held.written => self.floor = self.floor.max(held.holding.epoch),
            Some(_) | None => {}
        }
    }
}
