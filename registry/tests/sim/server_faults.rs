//! The faults of the store's servers: how each begins and passes.

use std::rc::Rc;

use crate::random::Random;
use crate::redis::{Fault, REPLICAS};
use crate::store::durability;
use crate::world::World;

/// How long the former primary answers that it is a replica before its connections end.
const DEMOTED_MS: u64 = 200;

/// A fault that the durability of this seed promises to survive.
pub fn random_fault(random: &mut Random, seed: u64) -> Fault {
    let replicated =
        matches!(durability(seed), abide_registry::store::redis::Durability::Replicas(_));
    let ms = 50 + random.below(1_500);
    match random.below(if replicated { 9 } else { 6 }) {
        0 | 1 => Fault::Crash { down_ms: random.below(800) },
        2 => Fault::Hang { ms },
        3 => Fault::Fill { ms },
        4 => Fault::ClockBack { ms: random.below(3_000).cast_signed() },
        5 => Fault::ForgetScripts,
        6 => Fault::Split { after_ms: random.below(800), serves_ms: random.below(800) },
        _ => Fault::CutReplicas { both: random.percent(70), ms: 2 * ms },
    }
}

/// Begins a fault; a second fail-over waits for the end of the first.
pub fn begin(world: &Rc<World>, fault: Fault) {
    let (now, group) = (world.exec.now(), &world.store.group);
    let fails_over = matches!(fault, Fault::Crash { .. } | Fault::Split { .. });
    if fails_over && world.failing_over.replace(true) {
        return;
    }
    world.store.count(name(fault));
    match fault {
        Fault::Crash { .. } => group.borrow_mut().crash(now),
        Fault::Split { .. } => group.borrow_mut().cut_replicas(REPLICAS, now),
        Fault::CutReplicas { both, .. } => {
            group.borrow_mut().cut_replicas(if both { REPLICAS } else { 1 }, now);
        }
        Fault::Hang { ms } => group.borrow_mut().hung_until = now + ms,
        Fault::Fill { .. } => group.borrow_mut().fill(true),
        Fault::ClockBack { ms } => group.borrow_mut().set_clock_back(ms),
        Fault::ForgetScripts => group.borrow_mut().forget_scripts(),
    }
    let (sufferer, exec) = (world.clone(), world.exec.clone());
    world.exec.spawn(None, async move {
        let group = &sufferer.store.group;
        match fault {
            Fault::Crash { down_ms } => {
                exec.sleep(down_ms).await;
                if group.borrow().is_replicated() {
                    group.borrow_mut().fail_over(false);
                } else {
                    group.borrow_mut().restart();
                }
                ended(&sufferer);
            }
            Fault::Split { after_ms, serves_ms } => {
                exec.sleep(after_ms).await;
                group.borrow_mut().fail_over(true);
                ended(&sufferer);
                exec.sleep(serves_ms).await;
                group.borrow_mut().demote_former();
                exec.sleep(DEMOTED_MS).await;
                group.borrow_mut().end_former();
            }
            Fault::CutReplicas { ms, .. } => {
                exec.sleep(ms).await;
                // A primary that is about to be replaced stays cut off.
                if !sufferer.failing_over.get() {
                    group.borrow_mut().relink_replicas();
                }
            }
            Fault::Fill { ms } => {
                exec.sleep(ms).await;
                group.borrow_mut().fill(false);
            }
            Fault::Hang { .. } | Fault::ClockBack { .. } | Fault::ForgetScripts => {}
        }
    });
}

/// Another process is the primary.
fn ended(world: &World) {
    world.store.forget_what_is_lost();
    world.failing_over.set(false);
    world.trace(|| "another process is the primary".to_owned());
}

fn name(fault: Fault) -> &'static str {
    match fault {
        Fault::Crash { .. } => "server crashes",
        Fault::Split { .. } => "server splits",
        Fault::CutReplicas { .. } => "replicas cut off",
        Fault::Hang { .. } => "server hangs",
        Fault::Fill { .. } => "full servers",
        Fault::ClockBack { .. } => "clocks set back",
        Fault::ForgetScripts => "script flushes",
    }
}
