//! The network of a run, with the ends of its way and a server.

use super::bottleneck::Bottleneck;
use super::{BEHIND, FAR, NEAR, changes, network};
use crate::kernel::hosts::host;
use crate::kernel::verdict::{Processors, judge};
use crate::long_link::ends::LinkEnds;
use ekiden_emulator::engine::Record;
use ekiden_emulator::topology::{Host, Topology};
use ekiden_lab::engine::{During, EngineError, Outcome};
use ekiden_lab::study::KernelRun;
use ekiden_testbed::load::far_client::FarClient;
use ekiden_testbed::load::far_server::FarServer;
use ekiden_testbed::load::meter::Meter;
use ekiden_testbed::load::thin_clients::Scripts;
use std::io;
use std::net::SocketAddr;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Of the server that is there while the way is warmed.
const WARMING: u16 = 80;
/// Of the one that is measured.
const MEASURED: u16 = 81;

/// What stands while a load is put on it. Programs end before their machines do.
#[derive(Debug)]
pub(crate) struct Testbed {
    pub(crate) way: LinkEnds,
    pub(crate) bottleneck: Bottleneck,
    topology: Topology,
    processors: Option<Processors>,
}

impl Testbed {
    /// Builds the network and starts the far end. Errors: the kernel's, or a program's.
    pub(crate) fn build(run: &KernelRun<'_>) -> Result<Self, EngineError> {
        Self::build_named(run, &[])
    }

    fn build_named(run: &KernelRun<'_>, names: &[String]) -> Result<Self, EngineError> {
        let cell = run.cell;
        let plan = network(cell, run.seed, run.window.map(|made| made.buffer))?;
        let links = changes::links(cell, run.seed)?;
        let mut bottleneck = Bottleneck::of(links, cell.text("load")? == "pace");
        let record = Record { rows: bottleneck.rows(), capture: None };
        let topology = Topology::build_recorded(&plan, record).during("the network")?;
        bottleneck.begins();
        let way = LinkEnds::far(cell, &topology, run.ekiden, names)?;
        Ok(Self { way, bottleneck, topology, processors: Processors::look() })
    }

    /// The same with both ends, and something that went over the link.
    pub(crate) fn warm(run: &KernelRun<'_>) -> Result<Self, EngineError> {
        Self::warm_named(run, &[])
    }

    /// The same with names of the far machine, which its relay knows alone.
    pub(crate) fn warm_named(run: &KernelRun<'_>, names: &[String]) -> Result<Self, EngineError> {
        let mut this = Self::build_named(run, names)?;
        this.way.near(&this.topology)?;
        let taken = Meter::new(Instant::now(), Duration::ZERO);
        let server = this.server(WARMING, taken, Scripts::default())?;
        this.way.warm(this.clients()?, SocketAddr::from((this.far()?.address(), WARMING)))?;
        drop(server);
        Ok(this)
    }

    pub(crate) fn begin(&mut self) -> Result<(), EngineError> {
        self.way.near(&self.topology)
    }

    /// The server that is measured; what it takes is counted by `taken`.
    pub(crate) fn serve(&self, taken: Meter) -> Result<FarServer, EngineError> {
        self.server(MEASURED, taken, Scripts::default())
    }

    /// The same, which also has scripts to play.
    pub(crate) fn serve_scripts(&self, scripts: Scripts) -> Result<FarServer, EngineError> {
        self.server(MEASURED, Meter::new(Instant::now(), Duration::ZERO), scripts)
    }

    fn server(&self, port: u16, taken: Meter, scripts: Scripts) -> Result<FarServer, EngineError> {
        let far = self.far()?;
        let address = SocketAddr::from((far.address(), port));
        let served = far.run(|| FarServer::serve(address, taken, scripts));
        served.during("the server")?.during("the server")
    }

