//! The engine whose TCP is this machine's kernel: hosts are network namespaces, links are emulated, nginx
//! serves files from memory, curl downloads them through relays. Enter [`ekiden_linux::namespaces::sandbox`]
//! before making one.

mod calibration;
pub(crate) mod files;
pub(crate) mod hosts;
pub(crate) mod verdict;
mod window;

use ekiden_emulator::topology::MTU;
use ekiden_lab::cell::Cell;
use ekiden_lab::engine::Task;
use ekiden_lab::engine::{Calibration, Engine, EngineError, Outcome};
use ekiden_lab::study::{KernelRun, Packets, Study, Window};
use ekiden_linux::bpf::{Control, Loaded, Needs};
use ekiden_linux::host::sysctl;
use ekiden_model::units::Bytes;
use ekiden_testbed::peers::{find, process};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;
use tempfile::TempDir;

/// As in `--engine`.
pub const NAME: &str = "kernel";
/// The folder for files to serve: memory on every Linux, and in the sandbox a file system of its own.
pub const MEMORY: &str = "/dev/shm";
/// Packets one by one, as links that lose single packets carry them.
pub(crate) const SINGLE: Packets = Packets { mtu: MTU, together: false };
/// Linux's own limits of buffers, for hosts that shall not have this machine's.
pub(crate) const BUFFERS_OF_LINUX: [(&str, &str); 2] =
    [("net.ipv4.tcp_rmem", "4096 131072 6291456"), ("net.ipv4.tcp_wmem", "4096 16384 4194304")];

/// Runs the cells of one study on this machine's kernel.
#[derive(Debug)]
pub struct Kernel {
    study: &'static dyn Study,
    ekiden: PathBuf,
    files: TempDir,
    /// Receive buffers by window and packets, as measured.
    windows: BTreeMap<(u64, Packets), Window>,
    /// Westwood+, loaded when a cell first asks for it, for as long as this engine.
    westwood: Option<Loaded>,
}

impl Kernel {
    /// An engine for this study that measures the `ekiden` at this path. Errors: no memory file system.
    pub fn new(study: &'static dyn Study, ekiden: &Path) -> Result<Self, EngineError> {
        let files = files::folder()?;
        let (ekiden, windows) = (ekiden.to_owned(), BTreeMap::new());
        Ok(Self { study, ekiden, files, windows, westwood: None })
    }

    fn make(
        &self,
        cell: &Cell,
        seed: u64,
        (window, congestion): (Option<Window>, Option<String>),
    ) -> Result<Outcome, EngineError> {
        let (ekiden, files) = (&*self.ekiden, self.files.path());
        let congestion = congestion.as_deref();
        self.study.kernel(&KernelRun { cell, seed, ekiden, files, window, congestion })
    }

    /// The receive buffer for a cell's window.
    fn window(&mut self, cell: &Cell) -> Result<Option<Window>, EngineError> {
        let Some(packets) = self.study.packets(cell) else { return Ok(None) };
        if cell.text("window")? == "defaults" {
            return Ok(None);
        }
        let window = cell.value::<Bytes>("window")?.as_u64();
        if let Some(made) = self.windows.get(&(window, packets)) {
            return Ok(Some(*made));
        }
        let made = window::buffer_for(window, packets)?;
        self.windows.insert((window, packets), made);
        Ok(Some(made))
    }

    /// The kernel's name of the cell's congestion control where Ekiden has to load it.
    fn congestion(&mut self, cell: &Cell) -> Result<Option<String>, EngineError> {
        if cell.text("congestion") != Ok(Control::Westwood.word()) {
            return Ok(None);
        }
        let loaded = match self.westwood.take() {
            Some(loaded) => loaded,
            None => Loaded::load(Control::Westwood)
                .map_err(|missing| EngineError(format!("loading Westwood+: {missing}")))?,
        };
        let name = loaded.name().to_owned();
        self.westwood = Some(loaded);
        Ok(Some(name))
    }
}

impl Engine for Kernel {
    fn name(&self) -> &'static str {
        NAME
    }

    fn lacks(&self, cell: &Cell) -> Option<&'static str> {
        if cell.text("congestion") == Ok("westwood") && Needs::look().met().is_err() {
            return Some("Westwood+ cannot be loaded into this kernel; `ekiden doctor` says why");
        }
        self.study.lacks(NAME, cell)
    }

    fn weight(&self, cell: &Cell) -> u32 {
        self.study.weight(cell)
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
        for ((window, packets), made) in &self.windows {
            let value = format!("tcp_rmem of {} bytes, fixed", made.buffer);
            put(&format!("window of {}, {packets}", Bytes::new(*window)), value);
        }
        for (name, text) in self.study.facts(NAME) {
            put(name, text.to_owned());
        }
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
        let window = Bytes::kib(384).as_u64();
        let made = window::buffer_for(window, Packets::ETHERNET)?;
        self.windows.insert((window, Packets::ETHERNET), made);
        let name = "effective window, configured 384 KiB, KiB".to_owned();
        calibration.figures.insert(name, made.effective as f64 / 1024.0);
        Ok(calibration)
    }

    /// Every run has its own network and relays: links lose the same packets for every peer, relays keep no
    /// connections.
    fn run(&mut self, cell: &Cell, _repetition: u32, seed: u64) -> Result<Outcome, EngineError> {
        let prepared = (self.window(cell)?, self.congestion(cell)?);
        self.make(cell, seed, prepared)
    }

    fn run_beside(&mut self, tasks: &[Task]) -> Vec<Result<Outcome, EngineError>> {
        if let [task] = tasks {
            return vec![self.run(&task.cell, task.repetition, task.seed)];
        }
        // a window is measured by a transfer of its own, so before the runs that are measured
        let prepared: Vec<_> = tasks
            .iter()
            .map(|task| Ok((self.window(&task.cell)?, self.congestion(&task.cell)?)))
            .collect();
        let this = &*self;
        thread::scope(|scope| {
            let run = |(task, prepared): (&Task, Result<_, EngineError>)| {
                this.make(&task.cell, task.seed, prepared?)
            };
            let begin = |one| scope.spawn(move || run(one));
            let threads: Vec<_> = tasks.iter().zip(prepared).map(begin).collect();
            let panicked = || Err(EngineError("the run panicked".to_owned()));
            threads.into_iter().map(|t| t.join().unwrap_or_else(|_| panicked())).collect()
        })
    }
}

/// The first line of a program's version.
fn version(program: &str, package: &'static str, flag: &str) -> String {
    let Ok(found) = find(program, package) else { return "not installed".to_owned() };
    let line = process::version(&found, flag);
    // curl goes on with all its libraries
    line.split(" (").next().unwrap_or(&line).trim().to_owned()
}
