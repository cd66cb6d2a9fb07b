//! A server, and a machine with a relay for each remedy and each load, all measured at once.

use crate::load;
use crate::remedy::{Load, REMEDIES, Remedy};
use crate::sent;
use crate::table::Row;
use ekiden_emulator::topology::{
    Host, HostPlan, LinkPlan, MTU, Process, ProcessPlan, Topology, TopologyPlan,
};
use ekiden_model::network::link::Config;
use ekiden_model::units::{Share, Span};
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

const PORT: u16 = 7000;
const RELAY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 3128);
const READY: Duration = Duration::from_secs(20);

/// What the links are like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell {
    pub(crate) rtt: Span,
    /// In each direction.
    pub(crate) loss: Share,
    pub(crate) destinations: u8,
}

/// A relay, and what it is measured with.
struct Contestant<'a> {
    host: &'a Host,
    remedy: Remedy,
    load: Load,
    control: String,
    log: PathBuf,
    _relay: Process,
}

type Failure = Box<dyn Error + Send + Sync>;

impl Cell {
    /// Every remedy under every load.
    pub(crate) fn measure(
        self,
        binary: &Path,
        openings: usize,
        rate: u32,
    ) -> Result<Vec<Row>, Failure> {
        let folder = tempfile::tempdir()?;
        let topology = Topology::build(&self.plan())?;
        let server = topology.host("server").ok_or("there is no server")?;
        for nth in 0..self.destinations {
            run(server, &["address", "add", &format!("{}/32", destination(nth)), "dev", "lo"])?;
        }
        server.run(|| load::serve(PORT))??;
        let mut contestants = Vec::new();
        for (nth, (remedy, load)) in entries().into_iter().enumerate() {
            let host = topology.host(&name(nth)).ok_or("there is no such relay")?;
            let way = run(host, &["route", "show", &server.address().to_string()])?;
            let way: Vec<&str> = way.split_whitespace().skip(1).collect();
            for nth in 0..self.destinations {
                let to = destination(nth).to_string();
                run(host, &[&["route", "add", &to][..], &way].concat())?;
            }
            let file = folder.path().join(format!("{nth}.toml"));
            let control = folder.path().join(format!("{nth}.sock")).display().to_string();
            let access = "[access]\nallow_destinations = [\"100.64.0.0/10\"]\n";
            let keys = format!("control = \"{control}\"\n{access}[leg.direct]\n{}", remedy.keys);
            fs::write(&file, keys)?;
            let log = folder.path().join(format!("{nth}.log"));
            // what it says of each further SYN, and nothing else
            let command = format!(
                "EKIDEN_LOG=off,ekiden_proxy::outbound::syn_race=debug exec {} serve --config {} 2>{}",
                binary.display(),
                file.display(),
                log.display()
            );
            let plan = ProcessPlan { host: name(nth), command, ready: Some(RELAY.port()) };
            let relay = Process::start(host, &plan, READY)?;
            contestants.push(Contestant { host, remedy, load, control, log, _relay: relay });
        }
        let rows = thread::scope(|scope| {
            let running: Vec<_> = contestants
                .iter()
                .map(|c| scope.spawn(move || c.measure(self, binary, openings, rate)))
                .collect();
            let joined = running.into_iter().map(|thread| {
                thread.join().map_err(|_| Failure::from("a thread of the load panicked"))?
            });
            joined.collect::<Result<Vec<Row>, Failure>>()
        })?;
        drop(contestants);
        topology.finish()?;
        Ok(rows)
    }

    fn plan(self) -> TopologyPlan {
        let host = |name: String| HostPlan { name, ..HostPlan::default() };
        let entries = 0..entries().len();
        let direction = |seed| Config {
            delay: Span::from_nanos(self.rtt.as_nanos() / 2),
            loss: self.loss.into(),
            seed,
            ..Config::default()
        };
        let link = |nth: usize| LinkPlan {
            name: name(nth),
            between: [name(nth), "server".to_owned()],
            mtu: MTU,
            super_packets: false,
            one_by_one: true,
            forward: direction(2 * nth as u64 + 1),
            backward: direction(2 * nth as u64 + 2),
        };
        TopologyPlan {
            hosts: entries.clone().map(name).chain(["server".to_owned()]).map(host).collect(),
            links: entries.map(link).collect(),
            processes: Vec::new(),
        }
    }
}

