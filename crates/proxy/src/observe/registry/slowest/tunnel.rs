//! What a tunnel has to do with it: its rate, what it loses, who else takes it, and what the other relay takes.

use super::about;
use super::rivals::Rivals;
use crate::observe::status::{FlowStatus, TunnelStatus};
use ekiden_model::units::{Bytes, Span};

/// Of what is agreed, so much fills a tunnel: the rest is headers, copies and repairs.
const FULL: f64 = 0.8;

/// Bytes of a connection that wait to go into a tunnel. `far`: whose reading it is at the other end, in words.
pub(super) fn into(
    peer: &str,
    flow: &FlowStatus,
    (tunnel, rivals): (&TunnelStatus, &Rivals),
    far: &str,
) -> String {
    let bytes = rounded(flow.waiting);
    if !tunnel.up {
        return format!("the tunnel to \"{peer}\", which is lost; {bytes} wait for it");
    }
    if flow.all_full {
        return format!(
            "the relay \"{peer}\", which has no memory for more from this tunnel; {bytes} wait here"
        );
    }
    if flow.full {
        return format!(
            "the relay \"{peer}\", which takes no more of this connection: {far} there is slow, or the path to it; \
             {bytes} wait here. `ekiden explain` there, or its dashboard, tells which"
        );
    }
    let time = Span::from_secs(flow.waiting.saturating_mul(8) / tunnel.rate.max(1));
    let time = match (time.as_secs(), tunnel.flows) {
        (0, _) => String::new(),
        (_, 0 | 1) => format!(", {time} at that rate"),
        _ => format!(", at least {time}"),
    };
    let others = rivals.senders();
    let short = match flow.short {
        true => {
            "; no more is read here, because its account has its part of the memory for what waits, half of `[tunnel] memory`"
        }
        false => "",
    };
    format!(
        "the tunnel to \"{peer}\", {}; {bytes} of this connection wait for it{time}{others}{short}",
        load(tunnel)
    )
}

/// What a receiver can say of a connection to which a tunnel brings so many bits per second.
pub(super) fn out_of(peer: &str, (tunnel, rivals): (&TunnelStatus, &Rivals), rate: u64) -> String {
    let [comes, agreed] = [rate, tunnel.receives].map(about);
    let others = rivals.receivers();
    if (rate + rivals.receive()) as f64 >= FULL * tunnel.receives as f64 {
        let others = others.unwrap_or_default();
        return format!("the rate agreed with \"{peer}\", {agreed}: {comes} of it come{others}");
    }
    let others = others.unwrap_or_else(|| ", no other connection shares it".to_owned());
    format!(
        "what comes through the tunnel from \"{peer}\", {comes} of the agreed {agreed}{others}{}; nothing waits here. \
         Either the destination is slow, or the line from there gives less than was agreed, or loses packets: \
         `ekiden explain` there, or its dashboard, tells which",
        over_tcp(tunnel)
    )
}

const fn over_tcp(tunnel: &TunnelStatus) -> &'static str {
    match tunnel.over_tcp {
        true => "; it goes over TCP, which slows down at each loss, until UDP gets through",
        false => "",
    }
}

/// The rate of a tunnel that sends, and what holds it down.
fn load(tunnel: &TunnelStatus) -> String {
    let flows = match tunnel.flows {
        0 | 1 => "1 flow sends".to_owned(),
        n => format!("{n} flows share"),
    };
    let restrained =
        tunnel.restrained.as_ref().map_or_else(String::new, |why| format!("; restrained: {why}"));
    let lost = (tunnel.path_loss * 1_000.0).round() / 10.0;
    let loses = if lost > 0.0 { format!("; the line loses {lost} %") } else { String::new() };
    let [rate, agreed] = [tunnel.rate, tunnel.allotted].map(about);
    let held = if tunnel.rate < tunnel.allotted {
        format!(" of the agreed {agreed}")
    } else {
        String::new()
    };
    format!("where {flows} {rate}{held}{loses}{restrained}{}", over_tcp(tunnel))
}

/// Whole KiB, or MiB and their tenths, if there are any.
pub(super) fn rounded(bytes: u64) -> String {
    match bytes {
        0..1_024 => Bytes::new(bytes).to_string(),
        1_024..1_048_576 => Bytes::kib(bytes / 1_024).to_string(),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0).replace(".0 ", " "),
    }
}
