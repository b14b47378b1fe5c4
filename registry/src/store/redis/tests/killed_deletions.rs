//! Blobs whose node dies before or after any of the steps that name or remove them: they are there, or
//! another node removes them with all their keys.

use abide_actors::blobs::{Blob, BlobHold, BlobHolder, Blobs};
use abide_actors::journal::{Claim, Commit, Holder, Journal, StoreError};
use futures::future::BoxFuture;

use super::super::super::conformance::*;
use super::super::super::{BlobNames, Lists, Rebuild, TenantCounts};
use super::super::{Durability, Redis, RedisUrl};
use super::proxy::{Proxy, Way};
use super::servers::Server;
use crate::partition::PartitionSet;

/// More messages than any of the jobs takes.
const MAX_MESSAGES: usize = 60;
/// Fewer messages than any of the jobs takes.
const MIN_MESSAGES: usize = 3;

/// Two conversations, `a` that names both blobs and `b` that names the second.
struct Scene {
    /// A node that goes on.
    direct: Redis,
    /// A node that dies.
    dying: Redis,
    proxy: Proxy,
    alone: Blob,
    shared: Blob,
    a: Claim,
    b: Claim,
}

async fn open(url: &RedisUrl) -> Redis {
    let mut redis = Redis::open(url, Durability::Os).await.unwrap();
    // Its checks are messages, too.
    redis._watching.abort_all();
    redis
}

fn naming(seq: u64, blobs: &[&Blob]) -> Commit {
    let ids: Vec<_> = blobs.iter().map(|blob| blob.id().to_string()).collect();
    Commit { events: [event_by(seq, "ada", &ids.join(" "))].into(), ..commit(seq, seq) }
}

impl Scene {
    async fn on(server: &Server) -> Self {
        server.ask::<()>(&["FLUSHALL"]).await;
        let direct = open(&server.url()).await;
        let rebuild = Rebuild::after(None, at(0)).ended(at(0));
        assert!(direct.replace_rebuild(None, &rebuild).await.unwrap());
        let [alone, shared] = ["alone", "shared"].map(|text| Blob::new("text/plain", text));
        for blob in [&alone, &shared] {
            direct.put_blob(&blob_id(blob), blob).await.unwrap();
        }
        let a = create_conversation(&direct, "a").await;
        direct.append(&id("a"), &a, naming(2, &[&alone, &shared])).await.unwrap();
        let b = create_conversation(&direct, "b").await;
        direct.append(&id("b"), &b, naming(2, &[&shared])).await.unwrap();
        let proxy = Proxy::to(server.port).await;
        let dying = open(&proxy.url()).await;
        Self { direct, dying, proxy, alone, shared, a, b }
    }

    async fn is_there(&self, blob: &Blob) -> bool {
        let found = self.direct.blob(&blob_id(blob)).await.unwrap();
        let info = self.direct.blob_info(&blob_id(blob)).await.unwrap();
        assert_eq!(found.is_some(), info.is_some());
        found.is_some()
    }

    async fn is_deleted(&self, conversation: &str) -> bool {
        self.direct.summary(&id(conversation)).await.unwrap().is_none()
    }

    /// Panics unless nothing is left of who names and who holds blobs, and of the blobs.
    async fn check_nothing_is_left(&self, server: &Server) {
        assert_eq!(self.direct.blob_bytes(&own()).await, Ok(0));
        let (all, mut cursor) = (PartitionSet::all(), None);
        loop {
            cursor = self.direct.drop_lost_names(&all, cursor.as_deref(), 9).await.unwrap();
            if cursor.is_none() {
                break;
            }
        }
        let keys: Vec<String> = server.ask(&["KEYS", "*"]).await;
        let kinds =
            ["b:", "names:", "holds:", "blobs_due", "named:", "dropped:", "drops", "namers"];
        let is_left = |key: &&String| kinds.iter().any(|kind| key.contains(&format!("}}:{kind}")));
        assert_eq!(keys.iter().find(is_left), None, "{keys:?}");
    }
}

/// Does what sweepers do about deletions, until nobody can add a name.
async fn settle(redis: &Redis) -> Result<(), StoreError> {
    for last in [false, true] {
        for left in redis.dropped_names(&PartitionSet::all(), 9).await? {
            redis.drop_names(&left, last, at(0)).await?;
        }
    }
    Ok(())
}

async fn delete(redis: &Redis, name: &str, held: &Claim) -> Result<(), StoreError> {
    redis.delete(&id(name), held, None, Vec::new()).await?;
    settle(redis).await
}

