//! Who holds the places, and what was closed and refused so that others find some.

use crate::print::clean;
use ekiden_proxy::observe::status::PressureStatus;

/// One line.
pub(super) fn line(pressure: &PressureStatus) -> String {
    let name = pressure.largest_source_name.as_deref();
    let most = name.map(|name| format!("; the most: {}, {}", clean(name), pressure.largest_source));
    let held = format!(
        "shares: {} without log-in, {} logged in{}",
        pressure.strangers,
        pressure.logged_in,
        most.unwrap_or_default(),
    );
    let closed = format!(
        "closed for others: {} silent, {} unfinished for memory, {} stalled for socket memory",
        pressure.silent_evicted, pressure.unfinished_evicted, pressure.stalled_evicted,
    );
    let (memory, share) = (pressure.memory_refused, pressure.share_refused);
    let refused =
        format!("refused: {memory} for memory, {share} beyond an address's or peer's share");
    format!("{held}; {closed}; {refused}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_a_peer_that_holds_the_most() {
        let largest_source_name = Some("peer ship".to_owned());
        let status =
            PressureStatus { largest_source: 267, largest_source_name, ..Default::default() };
        let line = line(&status);
        assert!(line.contains("0 logged in; the most: peer ship, 267; closed"), "{line}");
        assert!(!super::line(&PressureStatus::default()).contains("the most"));
    }
}