impl Contestant<'_> {
    fn measure(
        &self,
        cell: Cell,
        binary: &Path,
        openings: usize,
        rate: u32,
    ) -> Result<Row, Failure> {
        let many = if self.load == Load::One { 1 } else { cell.destinations };
        let to: Vec<_> =
            (0..many).map(|nth| SocketAddr::new(destination(nth).into(), PORT)).collect();
        let before = self.counters()?;
        let begun = Instant::now();
        let took = self.host.run(|| load::open(RELAY, &to, openings, rate))?;
        let seconds = begun.elapsed().as_secs_f64();
        let after = self.counters()?;
        let status =
            Command::new(binary).args(["status", "--json", "--socket", &self.control]).output()?;
        let status: serde_json::Value = serde_json::from_slice(&status.stdout)?;
        let legs = status["legs"].as_array().ok_or("the relay's status has no legs")?;
        let leg = legs.iter().find(|leg| leg["name"] == "direct").ok_or("there is no leg")?;
        let [sockets, repeats] = [0, 1].map(|nth| after[nth].saturating_sub(before[nth]));
        Ok(Row {
            rtt: cell.rtt,
            loss: cell.loss,
            remedy: self.remedy.name.to_owned(),
            load: self.load.name().to_owned(),
            destinations: many,
            seconds,
            // the load's own connections to the relay are sockets of the same machine
            syns: (sockets + repeats).saturating_sub(openings as u64),
            copies: sockets.saturating_sub(2 * openings as u64),
            opening: leg["opening"].clone(),
            most_seconds: sent::most_in_a_second(&fs::read_to_string(&self.log)?)?,
            took,
        })
    }

    /// Sockets that were connected, and SYNs that the kernel repeated.
    fn counters(&self) -> Result<[u64; 2], Failure> {
        let read = |file: &str| fs::read_to_string(format!("/proc/thread-self/net/{file}"));
        let (snmp, netstat) = self.host.run(|| (read("snmp"), read("netstat")))?;
        let (snmp, netstat) = (snmp?, netstat?);
        let find = |text: &str, name: &str| {
            counter(text, name).ok_or_else(|| Failure::from(format!("there is no counter {name}")))
        };
        Ok([find(&snmp, "ActiveOpens")?, find(&netstat, "TCPSynRetrans")?])
    }
}

/// Of `/proc/net/snmp` and `netstat`: a line of names, then a line of values.
fn counter(text: &str, name: &str) -> Option<u64> {
    let lines: Vec<&str> = text.lines().collect();
    lines.chunks_exact(2).find_map(|pair| {
        let at = pair[0].split_whitespace().position(|word| word == name)?;
        pair[1].split_whitespace().nth(at)?.parse().ok()
    })
}

fn entries() -> Vec<(Remedy, Load)> {
    Load::ALL.into_iter().flat_map(|load| REMEDIES.map(|remedy| (remedy, load))).collect()
}

fn name(nth: usize) -> String {
    format!("relay{nth}")
}

/// Each in a /24 of its own: to a relay, another destination.
const fn destination(nth: u8) -> Ipv4Addr {
    Ipv4Addr::new(100, 127, 100 + nth, 1)
}

/// `ip` on a machine of the network.
fn run(host: &Host, arguments: &[&str]) -> Result<String, Failure> {
    let mut command = Command::new("ip");
    command.arg("-4").args(arguments);
    host.place(&mut command)?;
    let output = command.output().map_err(|e| format!("ip, of the package iproute2: {e}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("ip {}: {why}", arguments.join(" ")).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