/// Has a node die at each of its messages while it does the job, and looks at what is left each time.
async fn die_at_each_message(
    job: impl for<'a> Fn(&'a Scene) -> BoxFuture<'a, Result<(), StoreError>>,
    look: impl for<'a> Fn(&'a Scene) -> BoxFuture<'a, ()>,
) {
    let server = Server::start(&["--appendfsync", "no"]).await;
    for way in [Way::ToServer, Way::ToClient] {
        let mut deaths = 0;
        loop {
            let scene = Scene::on(&server).await;
            scene.proxy.die_at(deaths + 1, way);
            tokio::select! {
                done = job(&scene) => assert_eq!(done.is_err(), scene.proxy.is_dead()),
                () = scene.proxy.wait_until_dead() => {}
            }
            look(&scene).await;
            scene.check_nothing_is_left(&server).await;
            if !scene.proxy.is_dead() {
                break;
            }
            deaths += 1;
            assert!(deaths < MAX_MESSAGES);
        }
        assert!(deaths >= MIN_MESSAGES, "{deaths} deaths {way:?}");
    }
}

#[tokio::test]
async fn a_deletion_that_dies_at_any_step_leaves_a_blob_named_or_gone() {
    fn job(scene: &Scene) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(delete(&scene.dying, "a", &scene.a))
    }
    fn look(scene: &Scene) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let direct = &scene.direct;
            let (alone, shared) = (&scene.alone, &scene.shared);
            assert!(scene.is_there(shared).await);
            if scene.is_deleted("a").await {
                settle(direct).await.unwrap();
            } else {
                let named = [alone.id(), shared.id()].into();
                assert_eq!(direct.named_blobs(&id("a")).await, Ok(named));
                assert_eq!(direct.end_holds(&blob_id(alone), None, at(0)).await, Ok(false));
                delete(direct, "a", &scene.a).await.unwrap();
            }
            assert!(!scene.is_there(alone).await && scene.is_there(shared).await);
            delete(direct, "b", &scene.b).await.unwrap();
            assert!(!scene.is_there(shared).await);
        })
    }
    die_at_each_message(job, look).await;
}

#[tokio::test]
async fn a_commit_that_dies_at_any_step_before_it_names_a_blob_loses_and_leaves_none() {
    fn job(scene: &Scene) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let holder = BlobHolder::Conversation(id("c").local());
            let hold = BlobHold { holder, until: at(60) };
            let found = scene.dying.hold_blob(&blob_id(&scene.alone), &hold).await?;
            assert!(found.is_some());
            let held = scene.dying.claim(&id("c"), &holder_of_dying(), None).await?;
            let events = [event(1), naming(2, &[&scene.alone]).events[0].clone()];
            let first = Commit { events: events.into(), ..commit(1, 2) };
            scene.dying.append(&id("c"), &held, first).await
        })
    }
    fn look(scene: &Scene) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let direct = &scene.direct;
            for (name, held) in [("a", &scene.a), ("b", &scene.b)] {
                delete(direct, name, held).await.unwrap();
            }
            let is_held = !direct.blob_holds(&blob_id(&scene.alone)).await.unwrap().is_empty();
            let is_named = !scene.is_deleted("c").await;
            let is_noted = !direct.named_blobs(&id("c")).await.unwrap().is_empty();
            assert!(is_noted || !is_named);
            assert_eq!(scene.is_there(&scene.alone).await, is_held || is_noted);
            // Whoever comes after the dead one takes its claim, and gives it up or deletes.
            let dead = holder_of_dying();
            let held = direct.claim(&id("c"), &holder("n"), Some(&dead)).await.unwrap();
            if is_named {
                delete(direct, "c", &held).await.unwrap();
            } else {
                direct.release(&id("c"), &held).await.unwrap();
                settle(direct).await.unwrap();
                direct.end_holds(&blob_id(&scene.alone), None, at(60)).await.unwrap();
            }
            assert!(!scene.is_there(&scene.alone).await);
        })
    }
    die_at_each_message(job, look).await;
}

/// Who dies.
fn holder_of_dying() -> Holder {
    holder("dying")
}

#[tokio::test]
async fn an_end_of_a_hold_that_dies_at_any_step_leaves_a_blob_held_or_gone() {
    fn job(scene: &Scene) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let unnamed = Blob::new("text/plain", "unnamed");
            let hold = BlobHold { holder: BlobHolder::uploader("ada"), until: at(60) };
            scene.dying.store_blob(&blob_id(&unnamed), &unnamed, Some(&hold)).await?;
            scene.dying.end_holds(&blob_id(&unnamed), None, at(60)).await.map(drop)
        })
    }
    fn look(scene: &Scene) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let (direct, unnamed) = (&scene.direct, Blob::new("text/plain", "unnamed"));
            let due = direct.due_blobs(&PartitionSet::all(), at(60), 9).await.unwrap();
            let is_there = scene.is_there(&unnamed).await;
            assert_eq!(due, if is_there { vec![blob_id(&unnamed)] } else { vec![] });
            if is_there {
                assert_eq!(direct.end_holds(&due[0], None, at(60)).await, Ok(true));
            }
            for (name, held) in [("a", &scene.a), ("b", &scene.b)] {
                delete(direct, name, held).await.unwrap();
            }
        })
    }
    die_at_each_message(job, look).await;
}
