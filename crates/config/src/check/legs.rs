//! Legs: rates, time-outs and options that exclude each other or have no effect.

use crate::draft::{Draft, LegDraft};
use crate::problem::similar::closest;
use crate::reader::Reader;
use ekiden_linux::bpf::Control;
use std::collections::BTreeSet;

/// `rate` and the congestion control `hold` need each other.
fn held(reader: &mut Reader<'_>, name: &str, leg: &LegDraft) {
    let holds = leg.leg.socket.congestion.iter().any(|word| word == Control::Hold.word());
    let path = |key: &str| format!("leg.{name}.{key}");
    if holds && leg.leg.socket.mptcp == Some(true) {
        reader.error(
            &path("mptcp"),
            "`hold` holds a rate for plain TCP, and this leg asks for Multipath TCP",
            "leave `mptcp` or `hold` out",
        );
    }
    match (holds, leg.leg.rate, leg.leg.line) {
        (true, None, _) => reader.error(
            &path("congestion"),
            "`hold` holds a rate, and none is set",
            "rate = \"4 Mbit/s\" in the same leg: what its connections together may send",
        ),
        (false, Some(_), _) => reader.warn(
            &path("rate"),
            "`rate` has no effect: the leg's `congestion` does not name `hold`",
            "congestion = [\"hold\", \"bbr\"]: the first, or the next where it cannot be loaded",
        ),
        (_, None, Some(_)) => {
            reader.warn(&path("line"), "`line` has no effect without `rate`", "");
        }
        (true, Some(rate), Some(line)) if line < rate => {
            reader.error(&path("line"), "`line` is slower than `rate`", "");
        }
        _ => {}
    }
}

/// Linux's own (`net/ipv4/Kconfig`), those that Google's kernels add, and ours. A kernel may have others.
const CONGESTION: &[&str] = &[
    "bbr",
    "bbr2",
    "bbr3",
    "bic",
    "cdg",
    "cubic",
    "dctcp",
    "highspeed",
    "hold",
    "htcp",
    "hybla",
    "illinois",
    "lp",
    "nv",
    "reno",
    "scalable",
    "vegas",
    "veno",
    "westwood",
    "yeah",
];

fn congestion(reader: &mut Reader<'_>, name: &str, leg: &LegDraft) {
    for (index, word) in leg.leg.socket.congestion.iter().enumerate() {
        if CONGESTION.contains(&word.as_str()) || Control::called(word).is_some() {
            continue;
        }
        let hint = match closest(word, CONGESTION.iter().copied()) {
            Some(name) => format!("did you mean `{name}`?"),
            None => "`ekiden doctor` lists what this kernel has".to_owned(),
        };
        reader.warn(
            &format!("leg.{name}.congestion[{index}]"),
            format!("no congestion control of Linux is named `{word}`; the next of the list, or the kernel's default, would serve"),
            &hint,
        );
    }
}

pub(super) fn legs(reader: &mut Reader<'_>, draft: &Draft) {
    let connects: BTreeSet<&str> = std::iter::once("direct")
        .chain(draft.upstreams.values().map(|u| u.leg.as_str()))
        .chain(draft.routes.iter().map(|r| r.leg.as_str()))
        .chain(draft.legs.values().filter_map(|l| l.inherit.as_deref()))
        .collect();
    let accepts: BTreeSet<&str> = std::iter::once("client")
        .chain(draft.routes.iter().map(|r| r.client_leg.as_str()))
        .collect();
    let default = ekiden_proxy::settings::Leg::default();
    for (name, leg) in &draft.legs {
        let only_accepts = !connects.contains(name.as_str()) && accepts.contains(name.as_str());
        for (key, set) in [
            ("connect_timeout", leg.leg.connect_timeout != default.connect_timeout),
            ("establish_timeout", leg.leg.establish_timeout.is_some()),
            ("initial_rto", leg.leg.initial_rto != default.initial_rto),
            ("second_syn", leg.leg.second_syn != default.second_syn),
            ("source", leg.leg.socket.source.is_some()),
        ] {
            let path = format!("leg.{name}.{key}");
            if set && only_accepts && reader.spans.contains_key(&path) {
                reader.warn(
                    &path,
                    format!("`{key}` has no effect: leg `{name}` is only for clients' connections"),
                    "set it on `direct`, or on the leg of an upstream",
                );
            }
        }
        if !connects.contains(name.as_str()) && !accepts.contains(name.as_str()) {
            reader.warn(
                &format!("leg.{name}"),
                format!("leg `{name}` is used by no upstream, route or other leg"),
                "",
            );
        }
        if leg.leg.establish_timeout.is_some_and(|each| each >= leg.leg.connect_timeout)
            && !only_accepts
        {
            reader.warn(&format!("leg.{name}.establish_timeout"),
                "`establish_timeout`, per address, is not shorter than `connect_timeout`, for all of them, so it \
                 never applies",
                "it still exempts handshakes from `user_timeout`; set it lower to try the next address sooner",
            );
        }
        held(reader, name, leg);
        congestion(reader, name, leg);
        let socket = &leg.leg.socket;
        if let (Some(min), Some(max)) = (socket.rto_min, socket.rto_max)
            && min > max
        {
            reader.error(&format!("leg.{name}.rto_min"), "`rto_min` is longer than `rto_max`", "");
        }
        for key in ["keepalive_idle", "keepalive_interval"] {
            let span = if key == "keepalive_idle" {
                socket.keepalive_idle
            } else {
                socket.keepalive_interval
            };
            if span.is_some_and(|span| !span.as_nanos().is_multiple_of(1_000_000_000)) {
                reader.error(
                    &format!("leg.{name}.{key}"),
                    format!("`{key}`: the kernel counts whole seconds"),
                    "",
                );
            }
        }
        if socket.keepalive_idle.is_none()
            && (socket.keepalive_interval.is_some() || socket.keepalive_count.is_some())
        {
            reader.warn(
                &format!("leg.{name}"),
                "keep-alive probes are configured but not enabled",
                "set keepalive_idle",
            );
        }
    }
}
