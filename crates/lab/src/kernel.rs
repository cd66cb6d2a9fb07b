//! The engine whose TCP is this machine's kernel: hosts are network namespaces, links are emulated, and
//! everything that sends is a real program.
//!
//! nginx serves files from memory, curl fetches them, relays stand between. HTTP proxies are asked by
//! GET with the whole URL, SOCKS5 servers by CONNECT. The process must be inside
//! [`ekiden_linux::sandbox`] before an engine is made.

mod asymmetric;
mod calibration;
mod handshakes;
mod jam;
mod network;
mod pressure;
pub(crate) mod satellite;
mod set_up;
mod transfer;
mod window;

use crate::asymmetry;
use crate::cell::Cell;
use crate::engine::{Calibration, Engine, EngineError, Fidelity, Outcome, WHOLE};
use crate::peers::find;
use crate::runner::order::Task;
use asymmetric::Ground;
use ekiden_emulator::fidelity::Verdict;
use ekiden_linux::bpf::{Control, Loaded, Needs};
use ekiden_linux::sysctl;
use ekiden_model::units::{Bytes, Span};
use set_up::{Files, SetUp};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;
use window::{Packets, Window};

/// Where files to be served are made: memory on every Linux; better the sandbox's own.
pub const MEMORY: &str = "/dev/shm";

/// Of downloads where nothing is lost: Ethernet's, in super-packets.
const ORDINARY: Packets = Packets { mtu: ekiden_emulator::topology::MTU, together: true };

/// Runs cells on this machine's kernel.
#[derive(Debug)]
pub struct Kernel {
    ekiden: PathBuf,
    files: Files,
    /// Receive buffers by the window they make of which packets.
    buffers: BTreeMap<(u64, Packets), Window>,
    /// Westwood+ once a cell has asked for it: there as long as this is.
    westwood: Option<Loaded>,
}

impl Kernel {
    /// An engine whose ekiden is this program.
    ///
    /// # Errors
    /// No memory file system.
    pub fn new(ekiden: &Path) -> Result<Self, EngineError> {
        let files = Files::new()?;
        Ok(Self { ekiden: ekiden.to_owned(), files, buffers: BTreeMap::new(), westwood: None })
    }

    /// The receive buffer for a cell's window.
    fn buffer(&mut self, cell: &Cell) -> Result<Option<Window>, EngineError> {
        if cell.text("window")? == "defaults" {
            return Ok(None);
        }
        let window = cell.value::<Bytes>("window")?.as_u64();
        let packets = if satellite::is_meant(cell) {
            satellite::PACKETS
        } else if asymmetry::is_meant(cell) {
            Packets { mtu: cell.value("mtu")?, together: cell.text("offload")? == "on" }
        } else {
            ORDINARY
        };
        if let Some(buffer) = self.buffers.get(&(window, packets)) {
            return Ok(Some(*buffer));
        }
        let made = window::buffer_for(window, packets)?;
        self.buffers.insert((window, packets), made);
        Ok(Some(made))
    }

    /// What the kernel calls Ekiden's Westwood+, which it has from now on.
    fn westwood(&mut self) -> Result<String, EngineError> {
        let loaded = match self.westwood.take() {
            Some(loaded) => loaded,
            None => Loaded::load(Control::Westwood)
                .map_err(|missing| EngineError(format!("Westwood+: {missing}")))?,
        };
        let name = loaded.name().to_owned();
        self.westwood = Some(loaded);
        Ok(name)
    }

