//! The steps of a new connection by HTTPS: the proxy's success, TLS, the first byte, files.

use super::site::Site;
use crate::pages::page::{Page, host_name};
use crate::pages::steps::{FILES, Steps, apart};
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_lab::statistics::median;
use ekiden_lab::study::KernelRun;
use ekiden_testbed::load::blocking::tunnel;
use ekiden_testbed::load::{Destination, Method};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Instant;

/// So often for what takes a round trip or two; the median counts.
const TIMES: usize = 3;

pub(super) fn run(run: &KernelRun<'_>) -> Result<Outcome, EngineError> {
    let byte = Page::file(1);
    let files = FILES.map(|(_, bytes)| Page::file(bytes));
    let pages: Vec<Page> = files.iter().chain([&byte]).cloned().collect();
    let site = Site::build(run, &pages)?;
    let apart = apart(run.cell)?.into();
    let (mut success, mut tls, mut first) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TIMES {
        let (door, server) = (site.scene.way.door(), site.server());
        let done = site.scene.start(move || succeed(door, server))?;
        success.push(site.scene.ended("a connection", done)?);
        thread::sleep(apart);
        let fetched = site.fetch(&byte)?;
        tls.push(fetched.tls);
        first.push(fetched.first);
        thread::sleep(apart);
    }
    let mut took = Vec::new();
    for file in &files {
        took.push(site.fetch(file)?.last);
        thread::sleep(apart);
    }
    let middle = |of: &[f64]| median(of).unwrap_or_default();
    let steps = Steps { tls: middle(&tls), first: middle(&first), files: took };
    let mut outcome = steps.outcome(run.cell)?;
    outcome.add_figures([("success_ms", middle(&success) * 1e3)]);
    site.finish(&mut outcome)?;
    Ok(outcome)
}

/// Seconds until a proxy says that a connection stands; without one, until it does.
fn succeed(proxy: Option<SocketAddr>, server: SocketAddr) -> io::Result<f64> {
    let begin = Instant::now();
    match proxy {
        Some(proxy) => {
            let host = Destination::Name(host_name(1), server.port());
            tunnel(proxy, Method::Connect, host).map(drop)
        }
        None => TcpStream::connect(server).map(drop),
    }?;
    Ok(begin.elapsed().as_secs_f64())
}
