//! What a node logs when it loses its store, and when the store is back.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_conversation::event::TurnOutcome;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;

use crate::flaky_store::FlakyStore;
use crate::revival::HOLD_AGENT;
use crate::test_node::TestNode;

const CONVERSATIONS: usize = 30;

/// The lines that were logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn lines(&self, words: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_store_is_one_line_and_its_return_another_that_counts() {
    let log = Log::default();
    let writer = log.clone();
    let lines = fmt::layer().with_ansi(false).with_writer(move || writer.clone());
    let _logging = tracing::subscriber::set_default(tracing_subscriber::registry().with(lines));
    let store = Arc::new(FlakyStore::default());
    let node = TestNode::with_store(store.clone(), HOLD_AGENT).await;
    for number in 0..CONVERSATIONS {
        node.send(&format!("x{number}"), "go").await.unwrap();
    }
    node.wait_for_holds(CONVERSATIONS as u32).await;
    store.unreachable.store(true, Ordering::SeqCst);
    node.tools.release.add_permits(10 * CONVERSATIONS);
    tokio::time::sleep(Duration::from_secs(60)).await;
    store.unreachable.store(false, Ordering::SeqCst);
    for number in 0..CONVERSATIONS {
        let end = node.turn_end(&format!("x{number}"), 1).await;
        assert_eq!(end, (TurnOutcome::Completed, None));
    }
    assert_eq!(log.lines("conversation actor died"), [""; 0]);
    assert_eq!(log.lines("store unavailable: conversations wait for it").len(), 1);
    let back = log.lines("store answers again: conversations restart");
    assert_eq!(back.len(), 1, "{back:?}");
    let deaths = back[0].rsplit_once("actor_deaths=").unwrap().1.parse::<usize>().unwrap();
    assert!(deaths >= CONVERSATIONS, "{deaths}");
}