    /// How the server that is measured is asked, until `end`. Errors: there is no far machine.
    pub(crate) fn ask(&self, end: Instant) -> Result<FarClient, EngineError> {
        let server = SocketAddr::from((self.far()?.address(), MEASURED));
        Ok(FarClient { proxy: self.way.door(), server, end })
    }

    pub(crate) fn start<T: Send + 'static>(
        &self,
        act: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<JoinHandle<io::Result<T>>, EngineError> {
        const THREAD: &str = "a thread on the near machine";
        self.clients()?.run(|| thread::Builder::new().spawn(act)).during(THREAD)?.during(THREAD)
    }

    /// The result of a thread, its error with the ends' logs.
    pub(crate) fn ended<T>(
        &self,
        what: &str,
        thread: JoinHandle<io::Result<T>>,
    ) -> Result<T, EngineError> {
        let done = thread.join().unwrap_or_else(|_| Err(io::Error::other("it panicked")));
        done.map_err(|error| EngineError(format!("{what}: {error}{}", self.way.log())))
    }

    /// Retransmission time-outs of the far machine's TCP so far.
    pub(crate) fn timeouts(&self) -> Result<u64, EngineError> {
        counted(self.far()?, "netstat", "TCPTimeouts")
    }

    /// How often the clients' machine was told that a destination cannot be reached (ICMP) so far.
    pub(crate) fn unreachable(&self) -> Result<u64, EngineError> {
        counted(self.clients()?, "snmp", "InDestUnreachs")
    }

    /// Where clients run: the near machine, or the one behind it.
    pub(crate) fn clients(&self) -> Result<&Host, EngineError> {
        let behind = self.topology.host(BEHIND).map(Ok);
        behind.unwrap_or_else(|| host(&self.topology, NEAR))
    }

    /// The near machine: a gateway, where clients have one of their own.
    pub(crate) fn near(&self) -> Result<&Host, EngineError> {
        host(&self.topology, NEAR)
    }

    pub(crate) fn far(&self) -> Result<&Host, EngineError> {
        host(&self.topology, FAR)
    }

    /// Ends everything, and records in `outcome` whether the links kept their time. Errors: also uploads with
    /// wrong bytes.
    pub(crate) fn finish(
        self,
        server: FarServer,
        outcome: &mut Outcome,
    ) -> Result<(), EngineError> {
        let Self { way, topology, processors, .. } = self;
        let wrong = server.wrong();
        way.version().into_iter().for_each(|version| outcome.add_fact("version", version));
        drop(way);
        drop(server);
        let busy = processors.zip(Processors::look()).map(|(then, now)| now.busy_since(then));
        let links = topology.finish().during("the links")?;
        (outcome.fidelity, outcome.reasons) = judge(&links, None);
        let late: u64 = links.iter().flat_map(|link| &link.directions).map(|d| d.counts.late).sum();
        let figures = [("machine_busy", busy.unwrap_or(0.0)), ("late_packets", late as f64)];
        outcome.add_figures(figures);
        if wrong > 0 {
            return Err(EngineError(format!("{wrong} uploads had bytes that were never sent")));
        }
        Ok(())
    }
}

fn counted(host: &Host, file: &str, name: &str) -> Result<u64, EngineError> {
    const COUNTING: &str = "a counter of the kernel";
    let read = || std::fs::read_to_string(format!("/proc/thread-self/net/{file}"));
    let text = host.run(read).during(COUNTING)?.during(COUNTING)?;
    counter(&text, name).ok_or_else(|| EngineError(format!("the kernel does not count {name}")))
}

/// Of `/proc/net/netstat` and `snmp`: a line of names, then a line of values.
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
    fn finds_a_counter_by_name() {
        let text = "TcpExt: A TCPTimeouts\nTcpExt: 7 31\nIpExt: B\nIpExt: 5\n";
        assert_eq!(counter(text, "TCPTimeouts"), Some(31));
        assert_eq!(counter(text, "C"), None);
    }
}
