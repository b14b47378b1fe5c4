//! Bounds how often one place in the program may log: what befalls thousands of conversations at once
//! is logged a few times, and then counted.

use std::collections::HashMap;
use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The lines of one place that are logged within a window: enough to see what happens.
const MAX_LINES: u32 = 50;
/// How long the lines of a place are counted together.
const WINDOW: Duration = Duration::from_secs(1);
/// The field that names who did something. Lines with it are the record of what operators did, and
/// none of them is dropped.
const AUTHOR_FIELD: &str = "by";

/// A layer that drops the lines of a place in the program beyond [`MAX_LINES`] in a [`WINDOW`]. How
/// many were dropped is logged a window later at the latest, at their level.
///
/// It costs a lookup for each line that is logged, and nothing for the others.
pub(super) struct FloodLimit {
    places: Arc<Mutex<HashMap<Identifier, Place>>>,
    /// Wakes whoever reports what was dropped; room for one is enough.
    dropped: SyncSender<()>,
}

/// The lines of one place since its window began.
struct Place {
    began: Instant,
    lines: u32,
    dropped: u64,
    level: Level,
    message: String,
}

/// Logs what was dropped.
struct Reporter {
    places: Arc<Mutex<HashMap<Identifier, Place>>>,
    dropped: Receiver<()>,
}

impl FloodLimit {
    /// A limit with a thread that reports what it dropped, and sleeps until then. `None` if there is
    /// no such thread: nothing is dropped uncounted.
    pub(super) fn start() -> Option<Self> {
        let (limit, reporter) = Self::new();
        let thread = thread::Builder::new().name("log".to_owned());
        thread.spawn(move || reporter.run()).ok()?;
        Some(limit)
    }

    fn new() -> (Self, Reporter) {
        let places = Arc::<Mutex<HashMap<Identifier, Place>>>::default();
        let (sender, dropped) = sync_channel(1);
        (Self { places: places.clone(), dropped: sender }, Reporter { places, dropped })
    }

    /// Whether one more line may be logged at that time.
    fn admits(&self, event: &Event<'_>, now: Instant) -> bool {
        let metadata = event.metadata();
        if metadata.fields().field(AUTHOR_FIELD).is_some() {
            return true;
        }
        let mut places = lock(&self.places);
        let place = places.entry(metadata.callsite()).or_insert_with(|| Place::new(metadata, now));
        // What was dropped is reported before its window is forgotten.
        if place.dropped == 0 && now.saturating_duration_since(place.began) >= WINDOW {
            (place.began, place.lines) = (now, 0);
        }
        if place.lines < MAX_LINES {
            place.lines += 1;
            return true;
        }
        if place.dropped == 0 {
            event.record(&mut MessageVisitor(&mut place.message));
        }
        place.dropped += 1;
        drop(places);
        // A full channel has woken the reporter already.
        let _ = self.dropped.try_send(());
        false
    }
}

impl<S: Subscriber> Layer<S> for FloodLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        self.admits(event, Instant::now())
    }
}

impl Place {
    fn new(metadata: &Metadata<'_>, began: Instant) -> Self {
        Self { began, lines: 0, dropped: 0, level: *metadata.level(), message: String::new() }
    }
}

impl Reporter {
    fn run(self) {
        while self.dropped.recv().is_ok() {
            thread::sleep(WINDOW);
            self.report();
        }
    }

    /// Logs how many lines of each place were dropped, and lets the place log again.
    fn report(&self) {
        let mut reports = Vec::new();
        for place in lock(&self.places).values_mut().filter(|place| place.dropped > 0) {
            reports.push((place.level, std::mem::take(&mut place.dropped), place.message.clone()));
            place.lines = 0;
        }
        for (level, dropped, line) in reports {
            if level == Level::ERROR {
                tracing::error!(dropped, line, "log lines dropped");
            } else if level == Level::WARN {
                tracing::warn!(dropped, line, "log lines dropped");
            } else {
                tracing::info!(dropped, line, "log lines dropped");
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the message of a line, which is a fixed phrase.
struct MessageVisitor<'a>(&'a mut String);

impl Visit for MessageVisitor<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            *self.0 = format!("{value:?}");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use tracing_subscriber::fmt;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            lock(&self.0).write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Log {
        fn count(&self, words: &str) -> usize {
            let text = String::from_utf8(lock(&self.0).clone()).unwrap();
            text.lines().filter(|line| line.contains(words)).count()
        }
    }

    fn logged(run: impl FnOnce(&Reporter)) -> Log {
        let (limit, reporter) = FloodLimit::new();
        let log = Log::default();
        let writer = log.clone();
        let lines = fmt::layer().with_ansi(false).with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(limit).with(lines);
        tracing::subscriber::with_default(subscriber, || run(&reporter));
        log
    }

    #[test]
    fn a_flood_of_one_line_is_bounded_and_what_was_dropped_is_counted() {
        let log = logged(|reporter| {
            for conversation in 0..13_004 {
                tracing::warn!(conversation, "conversation actor died");
            }
            tracing::error!("something else");
            reporter.report();
            reporter.report();
        });
        assert_eq!(log.count("conversation actor died conversation="), MAX_LINES as usize);
        assert_eq!(log.count("WARN"), MAX_LINES as usize + 1);
        assert_eq!(log.count("dropped=12954 line=\"conversation actor died\""), 1);
        assert_eq!(log.count("something else"), 1);
    }

    #[test]
    fn a_place_logs_again_after_its_report() {
        let log = logged(|reporter| {
            for round in 0..3 {
                (0..100).for_each(|_| tracing::info!(round, "again"));
                reporter.report();
            }
        });
        assert_eq!(log.count("again round="), 3 * MAX_LINES as usize);
        assert_eq!(log.count("dropped=50"), 3);
    }

    #[test]
    fn what_operators_did_is_never_dropped() {
        let log = logged(|_| {
            (0..1_000).for_each(|_| tracing::info!(by = "ada", "repair by an operator"));
        });
        assert_eq!(log.count("repair by an operator"), 1_000);
    }
}
