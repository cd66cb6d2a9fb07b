//! The legs that a cell's path is cut into: round trip and loss of each.

use crate::cell::{Cell, CellError};
use ekiden_model::units::{Share, Span};

/// Loss-free legs of no length have this round trip: none at all.
const NEAR: Span = Span::ZERO;

/// One leg, from the client's side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Leg {
    /// Round trip of the unloaded leg.
    pub rtt: Span,
    /// Share of packets lost in each direction, 0 … 1.
    pub loss: f64,
}

/// The legs of a cell, the client's first: one more than it has relays. Errors: the cell lacks a value, or has
/// a layout that is not known.
pub fn legs(cell: &Cell) -> Result<Vec<Leg>, CellError> {
    let relays: usize = cell.value("relays")?;
    if relays == 0 {
        return cut(cell, &[]);
    }
    match cell.text("layout")? {
        "row" => {
            let at: Vec<f64> = (1..=relays).map(|n| n as f64 / (relays + 1) as f64).collect();
            cut(cell, &at)
        }
        "ends" if relays == 2 => {
            let mut legs = cut(cell, &[])?;
            let near = Leg { rtt: NEAR, loss: 0.0 };
            legs.insert(0, near);
            legs.push(near);
            Ok(legs)
        }
        "one" if relays == 1 => legs_at(cell, cell.value::<Share>("at").map(share)?),
        other => Err(cell.error("layout", &format!("`{other}` with {relays} relays is not known"))),
    }
}

/// The two legs with one relay after this share of the round trip. Errors: the cell lacks a value.
pub fn legs_at(cell: &Cell, at: f64) -> Result<Vec<Leg>, CellError> {
    cut(cell, &[at])
}

fn share(share: Share) -> f64 {
    share.as_parts_per_billion() as f64 / 1e9
}

/// Cuts the path at these shares of its round trip; each leg gets its share of the loss, so the whole loses the
/// same.
fn cut(cell: &Cell, at: &[f64]) -> Result<Vec<Leg>, CellError> {
    let rtt: Span = cell.value("rtt")?;
    let loss = share(cell.value("loss")?);
    let (from, to) = match cell.text("lossy")? {
        "even" => (0.0, 1.0),
        "near-client" => (0.0, 0.5),
        "near-server" => (0.5, 1.0),
        other => return Err(cell.error("lossy", &format!("`{other}` is not known"))),
    };
    let mut ends = vec![0.0];
    ends.extend(at);
    ends.push(1.0);
    let leg = |pair: &[f64]| {
        let (&[a, b] | &[a, b, ..]) = pair else { return None };
        let overlap = (b.min(to) - a.max(from)).max(0.0) / (to - from);
        let nanos = (rtt.as_nanos() as f64 * (b - a)).round();
        // what is not lost on either leg is not lost: (1 - p)^overlap
        Some(Leg { rtt: Span::from_nanos(nanos as u64), loss: 1.0 - (1.0 - loss).powf(overlap) })
    };
    Ok(ends.windows(2).filter_map(leg).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(values: &[(&str, &str)]) -> Cell {
        let base = [("rtt", "50 ms"), ("loss", "0.4 %"), ("lossy", "even"), ("at", "50 %")];
        Cell::new("p", base.iter().chain(values).copied())
    }

    #[test]
    fn four_relays_make_five_equal_legs() {
        let legs = legs(&cell(&[("layout", "row"), ("relays", "4")])).unwrap();
        assert_eq!(legs.len(), 5);
        assert!(legs.iter().all(|leg| leg.rtt == Span::from_millis(10)));
    }

    #[test]
    fn path_loss_does_not_depend_on_its_cuts() {
        for (layout, relays, lossy) in [
            ("row", "0", "even"),
            ("row", "4", "even"),
            ("ends", "2", "even"),
            ("one", "1", "near-client"),
            ("one", "1", "near-server"),
        ] {
            let cell =
                cell(&[("layout", layout), ("relays", relays), ("lossy", lossy), ("at", "37.5 %")]);
            let legs = legs(&cell).unwrap();
            let through: f64 = legs.iter().map(|leg| 1.0 - leg.loss).product();
            assert!((through - 0.996).abs() < 1e-12, "{layout} {relays} {lossy}");
            let rtt: u64 = legs.iter().map(|leg| leg.rtt.as_nanos()).sum();
            assert_eq!(rtt, 50_000_000);
        }
    }

    #[test]
    fn two_relays_at_the_ends_leave_the_long_leg_whole() {
        let legs = legs(&cell(&[("layout", "ends"), ("relays", "2")])).unwrap();
        assert_eq!(legs.iter().map(|leg| leg.rtt.as_millis()).collect::<Vec<_>>(), [0, 50, 0]);
        assert_eq!((legs[0].loss, legs[2].loss), (0.0, 0.0));
    }

    #[test]
    fn puts_loss_near_the_client_on_its_leg() {
        let legs =
            legs(&cell(&[("layout", "one"), ("relays", "1"), ("lossy", "near-client")])).unwrap();
        assert!((legs[0].loss - 0.004).abs() < 1e-12 && legs[1].loss == 0.0);
    }
}