    fn measure(&mut self, cell: &Cell, seed: u64) -> Result<Outcome, EngineError> {
        let size = cell.value::<Bytes>("file")?.as_u64();
        let cut: Span = cell.value("cut")?;
        let file = self.files.of(size)?;
        let window = self.buffer(cell)?;
        let mut network = network::of(cell, seed, window.map(|made| made.buffer))?;
        if cell.text("congestion")? == Control::Westwood.word() {
            let name = self.westwood()?;
            for host in &mut network.plan.hosts {
                host.congestion = Some(name.clone());
            }
        }
        let begun = Instant::now();
        let mut set_up = SetUp::build(cell, network, self.files.folder(), &self.ekiden)?;
        let took = begun.elapsed().as_secs_f64();
        // what came late while programs were started is nobody's loss
        let _before = set_up.topology.look();
        let transfer = set_up.download(&file, size, cut)?;
        let (fidelity, reasons) = verdict(set_up.topology.look());
        let mut outcome =
            Outcome { value: transfer.goodput(), fidelity, reasons, ..Outcome::default() };
        let figures = [
            ("bytes", transfer.bytes),
            ("seconds", transfer.seconds),
            ("connect_ms", transfer.connect * 1e3),
            ("first_byte_ms", transfer.first_byte * 1e3),
            ("set_up_s", took),
        ];
        outcome.figures.extend(figures.map(|(name, value)| (name.to_owned(), value)));
        tell(window, &mut outcome);
        let mode = if set_up.super_packets { "super-packets" } else { "single packets" };
        let cut = if transfer.was_cut() { "yes" } else { "no" };
        outcome.facts.insert("links see".to_owned(), mode.to_owned());
        outcome.facts.insert("cut".to_owned(), cut.to_owned());
        outcome.facts.insert("congestion".to_owned(), set_up.congestion.clone());
        Ok(outcome)
    }
}

impl Engine for Kernel {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn lacks(&self, cell: &Cell) -> Option<&'static str> {
        if satellite::is_meant(cell) {
            return satellite::lacks(cell);
        }
        if cell.text("congestion") == Ok("westwood") && Needs::look().met().is_err() {
            return Some("Westwood+ cannot be loaded into this kernel; «ekiden doctor» says why");
        }
        handshakes::lacks(cell)
    }

    fn weight(&self, cell: &Cell) -> u32 {
        if satellite::is_meant(cell) { satellite::weight(cell) } else { WHOLE }
    }

    fn facts(&mut self) -> BTreeMap<String, String> {
        let mut facts = BTreeMap::new();
        let mut put = |name: &str, value: String| {
            facts.insert(name.to_owned(), value);
        };
        for name in [
            "net.ipv4.tcp_available_congestion_control",
            "net.ipv4.tcp_rmem",
            "net.ipv4.tcp_wmem",
            "net.ipv4.tcp_min_tso_segs",
            "net.ipv4.tcp_tso_win_divisor",
        ] {
            put(name, sysctl::read(name).unwrap_or_default());
        }
        for ((window, packets), made) in &self.buffers {
            let value = format!("tcp_rmem of {} bytes, fixed", made.buffer);
            put(&format!("window of {}, {packets}", Bytes::new(*window)), value);
        }
        put(
            "links",
            "super-packets of the kernel's own choice where nothing is lost; super-packets of at least \
             44 segments or a third of the window where those are lost; single packets where those are \
             lost"
                .to_owned(),
        );
        put(
            "thin links",
            "single packets: sent, carried and received one by one where offload is off; cut and joined \
             in batches by the kernel where it is on; the links beside a relay carry super-packets"
                .to_owned(),
        );
        put(
            "method",
            "curl asks squid and ekiden by GET with the whole URL, dante by SOCKS5 CONNECT; goodput is \
             the file's bytes over the time from before connecting to the last byte; every run starts \
             cold, with relays that have no connection to each other"
                .to_owned(),
        );
        put(
            "the proxy under pressure",
            "hosts have Linux's own tcp_rmem and tcp_wmem whatever this machine's are; 200 places are 200 \
             clients with what their requests lead to, for squid 400 descriptors and those it has at rest; \
             nothing is cached"
                .to_owned(),
        );
        put(
            "long links with loss",
            "clients and one relay on the near machine, servers and the other relay on the far one; relays are \
             asked by SOCKS5, for documents by HTTP; hysteria2 is sing-box's and is told whole Mbit/s; several \
             runs at once where links are thin, each with machines of its own"
                .to_owned(),
        );
        for (program, package, flag) in [
            ("squid", "squid", "-v"),
            ("danted", "dante-server", "-v"),
            ("nginx", "nginx", "-v"),
            ("curl", "curl", "--version"),
        ] {
            put(program, version(program, package, flag));
        }
        facts
    }

    fn calibrate(&mut self) -> Result<Calibration, EngineError> {
        let mut calibration = calibration::links()?;
        // the island's window; others are measured when a cell asks for them
        let window = Bytes::kib(384).as_u64();
        let made = window::buffer_for(window, ORDINARY)?;
        self.buffers.insert((window, ORDINARY), made);
        let name = "effective window, asked for 384 KiB, KiB".to_owned();
        calibration.figures.insert(name, made.effective as f64 / 1024.0);
        Ok(calibration)
    }

    /// Every run has a network and relays of its own: its links lose the same packets for every peer,
    /// and no relay has a connection to the next one left from the file before.
    fn run(&mut self, cell: &Cell, _repetition: u32, seed: u64) -> Result<Outcome, EngineError> {
        if satellite::is_meant(cell) {
            let buffer = self.buffer(cell)?.map(|made| made.buffer);
            return satellite::run(cell, seed, &self.ekiden, buffer);
        }
        if pressure::is_meant(cell) {
            return pressure::run(cell, seed, &self.ekiden);
        }
        if !asymmetry::is_meant(cell) {
            return self.measure(cell, seed);
        }
        let window = self.buffer(cell)?;
        let buffer = window.map(|made| made.buffer);
        let mut ground = Ground { files: &mut self.files, ekiden: &self.ekiden, buffer };
        let mut outcome = if asymmetry::handshakes::is_meant(cell) {
            handshakes::run(cell, seed, &mut ground)?
        } else {
            asymmetric::run(cell, seed, ground)?
        };
        let text = buffer.map_or("the machine's default".to_owned(), |b| format!("{b} bytes"));
        outcome.facts.insert("receive buffer".to_owned(), text);
        tell(window, &mut outcome);
        Ok(outcome)
    }

    fn run_beside(&mut self, tasks: &[Task]) -> Vec<Result<Outcome, EngineError>> {
        if let [task] = tasks {
            return vec![self.run(&task.cell, task.repetition, task.seed)];
        }
        beside(self, tasks)
    }
}

