//! Which cells of a long link each engine can run, and how much of the machine a run takes.

use ekiden_lab::cell::Cell;
use ekiden_lab::engine::WHOLE;
use ekiden_linux::bpf::Needs;
use ekiden_model::units::Rate;
use ekiden_testbed::peers::http3::{caddy, quiche};
use ekiden_testbed::peers::{find, sing_box};

/// Together, links of this rate take the whole machine: found by trial on two processors, with a margin.
const BORNE: u64 = 88_000_000;

pub(crate) fn kernel_lacks(cell: &Cell) -> Option<&'static str> {
    if cell.text("way") == Ok("hold") && Needs::look().met().is_err() {
        return Some(
            "the program that holds a rate in the kernel cannot be loaded here; `ekiden doctor` says why",
        );
    }
    let by_caddy = ["http3", "gateway-quic", "gateway-block"];
    if cell.text("way").is_ok_and(|way| by_caddy.contains(&way)) && caddy::find().is_err() {
        return Some(
            "Caddy, which serves by HTTP/3, is not here; `scripts/peers.sh --caddy` builds it where Go is",
        );
    }
    if cell.text("way").is_ok_and(|way| way.ends_with("quiche")) && quiche::find().is_err() {
        return Some(
            "the example server of tokio-quiche, whose QUIC has CUBIC, is not here; `scripts/peers.sh --quiche` builds it",
        );
    }
    if cell.text("way").is_ok_and(|way| way.starts_with("gateway"))
        && find("nft", "nftables").is_err()
    {
        return Some(
            "nft, by which a gateway diverts, is not installed; on Debian: apt-get install nftables",
        );
    }
    let absent = cell.text("way") == Ok("hysteria2") && sing_box::find().is_err();
    absent.then_some(
        "sing-box, which has hysteria2, is not here; `scripts/peers.sh --sing-box` builds it where Go is",
    )
}

/// How much of the machine a cell's run takes, in parts of a hundred.
pub(crate) fn weight(cell: &Cell) -> u32 {
    if cell.text("way").is_ok_and(|way| way.starts_with("simulated"))
        || cell.text("load") == Ok("pace")
    {
        // a processor's whole work; and what others do would be in the gaps
        return WHOLE;
    }
    // four echoes at once used 94 % of two processors, and their slowest hundredth waited for those, not for the link
    let least = if cell.text("load") == Ok("echo") { WHOLE / 2 } else { 6 };
    let rate = |axis: &str| cell.value::<Rate>(axis).map_or(BORNE, Rate::as_bits_per_second);
    // beside a tunnel with a lower rate, only a small window is sent
    let most = |configured: &str, link: &str| rate(configured).min(rate(link));
    let sum = most("told-down", "downlink") + most("told-up", "uplink");
    let share = sum.saturating_mul(u64::from(WHOLE)) / BORNE;
    // programs take something even where next to nothing is sent, and so does each connection
    let connections = cell.value::<u32>("streams").unwrap_or(1) / 8;
    u32::try_from(share).unwrap_or(WHOLE).max(least).saturating_add(connections).min(WHOLE)
}

pub(crate) fn sim_lacks(cell: &Cell) -> Option<&'static str> {
    let bulk = matches!(cell.text("load"), Ok("download" | "upload" | "quic"));
    let rival = cell.text("rival").is_ok_and(|name| name != "none");
    match cell.text("way") {
        Ok("bbr") if !cell.text("load").is_ok_and(|load| load == "quic") => {
            Some("BBR is not in the simulator")
        }
        Ok("http3" | "quiche") => Some("HTTP/3 is not in the simulator"),
        Ok("hysteria2") => Some("hysteria2 is not in the simulator"),
        Ok("gateway" | "gateway-quic" | "gateway-quiche" | "gateway-block") => {
            Some("a gateway is not in the simulator")
        }
        Ok("hold") => Some("programs of a kernel are not in the simulator"),
        Ok("cubic") if !bulk => Some("TCP's echoes and documents are not in the simulator"),
        _ if rival => Some("a tunnel beside TCP is not in the simulator"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::cell;
    use super::*;

    #[test]
    fn thin_links_are_run_beside_each_other_and_fat_ones_alone() {
        assert_eq!(weight(&cell("fat", &[("downlink", "200 Mbit/s")])), 100);
        assert_eq!(100 / weight(&cell("echo", &[])), 2);
        assert!(weight(&cell("links", &[("uplink", "500 kbit/s")])) < 10);
    }
}
