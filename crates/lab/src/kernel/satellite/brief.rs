//! What is over soon, and so is made of round trips: a file, first bytes, a page.

use super::changes::Phase;
use super::scene::Scene;
use crate::cell::Cell;
use crate::engine::{EngineError, Outcome};
use crate::load::asking::Ask;
use crate::load::meter::Meter;
use crate::statistics::median;
use ekiden_emulator::topology::TopologyPlan;
use ekiden_model::units::{Bytes, Span};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// First bytes are asked for so often, each on a connection of its own.
const FIRST_BYTES: usize = 10;
/// Between two of them: nothing of the one before is left.
const APART: Duration = Duration::from_millis(300);
/// A page: its document first, then what it names, by as many connections as a browser opens to one host.
/// Sizes are of no page in particular; some 60 objects of 1.3 MB, as many small as large ones by bytes.
const DOCUMENT: u64 = 40_000;
const OBJECTS: [u64; 12] =
    [800, 1_500, 3_000, 4_500, 6_000, 9_000, 12_000, 18_000, 25_000, 35_000, 50_000, 90_000];
const TIMES: usize = 5;
const CONNECTIONS: usize = 6;

/// A cell's run.
///
/// # Errors
/// The cell lacks a value, something did not start or broke, or time was over.
pub(super) fn run(
    cell: &Cell,
    plan: &TopologyPlan,
    links: [Vec<Phase>; 2],
    ekiden: &Path,
) -> Result<Outcome, EngineError> {
    let duration = Duration::from_nanos(cell.value::<Span>("duration")?.as_nanos());
    let cold = match cell.text("tunnel")? {
        "cold" => true,
        "warm" => false,
        other => return Err(cell.error("tunnel", &format!("«{other}» is not known")).into()),
    };
    let mut scene = if cold {
        Scene::build(cell, plan, links, ekiden)
    } else {
        Scene::warm(cell, plan, links, ekiden)
    }?;
    let server = scene.serve(Meter::new(Instant::now(), Duration::ZERO))?;
    let before = Instant::now();
    if cold {
        // from before there is a near relay: its handshake may begin as soon as it runs
        scene.begin()?;
    }
    let started = Instant::now();
    let ask = scene.ask(started + duration)?;
    let rtt = cell.value::<Span>("rtt")?.as_nanos() as f64 / 1e9;
    let mut outcome = match cell.text("load")? {
        "file" => {
            let size = cell.value::<Bytes>("file")?.as_u64();
            let got = scene.ended("the file", scene.start(move || file(&ask, size))?)?;
            let took = |since: Instant| got.duration_since(since).as_secs_f64();
            let mut outcome = Outcome { value: took(started), ..Outcome::default() };
            outcome.figures.insert("with_start_s".to_owned(), took(before));
            outcome.figures.insert("mbit".to_owned(), size as f64 * 8e-6 / took(started));
            outcome
        }
        "first byte" => {
            let took = scene.ended("first bytes", scene.start(move || first_bytes(&ask))?)?;
            let value = median(&took).unwrap_or(0.0);
            let mut outcome = Outcome { value: value * 1e3, ..Outcome::default() };
            outcome.figures.insert("round_trips".to_owned(), value / rtt);
            outcome
        }
        _ => {
            let took = scene.ended("the page", scene.start(move || page(ask))?)?;
            let mut outcome = Outcome { value: took, ..Outcome::default() };
            outcome.figures.insert("round_trips".to_owned(), took / rtt);
            outcome
        }
    };
    scene.finish(server, &mut outcome)?;
    Ok(outcome)
}

/// When its last byte came.
fn file(ask: &Ask, size: u64) -> io::Result<Instant> {
    Ok(ask.get(&mut ask.door()?, size)?.last)
}

/// Seconds from before each connection until the first byte of its answer.
fn first_bytes(ask: &Ask) -> io::Result<Vec<f64>> {
    let one = |_| {
        let asked = Instant::now();
        let got = ask.get(&mut ask.door()?, 1)?;
        thread::sleep(APART);
        Ok(got.first.duration_since(asked).as_secs_f64())
    };
    (0..FIRST_BYTES).map(one).collect()
}

/// Seconds until the last object of a page has come.
fn page(ask: Ask) -> io::Result<f64> {
    let asked = Instant::now();
    let mut first = ask.door()?;
    ask.get(&mut first, DOCUMENT)?;
    let objects: Vec<u64> = OBJECTS.repeat(TIMES);
    let next = AtomicUsize::new(0);
    let fetch = |mut stream: std::net::TcpStream| -> io::Result<()> {
        while let Some(size) = objects.get(next.fetch_add(1, Ordering::Relaxed)) {
            ask.get(&mut stream, *size)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..CONNECTIONS).map(|_| scope.spawn(|| fetch(ask.door()?))).collect();
        let mut done = fetch(first);
        for other in others {
            let joined = other.join().unwrap_or_else(|_| Err(io::Error::other("it panicked")));
            done = done.and(joined);
        }
        done
    })?;
    Ok(asked.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::distant::Distant;

    #[test]
    fn files_pages_and_first_bytes_come_from_one_server() {
        let address = crate::peers::ports::free().unwrap();
        let _server = Distant::serve(address, Meter::new(Instant::now(), Duration::ZERO)).unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        let ask = Ask { proxy: None, server: address, end };
        let before = Instant::now();
        assert!(file(&ask, 3 << 20).unwrap() > before);
        assert!(page(ask).unwrap() > 0.0);
        assert_eq!(first_bytes(&ask).unwrap().len(), FIRST_BYTES);
    }
}
