//! A short run of the chaos program, with a fixed seed.

use abide_tests::chaos::{Chaos, StoreKind, run};

use crate::ABIDE;

/// Half a minute: it tests the whole program, not rare faults.
#[tokio::test]
async fn half_a_minute_of_chaos_breaks_no_promise() {
    let chaos = Chaos {
        seed: Some(20_261_122),
        minutes: 0.5,
        store: Some(StoreKind::Pair),
        faults: Vec::new(),
        previous: None,
        workers: 12,
        binary: Some(ABIDE.into()),
        keep: None,
    };
    match run(chaos).await {
        Ok(summary) => println!("measured {summary}"),
        Err(report) => panic!("{report}"),
    }
}
