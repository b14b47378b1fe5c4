//! Opens the store that is configured, and what comes with it.

use std::sync::Arc;

use abide_actors::clock::Clock;
use abide_registry::membership::Membership;
use abide_registry::membership::heartbeat::OnStoreTime;
use abide_registry::standalone::Standalone;
use abide_registry::store::Store;
use abide_registry::store::embedded::{self, Embedded};
use abide_registry::store::memory::Memory;
use abide_registry::store::redis::{self, OpenError, Redis, RedisUrl};

use super::StartError;
use crate::clock::{StoreClock, SystemClock};
use crate::config::{Config, Durability, StoreUrl};

/// A clock that is this wrong is worth a line in the log.
const WRONG: jiff::SignedDuration = jiff::SignedDuration::from_secs(1);

/// A store, who shares it, and whose clock goes.
pub(super) struct Stores {
    pub(super) store: Arc<dyn Store>,
    pub(super) membership: Arc<dyn Membership>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) on_time: OnStoreTime,
    /// Whether other nodes work on it, too.
    pub(super) is_shared: bool,
}

pub(super) async fn open(config: &Config) -> Result<Stores, StartError> {
    match &config.store {
        StoreUrl::Memory => Ok(alone(Arc::new(Memory::default()))),
        StoreUrl::Embedded(dir) => {
            let durability = match config.durability {
                Durability::Fsync => embedded::Durability::Fsync,
                Durability::Os => embedded::Durability::Os,
                Durability::Replicas(_) => {
                    let why = "--durability: replicas=N needs a Redis store";
                    return Err(StartError::Config(why.to_owned()));
                }
            };
            let opened = Embedded::open(dir, durability);
            Ok(alone(Arc::new(opened.map_err(|error| StartError::Config(error.to_string()))?)))
        }
        StoreUrl::Redis(url) => shared(url, config.durability).await,
    }
}

fn alone(store: Arc<dyn Store>) -> Stores {
    Stores {
        store,
        membership: Arc::new(Standalone::default()),
        clock: Arc::new(SystemClock),
        on_time: Box::new(|_, _| {}),
        is_shared: false,
    }
}

async fn shared(url: &RedisUrl, durability: Durability) -> Result<Stores, StartError> {
    let durability = match durability {
        Durability::Fsync => redis::Durability::Fsync,
        Durability::Os => redis::Durability::Os,
        Durability::Replicas(count) => redis::Durability::Replicas(count),
    };
    let opened = Redis::open(url, durability).await.map_err(|error| match error {
        OpenError::Away { .. } => StartError::Broken(error.to_string()),
        _ => StartError::Config(error.to_string()),
    });
    let store = Arc::new(opened?);
    tracing::info!(store = store.description(), "the store is open");
    let clock = Arc::new(StoreClock::default());
    let told = clock.clone();
    let on_time = Box::new(move |now, took| {
        let wrong = told.set(now, took);
        if wrong.abs() > WRONG {
            tracing::warn!(by_ms = wrong.as_millis(), "the clock is not the store's; it is set");
        }
    });
    Ok(Stores { store: store.clone(), membership: store, clock, on_time, is_shared: true })
}
