//! The tunnels of a status.

use crate::print::{clean, percent, rate, seconds, size, table, traffic};
use ekiden_proxy::observe::status::TunnelStatus;

const HEAD: [&str; 12] = [
    "PEER",
    "STATE",
    "PACE",
    "SEND-LIMIT",
    "RECEIVE-LIMIT",
    "RTT",
    "QUEUE",
    "LOSS",
    "QUEUED",
    "FLOWS",
    "SENT",
    "RECEIVED",
];
/// Characters of an error on a terminal; `ekiden explain PEER` and a relay's log have all of it.
const SHORT: usize = 60;

/// Tunnels to peers. The pace is what may be sent now, whether anything is or not; queue and loss are of that direction.
pub(super) fn table_of(tunnels: &[TunnelStatus], width: Option<usize>) -> String {
    if tunnels.is_empty() {
        return String::new();
    }
    let mut right = [true; HEAD.len()];
    right[..2].fill(false);
    let rows = tunnels.iter().map(|t| row(t, width.is_some())).collect();
    table(HEAD.map(str::to_owned).to_vec(), rows, &right, width)
}

/// `cut`: a long error is shortened.
fn row(t: &TunnelStatus, cut: bool) -> Vec<String> {
    let shown = |text: String| if t.up { text } else { "-".to_owned() };
    let lost = t.packets_lost as f64 / t.packets.max(1) as f64;
    vec![
        clean(&t.peer),
        state_up_to(t, if cut { SHORT } else { usize::MAX }),
        shown(rate(t.rate)),
        shown(rate(t.allotted)),
        shown(rate(t.receives)),
        shown(format!("{:.1} ms", t.rtt_us / 1e3)),
        shown(format!("{:.1} ms", t.queue_us / 1e3)),
        shown(percent(lost)),
        shown(size(t.waiting)),
        shown(t.flows.to_string()),
        shown(traffic(t.bytes_sent)),
        shown(traffic(t.bytes_received)),
    ]
}

/// Whether it is up; where not, for how long, why, and when it is tried again.
pub(crate) fn state(t: &TunnelStatus) -> String {
    state_up_to(t, usize::MAX)
}

fn state_up_to(t: &TunnelStatus, most: usize) -> String {
    match (t.up, &t.last_error) {
        (true, _) => {
            let mut text = if t.over_tcp { "up over TCP" } else { "up" }.to_owned();
            if let Some(why) = &t.restrained {
                text = format!("{text}, {}", clean(why));
            }
            if let Some(lane) = &t.unmarked {
                text = format!("{text}, {} packets unmarked", clean(lane));
            }
            text
        }
        (false, Some(error)) => format!("down{}: {}", how_long(t), short(&clean(error), most)),
        (false, None) if t.joined => format!("connecting{}", how_long(t)),
        (false, None) => format!("not connected yet{}", how_long(t)),
    }
}

fn how_long(t: &TunnelStatus) -> String {
    let down = t.down_seconds.map_or_else(String::new, |down| format!(" for {}", seconds(down)));
    let next = t.retry_in_seconds;
    down + &next.map_or_else(String::new, |next| format!(", next attempt in {}", seconds(next)))
}

fn short(error: &str, most: usize) -> String {
    match error.char_indices().nth(most) {
        Some((end, _)) => format!("{} …", error[..end].trim_end()),
        None => error.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_error_does_not_make_the_table_wide_on_a_terminal_and_is_whole_elsewhere() {
        let last_error = Some("no way; ".repeat(40) + "end");
        let down = TunnelStatus { peer: "shore".to_owned(), last_error, ..TunnelStatus::default() };
        for whole in [table_of(std::slice::from_ref(&down), None), state(&down)] {
            assert!(whole.contains("no way; end") && !whole.contains('…'), "{whole}");
        }
        let text = table_of(&[down], Some(400));
        assert!(text.lines().all(|line| line.chars().count() < 180), "{text}");
        assert!(text.contains("down: no way; no way; ") && text.contains(" …"), "{text}");
    }

    #[test]
    fn a_tunnel_that_is_up_shows_a_lane_without_its_mark() {
        let mut up = TunnelStatus { up: true, ..TunnelStatus::default() };
        assert_eq!(state(&up), "up");
        up.unmarked = Some("interactive".to_owned());
        assert_eq!(state(&up), "up, interactive packets unmarked");
        (up.over_tcp, up.restrained) = (true, Some("losses".to_owned()));
        assert_eq!(state(&up), "up over TCP, losses, interactive packets unmarked");
    }

    #[test]
    fn one_that_is_down_says_for_how_long_and_when_it_is_tried() {
        let last_error = Some("nobody listens".to_owned());
        let (down_seconds, retry_in_seconds) = (Some(95.0), Some(12.0));
        let down = TunnelStatus {
            peer: "shore".to_owned(),
            last_error,
            down_seconds,
            retry_in_seconds,
            ..TunnelStatus::default()
        };
        let text = table_of(&[down], None);
        assert!(text.contains(", next attempt in 12.0 s: nobody listens"), "{text}");
        assert!(text.contains("down for "), "{text}");
    }
}
