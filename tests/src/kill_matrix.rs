//! The kill matrix: every await point of a turn, and what breaks there.
//!
//! A node is killed with all that it has in memory, so that only what others know of it counts: two
//! kills between which the node neither asked anybody for anything nor got an answer leave the same
//! behind. So the await points are the requests of a node to its store, model, tools and hooks, each
//! before the request is carried out and after that, before the answer. A proxy that knows the
//! commands, and servers of ours, see them all: nothing is compiled into the node for it, and a request
//! that the list does not have fails the test.

mod gate;
mod page;
mod points;
mod resp;
mod run;
mod servers;
mod tap;
mod watched;

use std::path::{Path, PathBuf};

use clap::Parser;
use futures::StreamExt;

use self::gate::InjectionPoint;
pub use self::gate::Side;
use self::page::Row;
pub use self::points::{Coverage, POINTS, Point, points_of};
pub use self::run::Break;
use self::run::{BREAKS, run};
pub use self::watched::{WatchedNode, script_of};
use crate::program;

/// Breaks a node, its Redis and its links at every await point of a turn, checks every promise, and
/// prints the page of the book.
#[derive(Clone, Debug, Parser)]
#[command(name = "kill-matrix")]
pub struct KillMatrix {
    /// The node's program; a release build of this source if not given
    #[arg(long)]
    pub binary: Option<PathBuf>,
    /// How many runs at a time
    #[arg(long, default_value_t = 4)]
    pub parallel: usize,
    /// Only the await point of this name
    #[arg(long)]
    pub point: Option<String>,
}

/// Makes the whole matrix. Returns the page.
///
/// # Errors
///
/// The broken promises, one paragraph for each place.
pub async fn matrix(options: KillMatrix) -> Result<String, String> {
    let program = program::release(options.binary.as_deref()).await?;
    let whole = run(&program, None).await?;
    let places = POINTS
        .iter()
        .filter(|point| options.point.as_ref().is_none_or(|wanted| wanted == point.name));
    let places = places.flat_map(|point| {
        let sides = [Side::Before, Side::After].into_iter();
        sides.flat_map(move |side| BREAKS.map(|what| (point, side, what)))
    });
    let runs = places.map(|(point, side, what)| {
        let (program, whole) = (&program, &whole);
        async move {
            let place = InjectionPoint { point: point.name.to_owned(), side };
            let observed = run(program, Some((place, what))).await;
            let row = observed.map(|observed| Row::of(point, side, what, whole, &observed));
            row.map_err(|why| {
                let broken = format!("{} {side:?} {what:?}: {why}", point.name);
                eprintln!("{broken}");
                broken
            })
        }
    });
    let rows: Vec<Result<Row, String>> =
        futures::stream::iter(runs).buffered(options.parallel).collect().await;
    let (rows, broken): (Vec<_>, Vec<_>) = rows.into_iter().partition(Result::is_ok);
    let broken: Vec<String> = broken.into_iter().filter_map(Result::err).collect();
    if broken.is_empty() {
        Ok(page::page(&rows.into_iter().flatten().collect::<Vec<_>>()))
    } else {
        Err(broken.join("\n\n"))
    }
}

/// The await points of a turn in which nothing breaks, in the order in which they are reached.
///
/// # Errors
///
/// A broken promise.
pub async fn observed_points(program: &Path) -> Result<Vec<String>, String> {
    Ok(run(program, None).await?.points)
}

/// Breaks this at both sides of one await point.
///
/// # Errors
///
/// A broken promise, or a point that was not reached.
pub async fn break_at(program: &Path, point: &str, what: Break) -> Result<(), String> {
    for side in [Side::Before, Side::After] {
        let place = InjectionPoint { point: point.to_owned(), side };
        run(program, Some((place, what))).await?;
    }
    Ok(())
}

/// The places of the matrix that have no row on this page.
pub fn missing_rows(page: &str) -> Vec<String> {
    page::missing_rows(page)
}
