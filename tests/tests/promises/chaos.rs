//! A short run of the chaos program, with a fixed seed.

use abide_tests::chaos::{Chaos, run};

use crate::ABIDE;

/// Half a minute: the whole program, not the search for what is rare.
#[tokio::test]
async fn half_a_minute_of_chaos_breaks_no_promise() {
    let chaos = Chaos {
        seed: Some(20_261_122),
        minutes: 0.5,
        store: None,
        workers: 12,
        binary: Some(ABIDE.into()),
        keep: None,
    };
    match run(chaos).await {
        Ok(numbers) => println!("measured {numbers}"),
        Err(story) => panic!("{story}"),
    }
}
