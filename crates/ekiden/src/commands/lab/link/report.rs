//! What `ekiden link` says before and after, and the document of `--json`.

use ekiden_emulator::fidelity::Verdict;
use ekiden_emulator::recording::{Outcome, Row};
use ekiden_emulator::report::LinkReport;
use ekiden_emulator::topology::Host;
use ekiden_linux::host::sysctl;
use ekiden_record::csv::Table;
use serde::Serialize;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The document.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    version: &'static str,
    kernel: String,
    command: Vec<String>,
    /// The command's exit code.
    pub(super) exit: Option<u8>,
    /// The end with the command.
    pub(super) near: Option<End>,
    /// The other end.
    pub(super) far: Option<End>,
    /// What is there.
    pub(super) far_is: Option<String>,
    /// Who sends how.
    pub(super) congestion: Congestion,
    tcp_rmem: Option<String>,
    tcp_wmem: Option<String>,
    /// The links' parameters.
    pub(super) settings: Vec<String>,
    /// Largest packet.
    pub(super) mtu: Option<u32>,
    /// What the link sees.
    pub(super) mode: Option<&'static str>,
    /// What could not be had, and how to get it.
    pub(super) notes: Vec<String>,
    /// The worst of the links'.
    pub(super) verdict: Option<Verdict>,
    /// What the links did.
    pub(super) links: Vec<LinkReport>,
}

/// A machine at an end.
#[derive(Debug, Serialize)]
pub(super) struct End {
    name: String,
    ipv4: Ipv4Addr,
    ipv6: Ipv6Addr,
}

impl From<&Host> for End {
    fn from(host: &Host) -> Self {
        Self { name: host.name().to_owned(), ipv4: host.address(), ipv6: host.address_v6() }
    }
}

/// Congestion controls.
#[derive(Debug, Default, Serialize)]
pub(super) struct Congestion {
    /// The machine's default, which holds where no other is named.
    pub(super) default: Option<String>,
    /// That the near end's route sets.
    pub(super) near: Option<String>,
    /// That the far end's route sets.
    pub(super) far: Option<String>,
}

impl Report {
    /// With what is to be said of the machine.
    pub(super) fn of_machine(command: &[OsString]) -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            kernel: kernel.trim().to_owned(),
            command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            congestion: Congestion {
                default: sysctl::read("net.ipv4.tcp_congestion_control"),
                ..Congestion::default()
            },
            tcp_rmem: sysctl::read("net.ipv4.tcp_rmem"),
            tcp_wmem: sysctl::read("net.ipv4.tcp_wmem"),
            ..Self::default()
        }
    }

    /// What is said before the command starts.
    pub(super) fn heading(&self) -> String {
        let mut text = String::new();
        for settings in &self.settings {
            let _ = writeln!(text, "link: {settings}");
        }
        if let (Some(mtu), Some(mode)) = (self.mtu, self.mode) {
            let _ = writeln!(text, "link: {mode}, at most {mtu} bytes each");
        }
        if let (Some(far), Some(is)) = (&self.far, &self.far_is) {
            let _ =
                writeln!(text, "link: the far end is {is}: \"far\", {}, {}", far.ipv4, far.ipv6);
        }
        let default = self.congestion.default.as_deref().unwrap_or("not known");
        let used = self.congestion.near.as_deref();
        let _ = match used {
            Some(used) => {
                writeln!(text, "link: congestion control {used}, by route (machine: {default})")
            }
            None => writeln!(text, "link: congestion control {default}, the machine's"),
        };
        text
    }

    /// The document.
    pub(super) fn json(&self) -> String {
        // plain data: it always can be written
        serde_json::to_string_pretty(self)
            .map_or_else(|error| error.to_string(), |text| text + "\n")
    }
}

/// The table of `--packets`.
pub(super) fn packet_table<W: Write>(to: W) -> io::Result<Table<W>> {
    Table::new(
        to,
        &[
            "direction",
            "number",
            "offered_ns",
            "bytes",
            "segments",
            "class",
            "flow",
            "ecn_capable",
            "outcome",
            "due_ns",
            "marked",
        ],
    )
}

/// One packet's row.
pub(super) fn packet_row<W: Write>(table: &mut Table<W>, row: &Row) -> io::Result<()> {
    let (outcome, due, marked) = match row.outcome {
        Outcome::Delivered { due, marked } => ("delivered", due.as_nanos().to_string(), marked),
        Outcome::Dropped => ("dropped", String::new(), false),
        Outcome::Lost => ("lost", String::new(), false),
        Outcome::Inside => ("inside", String::new(), false),
    };
    let direction = if row.direction.is_multiple_of(2) { "up" } else { "down" };
    let link = row.direction / 2;
    table.row(&[
        if link == 0 { direction.to_owned() } else { format!("{link} {direction}") },
        row.number.to_string(),
        row.offered.as_nanos().to_string(),
        row.packet.bytes.to_string(),
        row.packet.segments.to_string(),
        row.packet.class.to_string(),
        format!("{:016x}", row.packet.flow),
        row.packet.ecn_capable.to_string(),
        outcome.to_owned(),
        due,
        marked.to_string(),
    ])
}
