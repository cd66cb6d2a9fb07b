//! The network of a run, with the ends of its way and a server.

use super::bottleneck::Bottleneck;
use super::changes::Phase;
use super::way::{Way, host};
use super::{FAR, NEAR};
use crate::cell::Cell;
use crate::engine::{EngineError, Outcome};
use crate::kernel::pressure::{Processors, judge};
use crate::load::asking::Ask;
use crate::load::distant::Distant;
use crate::load::meter::Meter;
use crate::load::screens::Scripts;
use ekiden_emulator::engine::Record;
use ekiden_emulator::topology::{Host, Topology, TopologyPlan};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Of the server that is there while the way is warmed.
const WARMING: u16 = 80;
/// Of the one that is measured.
const MEASURED: u16 = 81;

/// What stands while a load is put on it. Programs end before their machines do.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) way: Way,
    pub(super) bottleneck: Bottleneck,
    topology: Topology,
    processors: Option<Processors>,
}

impl Scene {
    /// Builds the network and starts the far end.
    ///
    /// # Errors
    /// The kernel's, or a program's.
    pub(super) fn build(
        cell: &Cell,
        plan: &TopologyPlan,
        links: [Vec<Phase>; 2],
        ekiden: &Path,
    ) -> Result<Self, EngineError> {
        let mut bottleneck = Bottleneck::of(links, cell.text("load")? == "pace");
        let record = Record { rows: bottleneck.rows(), capture: None };
        let built = Topology::build_recorded(plan, record);
        let topology = built.map_err(|error| EngineError::during("the network")(&error))?;
        bottleneck.begins();
        let way = Way::far(cell, &topology, ekiden)?;
        Ok(Self { way, bottleneck, topology, processors: Processors::look() })
    }

    /// The same with both ends, and something that went over the link.
    ///
    /// # Errors
    /// As [`Self::build`], or nothing goes over it.
    pub(super) fn warm(
        cell: &Cell,
        plan: &TopologyPlan,
        links: [Vec<Phase>; 2],
        ekiden: &Path,
    ) -> Result<Self, EngineError> {
        let mut this = Self::build(cell, plan, links, ekiden)?;
        this.way.near(&this.topology)?;
        let taken = Meter::new(Instant::now(), Duration::ZERO);
        let server = this.server(WARMING, taken, Scripts::default())?;
        this.way.warm(this.near()?, SocketAddr::from((this.far()?.address(), WARMING)))?;
        drop(server);
        Ok(this)
    }

    /// Starts the near end of the way.
    ///
    /// # Errors
    /// It did not start.
    pub(super) fn begin(&mut self) -> Result<(), EngineError> {
        self.way.near(&self.topology)
    }

    /// The server that is measured; what it takes is counted by `taken`.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn serve(&self, taken: Meter) -> Result<Distant, EngineError> {
        self.server(MEASURED, taken, Scripts::default())
    }

    /// The same, which also has scripts to play.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn serve_scripts(&self, scripts: Scripts) -> Result<Distant, EngineError> {
        self.server(MEASURED, Meter::new(Instant::now(), Duration::ZERO), scripts)
    }

    fn server(&self, port: u16, taken: Meter, scripts: Scripts) -> Result<Distant, EngineError> {
        let failed = EngineError::during("the server");
        let far = self.far()?;
        let address = SocketAddr::from((far.address(), port));
        match far.run(|| Distant::serve_scripts(address, taken, scripts)) {
            Ok(served) => served.map_err(|error| failed(&error)),
            Err(error) => Err(failed(&error)),
        }
    }

    /// How the server that is measured is asked, until `end`.
    ///
    /// # Errors
    /// There is no far machine.
    pub(super) fn ask(&self, end: Instant) -> Result<Ask, EngineError> {
        let server = SocketAddr::from((self.far()?.address(), MEASURED));
        Ok(Ask { proxy: self.way.door(), server, end })
    }

    /// Begins something in a thread on the near machine.
    ///
    /// # Errors
    /// Out of threads.
    pub(super) fn start<T: Send + 'static>(
        &self,
        act: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<JoinHandle<io::Result<T>>, EngineError> {
        let failed = EngineError::during("a thread on the near machine");
        match self.near()?.run(|| thread::Builder::new().spawn(act)) {
            Ok(begun) => begun.map_err(|error| failed(&error)),
            Err(error) => Err(failed(&error)),
        }
    }

    /// What became of a thread, with what the ends of the way logged where it failed.
    ///
    /// # Errors
    /// It broke, or panicked.
    pub(super) fn ended<T>(
        &self,
        what: &str,
        thread: JoinHandle<io::Result<T>>,
    ) -> Result<T, EngineError> {
        let done = thread.join().unwrap_or_else(|_| Err(io::Error::other("it panicked")));
        done.map_err(|error| EngineError(format!("{what}: {error}{}", self.way.log())))
    }

    /// Retransmission time-outs of the far machine's TCP so far.
    ///
    /// # Errors
    /// The kernel's counters cannot be read.
    pub(super) fn timeouts(&self) -> Result<u64, EngineError> {
        let failed =
            |error: &dyn std::fmt::Display| EngineError(format!("counting time-outs: {error}"));
        let read = || std::fs::read_to_string("/proc/thread-self/net/netstat");
        let text = self.far()?.run(read).map_err(|error| failed(&error))?;
        let text = text.map_err(|error| failed(&error))?;
        counter(&text, "TCPTimeouts")
            .ok_or_else(|| EngineError("the kernel does not count TCPTimeouts".to_owned()))
    }

    fn near(&self) -> Result<&Host, EngineError> {
        host(&self.topology, NEAR)
    }

    fn far(&self) -> Result<&Host, EngineError> {
        host(&self.topology, FAR)
    }

    /// Ends it all, and says in `outcome` whether links kept their time.
    ///
    /// # Errors
    /// The emulator's, or the server had bytes that were wrong.
    pub(super) fn finish(self, server: Distant, outcome: &mut Outcome) -> Result<(), EngineError> {
        let Self { way, topology, processors, .. } = self;
        let wrong = server.wrong();
        if let Some(version) = way.version() {
            outcome.facts.insert("version".to_owned(), version);
        }
        drop(way);
        drop(server);
        let busy = processors.zip(Processors::look()).map(|(then, now)| now.busy_since(then));
        let links = topology.finish();
        let links = links.map_err(|error| EngineError::during("the links")(&error))?;
        (outcome.fidelity, outcome.reasons) = judge(&links, None);
        outcome.figures.insert("machine_busy".to_owned(), busy.unwrap_or(0.0));
        let late: u64 = links.iter().flat_map(|link| &link.directions).map(|d| d.late).sum();
        outcome.figures.insert("late_packets".to_owned(), late as f64);
        if wrong > 0 {
            return Err(EngineError(format!("{wrong} uploads had bytes that were never sent")));
        }
        Ok(())
    }
}

/// Of `/proc/net/netstat`: a line of names, then a line of values.
fn counter(text: &str, name: &str) -> Option<u64> {
    let lines: Vec<&str> = text.lines().collect();
    lines.chunks_exact(2).find_map(|pair| {
        let [names, values] = pair else { return None };
        let at = names.split_whitespace().position(|word| word == name)?;
        values.split_whitespace().nth(at)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_name() {
        let text = "TcpExt: A TCPTimeouts\nTcpExt: 7 31\nIpExt: B\nIpExt: 5\n";
        assert_eq!(counter(text, "TCPTimeouts"), Some(31));
        assert_eq!(counter(text, "C"), None);
    }
}