/// Runs cells of links so thin that the machine bears several, each in a thread with a network of its own.
fn beside(kernel: &mut Kernel, tasks: &[Task]) -> Vec<Result<Outcome, EngineError>> {
    // measured by transfers of their own, so before all that is to be measured
    let buffers: Vec<_> = tasks.iter().map(|task| kernel.buffer(&task.cell)).collect();
    let ekiden = &kernel.ekiden;
    thread::scope(|scope| {
        let run = |(task, buffer): (&Task, Result<Option<Window>, EngineError>)| {
            let buffer = buffer?.map(|made| made.buffer);
            satellite::run(&task.cell, task.seed, ekiden, buffer)
        };
        let begin = |one| scope.spawn(move || run(one));
        let threads: Vec<_> = tasks.iter().zip(buffers).map(begin).collect();
        let panicked = || Err(EngineError("a run panicked".to_owned()));
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| panicked())).collect()
    })
}

/// Adds the window that a cell really had, if it was not the machine's own.
fn tell(window: Option<Window>, outcome: &mut Outcome) {
    let kib = window.map(|made| ("window_kib".to_owned(), made.effective as f64 / 1024.0));
    outcome.figures.extend(kib);
}

/// The worst of the links' verdicts.
fn verdict(links: Vec<(Verdict, Vec<String>)>) -> (Fidelity, Vec<String>) {
    let of = |verdict| match verdict {
        Verdict::Clean => Fidelity::Clean,
        Verdict::Noisy => Fidelity::Noisy,
        Verdict::Tainted => Fidelity::Tainted,
    };
    let worst = links.iter().map(|(verdict, _)| of(*verdict)).max().unwrap_or_default();
    let mut reasons: Vec<String> = links.into_iter().flat_map(|(_, reasons)| reasons).collect();
    reasons.sort();
    reasons.dedup();
    (worst, reasons)
}

/// What a program says first of itself.
fn version(program: &str, package: &'static str, flag: &str) -> String {
    let Ok(found) = find(program, package) else { return "not installed".to_owned() };
    let Ok(output) = Command::new(found).arg(flag).output() else { return String::new() };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().next().unwrap_or_default();
    // curl goes on with all its libraries
    line.split(" (").next().unwrap_or(line).trim().to_owned()
}
