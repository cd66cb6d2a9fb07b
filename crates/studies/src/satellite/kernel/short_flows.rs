//! What is over soon, and so is made of round trips: a file, first bytes, a page.

use crate::long_link::duration;
use crate::long_link::testbed::Testbed;
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_lab::statistics::median;
use ekiden_lab::study::KernelRun;
use ekiden_model::units::{Bytes, Span};
use ekiden_testbed::load::far_client::FarClient;
use ekiden_testbed::load::meter::Meter;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// First bytes are asked for so often, each on a connection of its own.
const FIRST_BYTES: usize = 10;
/// Between two of them: nothing of the one before is left.
const APART: Duration = Duration::from_millis(300);
/// A page: its document, then some 60 objects of 1.3 MB in all over a browser's connections to one host. Sizes
/// are of no page in particular, as many small as large ones by bytes.
const DOCUMENT: u64 = 40_000;
const OBJECTS: [u64; 12] =
    [800, 1_500, 3_000, 4_500, 6_000, 9_000, 12_000, 18_000, 25_000, 35_000, 50_000, 90_000];
const TIMES: usize = 5;
const CONNECTIONS: usize = 6;

pub(crate) fn run(run: &KernelRun<'_>) -> Result<Outcome, EngineError> {
    let cell = run.cell;
    let lasts = duration(cell, "duration")?;
    let cold = match cell.text("tunnel")? {
        "cold" => true,
        "warm" => false,
        other => return Err(cell.error("tunnel", &format!("`{other}` is not known")).into()),
    };
    let mut scene = if cold { Testbed::build(run)? } else { Testbed::warm(run)? };
    let server = scene.serve(Meter::new(Instant::now(), Duration::ZERO))?;
    let before = Instant::now();
    if cold {
        // from before there is a near relay: its handshake may begin as soon as it runs
        scene.begin()?;
    }
    let started = Instant::now();
    let ask = scene.ask(started + lasts)?;
    let rtt = cell.value::<Span>("rtt")?.as_secs_f64();
    let mut outcome = match cell.text("load")? {
        "file" => {
            let size = cell.value::<Bytes>("file")?.as_u64();
            let got = scene.ended("the file", scene.start(move || file(&ask, size))?)?;
            let took = |since: Instant| got.duration_since(since).as_secs_f64();
            let mut outcome = Outcome::of(took(started));
            let mbit = size as f64 * 8e-6 / took(started);
            outcome.add_figures([("with_start_s", took(before)), ("mbit", mbit)]);
            outcome
        }
        "first byte" => {
            let took = scene.ended("first bytes", scene.start(move || first_bytes(&ask))?)?;
            let value = median(&took).unwrap_or(0.0);
            let mut outcome = Outcome::of(value * 1e3);
            outcome.add_figures([("round_trips", value / rtt)]);
            outcome
        }
        _ => {
            let took = scene.ended("the page", scene.start(move || page(ask))?)?;
            let mut outcome = Outcome::of(took);
            outcome.add_figures([("round_trips", took / rtt)]);
            outcome
        }
    };
    scene.finish(server, &mut outcome)?;
    Ok(outcome)
}

fn file(ask: &FarClient, size: u64) -> io::Result<Instant> {
    Ok(ask.get(&mut ask.door()?, size)?.last)
}

/// Seconds from before each connection until the first byte of its answer.
fn first_bytes(ask: &FarClient) -> io::Result<Vec<f64>> {
    let one = |_| {
        let asked = Instant::now();
        let got = ask.get(&mut ask.door()?, 1)?;
        thread::sleep(APART);
        Ok(got.first.duration_since(asked).as_secs_f64())
    };
    (0..FIRST_BYTES).map(one).collect()
}

/// Seconds until the last object of a page has come.
fn page(ask: FarClient) -> io::Result<f64> {
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
    use ekiden_testbed::load::far_server::FarServer;
    use ekiden_testbed::load::thin_clients::Scripts;

    #[test]
    fn fetches_files_pages_and_first_bytes() {
        let address = ekiden_testbed::peers::ports::free().unwrap();
        let meter = Meter::new(Instant::now(), Duration::ZERO);
        let _server = FarServer::serve(address, meter, Scripts::default()).unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        let ask = FarClient { proxy: None, server: address, end };
        let before = Instant::now();
        assert!(file(&ask, 3 << 20).unwrap() > before);
        assert!(page(ask).unwrap() > 0.0);
        assert_eq!(first_bytes(&ask).unwrap().len(), FIRST_BYTES);
    }
}
