//! The closed form of a download over legs (algorithms/split-connections C.3): handshakes, slow start, a full
//! window; under loss the slowest leg's response function. It has no queue, time-out, recovery or loss by
//! super-packet.

use ekiden_lab::cell::Cell;
use ekiden_lab::path;
use ekiden_model::control::formula::{cubic_window, reno_window};
use ekiden_model::network::placement::{Sender, transfer_time};
use ekiden_model::units::{Bytes, Rate, Span};

/// Mbit/s of a cell; `None` for BBR, Westwood, loss by super-packet, and cells that are no download over legs.
pub(crate) fn of_cell(cell: &Cell) -> Option<f64> {
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
    let start = transfer_time(&sender, &rtts, rate, file)?.as_secs_f64();
    // bit/s of a leg that loses: a mean window in each round trip
    let limit = |leg: &path::Leg| {
        let rtt = leg.rtt.as_secs_f64();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Mbit/s of the island's cell that has these values among its own.
    fn mbits(part: &str, wanted: &[(&str, &str)]) -> Option<f64> {
        of_cell(&crate::tests::planned("island", "kernel", part, wanted))
    }

    /// The table of algorithms/split-connections C.3, IW 10, doubling, window 384 KiB: 49 un-split, 191 in five legs.
    #[test]
    fn matches_the_published_table() {
        let row = |relays: &str, file: &str| {
            mbits("row", &[("relays", relays), ("window", "384 KiB"), ("file", file)]).unwrap()
        };
        assert!((48.0..50.0).contains(&row("0", "8 MiB")), "{}", row("0", "8 MiB"));
        assert!((190.0..192.5).contains(&row("4", "8 MiB")), "{}", row("4", "8 MiB"));
        assert!((301.0..303.5).contains(&row("4", "128 MiB")), "{}", row("4", "128 MiB"));
    }

    #[test]
    fn has_no_formula_for_loss_by_super_packet() {
        let ends =
            |unit| mbits("ends", &[("loss", "0.4 %"), ("unit", unit), ("congestion", "cubic")]);
        assert!((4.3..4.7).contains(&ends("packet").unwrap()), "{:?}", ends("packet"));
        assert_eq!(ends("super-packet"), None);
        assert_eq!(mbits("ends", &[("congestion", "bbr")]), None);
    }
}
