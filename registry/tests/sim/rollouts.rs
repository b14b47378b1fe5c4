//! Rollouts: the revision that a conversation's turn begins with follows what operators have begun
//! and ended, and every change is in their audit once.

use std::rc::Rc;
use std::time::Duration;

use abide_actors::journal::StoreError;
use abide_conversation::{AgentName, ConversationId, Principal, Revision, Scoped, Tenant};
use abide_registry::store::{
    AuditLevel, CurrentRevisions, Effect, History as _, Operation, OperationLog as _, Rollout,
    RolloutChange, Store as _, StoredAgent,
};
use serde_json::json;

use crate::node::Node;
use crate::tasks::{READ, UNAVAILABLE_DELAY};
use crate::world::World;

/// The longest that a change may take.
const CHANGE_TIMEOUT: Duration = Duration::from_millis(2_500);

fn agent() -> Scoped<AgentName> {
    Scoped::new(&Tenant::default(), &AgentName::new("a"))
}

fn older() -> Revision {
    Revision::new("r1")
}

fn newer() -> Revision {
    Revision::new("r2")
}

/// A change that an operator has asked for.
pub struct Change {
    number: u64,
    began: u64,
    /// When it was acknowledged; `None`: perhaps it never happens, and perhaps at any time.
    done: Option<u64>,
    rollout: Option<Rollout>,
}

impl Change {
    fn target(&self) -> String {
        format!("change{}", self.number)
    }
}

/// Whether the agent has its two revisions.
fn is_put(world: &World) -> bool {
    world.store.newest(&agent()) == Some(newer())
}

impl Node {
    /// Puts the two revisions of the agent, unless they are there.
    pub async fn put_revisions(self: Rc<Self>) {
        while self.ask(READ, self.put_both()).await.is_err() {
            self.sleep(UNAVAILABLE_DELAY).await;
        }
    }

    async fn put_both(&self) -> Result<(), StoreError> {
        for (revision, follows) in [(older(), None), (newer(), Some(older()))] {
            let (name, definition) = (agent().local(), json!({}));
            let stored = StoredAgent { name, revision, definition, put_at: None };
            let redis = self.store.redis();
            redis.put_agent_if(&agent().tenant(), stored, None, follows.as_ref()).await?;
        }
        Ok(())
    }
}

/// Begins or changes the rollout of the older revision through a node; ends it with a percentage of
/// nothing.
pub fn change(world: &Rc<World>, slot: usize, percent: u8) {
    let Some(node) = world.node(slot) else { return };
    let rollout = (percent > 0).then(|| Rollout { revision: older(), percent });
    let change = Change { number: world.number(), began: world.exec.now(), done: None, rollout };
    let effect = Effect::ChangeRollout(RolloutChange {
        name: agent(),
        rollout: change.rollout.clone(),
        response: None,
    });
    let operation = Operation {
        at: node.now(),
        tenant: Some(Tenant::default()),
        by: Principal::new("operator"),
        identity: None,
        operation: "agent.rollout".to_owned(),
        target: change.target(),
        level: AuditLevel::Metadata,
        request: None,
    };
    let number = change.number;
    let is_refusable = percent == 0 || !is_put(world);
    world.rollouts.borrow_mut().push(change);
    node.clone().spawn(async move {
        let world = &node.world;
        let redis = node.store.redis();
        let changed = node.ask(CHANGE_TIMEOUT, redis.operate(&operation, effect)).await;
        world.trace(|| format!("{} changes a rollout to {percent}: {changed:?}", node.me()));
        let Ok(changed) = changed else { return };
        let mut changes = world.rollouts.borrow_mut();
        if changed.answer {
            world.store.count("rollouts changed");
            let own = changes.iter_mut().filter(|change| change.number == number);
            own.for_each(|change| change.done = Some(world.exec.now()));
        } else {
            // There was none to end, or the revisions were not put yet.
            changes.retain(|change| change.number != number);
            if !is_refusable && is_put(world) {
                let what = format!("a rollout of {percent} % is refused");
                world.store.report_violation(what);
            }
        }
    });
}

/// Chooses the revision of a conversation through a node.
pub fn choose(world: &Rc<World>, slot: usize, id: Scoped<ConversationId>) {
    let Some(node) = world.node(slot) else { return };
    node.clone().spawn(async move {
        // A node without its store chooses nothing.
        let _ = revision_of(&node, &id).await;
    });
}

/// The revision with which a turn of the conversation begins; `None` if none is put yet.
pub async fn revision_of(
    node: &Node,
    id: &Scoped<ConversationId>,
) -> Result<Option<Revision>, StoreError> {
    let world = &node.world;
    let (began, had_former) = (world.exec.now(), world.store.group.borrow().has_former());
    let found = node.ask(READ, node.store.redis().current_revisions(&agent())).await?;
    let Some(CurrentRevisions { newest, rollout }) = found else { return Ok(None) };
    let rollout = rollout.filter(|rollout| rollout.revision != newest);
    // A turn cannot begin with what a former primary says: it is written to the present one.
    let is_certain = !had_former && !world.store.group.borrow().has_former();
    let between = (began, world.exec.now());
    if is_certain && !may_be(&world.rollouts.borrow(), between, rollout.as_ref()) {
        world.store.report_violation(format!("{rollout:?} is chosen, which is no more"));
    }
    world.store.count("revisions chosen");
    let included = rollout.filter(|rollout| rollout.includes(&agent().local(), id));
    Ok(Some(included.map_or(newest, |rollout| rollout.revision)))
}

/// Whether the rollout may be this one at a moment between these two.
fn may_be(changes: &[Change], (began, ended): (u64, u64), found: Option<&Rollout>) -> bool {
    let is_done = |change: &Change| change.done.is_some_and(|done| done < began);
    let is_overwritten = |change: &Change| {
        let by = |done: u64| changes.iter().any(|later| is_done(later) && later.began > done);
        change.done.is_some_and(by)
    };
    let is_it = |change: &Change| change.began <= ended && change.rollout.as_ref() == found;
    let is_first = found.is_none() && !changes.iter().any(is_done);
    is_first || changes.iter().any(|change| is_it(change) && !is_overwritten(change))
}

/// The first change that the operators' audit has twice, or not at all although it happened.
pub fn check(world: &World) -> Option<String> {
    let entries = world.store.operations(&Tenant::default());
    for change in world.rollouts.borrow().iter() {
        let target = json!(change.target()).to_string();
        let count = entries.iter().filter(|entry| **entry == target).count();
        if count > 1 || count == 0 && change.done.is_some() {
            return Some(format!("the audit has {target} {count} times"));
        }
    }
    None
}
