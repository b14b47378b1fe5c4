//! The claims on conversations, for stores whose holders all live in this process.

use std::collections::HashMap;

use abide_actors::identity::Epoch;
use abide_actors::journal::{Claim, Holder};
use abide_conversation::{ConversationId, Scoped};

/// The present claims, and a floor under the epochs of released ones.
///
/// A released claim is forgotten, and the floor is at least its epoch. So this process gives no
/// epoch twice, even to a claimant that read the conversation's record before the release.
#[derive(Debug, Default)]
pub(super) struct Claims {
    held: HashMap<Scoped<ConversationId>, Claim>,
    floor: Epoch,
}

impl Claims {
    /// The present claim on a conversation.
    pub(super) fn present(&self, id: &Scoped<ConversationId>) -> Option<&Claim> {
        self.held.get(id)
    }

    /// Whether `held` is the present claim, by holder and epoch.
    pub(super) fn admits(&self, id: &Scoped<ConversationId>, held: &Claim) -> bool {
        self.present(id) == Some(held)
    }

    /// Claims for `me` unless another live holder has the claim, and returns the claim after that.
    /// `stored_epoch` is the epoch in the conversation's record.
    pub(super) fn claim(
        &mut self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        dead: Option<&Holder>,
        stored_epoch: Epoch,
    ) -> Claim {
        let former_epoch = match self.present(id) {
            Some(present) if Some(&present.holder) != dead => return present.clone(),
            Some(present) => present.epoch,
            None => Epoch::ZERO,
        };
        let epoch = self.floor.max(stored_epoch).max(former_epoch).next();
        let claim = Claim { holder: me.clone(), epoch };
        self.held.insert(id.clone(), claim.clone());
        claim
    }

    /// Releases a claim, if it is the present one.
    pub(super) fn release(&mut self, id: &Scoped<ConversationId>, held: &Claim) {
        if self.admits(id, held) {
            self.held.remove(id);
            self.floor = self.floor.max(held.epoch);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use abide_actors::identity::{Incarnation, NodeName};

    use super::*;

    fn holder(node: &str) -> Holder {
        Holder { node: NodeName::new(node), incarnation: Incarnation::new("1") }
    }

    #[test]
    fn a_claim_is_taken_from_nobody_but_the_dead_and_no_epoch_is_given_twice() {
        let mut claims = Claims::default();
        let id = Scoped::parse("x").unwrap();
        let [a, b] = ["a", "b"].map(holder);
        let first = claims.claim(&id, &a, None, Epoch::new(6));
        assert_eq!(first, Claim { holder: a.clone(), epoch: Epoch::new(7) });
        assert_eq!(claims.claim(&id, &b, None, Epoch::ZERO), first);
        assert_eq!(claims.claim(&id, &b, Some(&b), Epoch::ZERO), first, "another one is dead");
        let second = claims.claim(&id, &b, Some(&a), Epoch::ZERO);
        assert_eq!(second, Claim { holder: b, epoch: Epoch::new(8) });
        assert!(claims.admits(&id, &second) && !claims.admits(&id, &first));
        claims.release(&id, &first);
        assert_eq!(claims.present(&id), Some(&second));
        claims.release(&id, &second);
        assert_eq!(claims.present(&id), None);
        assert_eq!(claims.claim(&id, &a, None, Epoch::ZERO).epoch, Epoch::new(9));
    }
}
