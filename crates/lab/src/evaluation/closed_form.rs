//! What arithmetic says of a download over legs (ALGORITHMS §C.3): handshakes, slow start and a full
//! window where nothing is lost; under loss the slowest leg's response function besides.
//!
//! Of a thin uplink it is the model of ACKs (ALGORITHMS §D.2).
//!
//! It knows no queue, no time-out and no recovery: it stands beside what was measured, and judges
//! nothing. Where loss is by super-packet it says nothing.

use super::{CellResult, expected};
use crate::asymmetry;
use crate::cell::Cell;
use crate::path;
use crate::plan::Expectation;
use ekiden_model::formula::{cubic_window, reno_window};
use ekiden_model::placement::Sender;
use ekiden_model::placement::transfer_time;
use ekiden_model::units::{Bytes, Rate, Span};

/// Mbit/s of a cell; `None` where the formulas do not reach: BBR and Westwood, loss by super-packet,
/// cells that are no download over legs.
#[must_use]
pub fn of_cell(cell: &Cell) -> Option<f64> {
    if asymmetry::is_meant(cell) {
        return asymmetry::expected(cell);
    }
    let legs = path::legs(cell).ok()?;
    let rate: Rate = cell.value("rate").ok()?;
    let file: Bytes = cell.value("file").ok()?;
    let mut sender = Sender::default();
    if cell.text("window").ok()? != "defaults" {
        sender.window = cell.value("window").ok()?;
    }
    let congestion = cell.text("congestion").ok()?;
    let lossy = legs.iter().any(|leg| leg.loss > 0.0);
    let knows = matches!(congestion, "reno" | "cubic");
    if lossy && !(knows && cell.text("unit").ok()? == "packet") || congestion == "bbr" {
        return None;
    }
    let rtts: Vec<Span> = legs.iter().map(|leg| leg.rtt).collect();
    let bits = file.as_u64() as f64 * 8.0;
    let start = transfer_time(&sender, &rtts, rate, file)?.as_nanos() as f64 / 1e9;
    // bit/s of a leg that loses: a mean window in each round trip
    let limit = |leg: &path::Leg| {
        let rtt = leg.rtt.as_nanos() as f64 / 1e9;
        let reno = reno_window(1.0, leg.loss);
        let cubic = cubic_window(0.4, 0.7, rtt, leg.loss);
        let window = if congestion == "cubic" { reno.max(cubic) } else { reno };
        window * sender.mss.as_u64() as f64 * 8.0 / rtt
    };
    let losing = legs.iter().filter(|leg| leg.loss > 0.0 && leg.rtt > Span::ZERO);
    let slowest = losing.map(limit).fold(f64::INFINITY, f64::min);
    let seconds = start.max(bits / slowest);
    Some(bits / seconds / 1e6)
}

/// The same of an expectation: its cells as the formulas have them.
#[must_use]
pub fn of(expectation: &Expectation, cells: &[CellResult]) -> Option<f64> {
    if expectation.figure.is_some() {
        return None;
    }
    let computed: Vec<CellResult> = cells
        .iter()
        .filter_map(|result| {
            let value = of_cell(&result.cell)?;
            Some(CellResult {
                runs: vec![(0, value)],
                median: value,
                interval: None,
                ..result.clone()
            })
        })
        .collect();
    let wanted = cells.iter().filter(|result| result.cell.is_in(&expectation.of)).count();
    let found = computed.iter().filter(|result| result.cell.is_in(&expectation.of)).count();
    // part of a figure is not the figure
    (wanted == found).then(|| expected::figure(expectation, &computed, 1).map(|f| f.value))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{self, Choice};

    /// Mbit/s of the island's cell that has these values among its own.
    fn mbits(part: &str, wanted: &[(&str, &str)]) -> Option<f64> {
        let plan = plan::find("island").unwrap();
        let cells = plan.cells(&Choice::default());
        let fits = |cell: &Cell| {
            cell.part == part && wanted.iter().all(|(axis, value)| cell.values[*axis] == **value)
        };
        of_cell(&cells.iter().find(|(cell, _)| fits(cell)).unwrap().0)
    }

    /// The table of ALGORITHMS §C.3, IW 10, doubling, window 384 KiB: 49 un-split, 191 in five legs.
    #[test]
    fn it_has_the_figures_of_its_table() {
        let row = |relays: &str, file: &str| {
            mbits("row", &[("relays", relays), ("window", "384 KiB"), ("file", file)]).unwrap()
        };
        assert!((48.0..50.0).contains(&row("0", "8 MiB")), "{}", row("0", "8 MiB"));
        assert!((190.0..192.5).contains(&row("4", "8 MiB")), "{}", row("4", "8 MiB"));
        assert!((301.0..303.5).contains(&row("4", "128 MiB")), "{}", row("4", "128 MiB"));
    }

    #[test]
    fn loss_by_packet_limits_and_by_super_packet_is_not_told() {
        let ends =
            |unit| mbits("ends", &[("loss", "0.4 %"), ("unit", unit), ("congestion", "cubic")]);
        assert!((4.3..4.7).contains(&ends("packet").unwrap()), "{:?}", ends("packet"));
        assert_eq!(ends("super-packet"), None);
        assert_eq!(mbits("ends", &[("congestion", "bbr")]), None);
    }
}
