//! A study: one experiment with its plan, its runs on both engines and its figures. [`register`] makes studies
//! known to plans, which name one (`study = "island"`) or are named like one.

use crate::cell::Cell;
use crate::cell::axis::{self, Axis};
use crate::chart::Panel;
use crate::engine::{EngineError, Outcome, WHOLE};
use crate::evaluation::CellResult;
use crate::plan::Figure;
use ekiden_simulator::network::topology::LinkDirection;
use ekiden_simulator::recorder::packets::{Packets as Capture, Side};
use ekiden_simulator::recorder::rows::Rows;
use ekiden_simulator::trace::WriteKind;
use std::fmt;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::OnceLock;

/// One experiment. Only [`name`](Self::name) and [`plan`](Self::plan) must be given; without
/// [`kernel`](Self::kernel) or [`sim`](Self::sim), leave that engine out of the plan's `engines`.
pub trait Study: Sync {
    /// As in `ekiden lab run NAME`, and in a plan's `study`.
    fn name(&self) -> &'static str;

    /// The plan that comes with the study.
    fn plan(&self) -> PlanFile;

    /// Axes that no other study declares. Plans of every study may use them.
    fn axes(&self) -> &'static [Axis] {
        &[]
    }

    /// Why `engine` cannot run this cell, if it cannot. Such cells are left out.
    fn lacks(&self, _engine: &str, _cell: &Cell) -> Option<&'static str> {
        None
    }

    /// Runs a cell once on virtual time. Errors: the cell lacks a value, or the network cannot be built.
    fn sim(&self, _run: &SimRun<'_>) -> Result<Outcome, EngineError> {
        Err(EngineError(format!("study {:?} has no simulation", self.name())))
    }

    /// The same run with recorders, which `open` makes once the network is known. Errors: as
    /// [`sim`](Self::sim); or `open` failed; or runs of this cell cannot be recorded.
    fn record(&self, _run: &SimRun<'_>, _open: Open<'_>) -> Result<Recorded, EngineError> {
        Err(EngineError(format!("runs of study {:?} cannot be recorded", self.name())))
    }

    /// Runs a cell once on this machine's kernel. Errors: the cell lacks a value, or a program or the network
    /// failed.
    fn kernel(&self, _run: &KernelRun<'_>) -> Result<Outcome, EngineError> {
        Err(EngineError(format!("study {:?} does not run on the kernel", self.name())))
    }

    /// The packets that fill a cell's `window` on the kernel; `None` where the cell has no window.
    fn packets(&self, cell: &Cell) -> Option<Packets> {
        cell.values.contains_key("window").then_some(Packets::ETHERNET)
    }

    /// How much of the machine a run on the kernel takes, in parts of [`WHOLE`].
    fn weight(&self, _cell: &Cell) -> u32 {
        WHOLE
    }

    /// Facts for the report, besides those of the engine.
    fn facts(&self, _engine: &str) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }

    /// The value that a formula predicts for a cell, in the plan's unit; `None` where no formula holds.
    fn closed_form(&self, _cell: &Cell) -> Option<f64> {
        None
    }

    /// Figure shapes of the study's own, besides `lines` and `bars`.
    fn shapes(&self) -> &'static [&'static str] {
        &[]
    }

    /// The panels of a figure whose shape is one of [`shapes`](Self::shapes).
    fn panels(&self, _shape: &str, _figure: &Figure, _cells: &[&CellResult]) -> Vec<Panel> {
        Vec::new()
    }
}

/// A plan that is compiled into the program.
#[derive(Debug, Clone, Copy)]
pub struct PlanFile {
    /// Named in errors.
    pub path: &'static str,
    /// TOML.
    pub text: &'static str,
}

/// One run on virtual time.
#[derive(Debug, Clone, Copy)]
pub struct SimRun<'a> {
    /// The cell.
    pub cell: &'a Cell,
    /// Which repetition, from 0.
    pub repetition: u32,
    /// All randomness follows from it. Cells that differ only in the compared axis get the same seed.
    pub seed: u64,
}

/// One run on the kernel.
#[derive(Debug, Clone, Copy)]
pub struct KernelRun<'a> {
    /// The cell.
    pub cell: &'a Cell,
    /// As in [`SimRun`].
    pub seed: u64,
    /// The `ekiden` under test.
    pub ekiden: &'a Path,
    /// A folder in memory for files to serve.
    pub files: &'a Path,
    /// The receive buffer that makes the cell's window; `None` where the cell asks for the kernel's own tuning.
    pub window: Option<Window>,
    /// The name under which the kernel has the cell's congestion control, if it was loaded for this run.
    pub congestion: Option<&'a str>,
}

/// The packets that fill a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Packets {
    /// The largest IP packet, in bytes.
    pub mtu: u32,
    /// Super-packets of many, or one by one.
    pub together: bool,
}

impl Packets {
    /// Ethernet's, in super-packets.
    pub const ETHERNET: Self = Self { mtu: 1500, together: true };
}

impl fmt::Display for Packets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.together { "together" } else { "one by one" };
        write!(f, "packets of {} bytes {how}", self.mtu)
    }
}

/// A receive buffer and the window that it makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Default and maximum of `tcp_rmem`, in bytes.
    pub buffer: u64,
    /// The window that senders are offered, in bytes, as measured.
    pub effective: u64,
}

/// What a recorder needs to know of a cell's network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sights {
    /// The link whose queue is recorded: the bottleneck; of a path in legs, the server's own.
    pub watched: Option<LinkDirection>,
    /// The side that serves, and sends most.
    pub server: Side,
    /// The number of flows, including those of handshakes and requests.
    pub flows: u32,
    /// Names of the kinds of writes, from 0.
    pub kinds: &'static [WriteKind],
}

/// A file that a recorder writes.
pub type Writer = BufWriter<File>;
/// Rows of packets and a capture, each where it was asked for.
pub type Recorders = (Option<Rows<Writer>>, Option<Capture<Writer>>);
/// Makes the recorders of a run.
pub type Open<'a> = Box<dyn FnOnce(&Sights) -> Result<Recorders, EngineError> + 'a>;
/// The outcome of a recorded run, and its recorders.
pub type Recorded = (Outcome, Recorders);

impl fmt::Debug for dyn Study {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Study({})", self.name())
    }
}

impl PartialEq for dyn Study {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

/// The studies that plans may name.
pub type Studies = &'static [&'static dyn Study];

static REGISTERED: OnceLock<Studies> = OnceLock::new();

/// Makes studies known to plans. The first list stays.
pub fn register(studies: Studies) {
    let _first_stays = REGISTERED.set(studies);
    axis::declare(studies.iter().flat_map(|study| study.axes()).collect());
}

/// The registered studies.
pub fn registered() -> Studies {
    #[cfg(test)]
    return REGISTERED.get_or_init(|| &[&sample::Sample]);
    #[cfg(not(test))]
    REGISTERED.get().copied().unwrap_or(&[])
}

/// The registered study of this name.
pub fn named(name: &str) -> Option<&'static dyn Study> {
    registered().iter().copied().find(|study| study.name() == name)
}

#[cfg(test)]
pub(crate) mod sample {
    use super::{Axis, PlanFile, Study, axis};

    /// Stands for a study in the framework's own tests.
    pub(crate) struct Sample;

    impl Study for Sample {
        fn name(&self) -> &'static str {
            "sample"
        }

        fn plan(&self) -> PlanFile {
            PlanFile { path: "sample.toml", text: include_str!("runner/sample.toml") }
        }

        fn axes(&self) -> &'static [Axis] {
            axis::SAMPLE
        }
    }
}
