//! What a plan may vary: every axis with its kind of value, so that `8MiB` and `8 MiB` are one cell and
//! a misspelt axis is refused where it stands.

use ekiden_model::units::{Bytes, Rate, Share, Span};
use std::fmt::Display;
use std::str::FromStr;

/// A kind of value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A whole number.
    Whole,
    /// One of these numbers.
    Among(&'static [&'static str]),
    /// A length of time, drawn in milliseconds.
    Span,
    /// A size, drawn in MiB.
    Bytes,
    /// A rate, drawn in Mbit/s.
    Rate,
    /// A share, drawn in per cent.
    Share,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A size, or this word.
    BytesOr(&'static str),
    /// A whole number, or this word.
    WholeOr(&'static str),
}

/// The least and the most that an axis takes, as they are written in plans; an empty one is no bound.
type Range = (&'static str, &'static str);

const ANY: Range = ("", "");
/// A packet of 1,500 bytes takes 12 s at this rate: slower ones bring nothing within a cut of 20 s.
const LEAST_RATE: Range = ("1 kbit/s", "");
/// As of every emulated link, and as the length field of an IP packet.
const MTU: Range = ("576", "65535");

/// Something that a plan may fix or vary.
#[derive(Debug)]
pub struct Axis {
    /// As in plans and rows.
    pub name: &'static str,
    /// As in figures and tables.
    pub title: &'static str,
    /// What its values are.
    pub kind: Kind,
    /// The least and the most of them; nothing where there is no bound. Beyond it a run would yield
    /// nothing, or not end.
    pub range: Range,
    /// What it does.
    pub about: &'static str,
}

const fn axis(name: &'static str, title: &'static str, kind: Kind, about: &'static str) -> Axis {
    Axis { name, title, kind, range: ANY, about }
}

impl Axis {
    const fn within(mut self, range: Range) -> Self {
        self.range = range;
        self
    }
}

/// All of them.
pub static AXES: &[Axis] = &[
    axis(
        "peer",
        "relay",
        Kind::Word(&["none", "squid", "dante", "ekiden"]),
        "which program relays",
    ),
    axis("layout", "layout", Kind::Word(&["direct", "row", "ends", "one"]), "where relays stand"),
    axis("relays", "relays in a row", Kind::Whole, "how many relays the path is cut by").within(("0", "100")),
    axis("at", "position of the relay", Kind::Share, "share of the round trip before the relay"),
    axis("file", "file", Kind::Bytes, "what is downloaded").within(("1 B", "")),
    axis("rtt", "round trip", Kind::Span, "of the whole path, unloaded"),
    axis("rate", "link rate", Kind::Rate, "of each link, both directions").within(LEAST_RATE),
    axis("queue", "queue", Kind::Span, "each link's queue, as time at its rate"),
    axis("loss", "loss", Kind::Share, "of the whole path, each direction"),
    axis(
        "lossy",
        "where loss is",
        Kind::Word(&["even", "long-leg", "near-server", "near-client"]),
        "which part of the path loses",
    ),
    axis("unit", "loss per", Kind::Word(&["packet", "super-packet"]), "what is lost at once"),
    axis(
        "congestion",
        "congestion control",
        Kind::Word(&["reno", "cubic", "bbr", "westwood"]),
        "of the senders",
    ),
    // below one segment nothing is ever sent
    axis("window", "window", Kind::BytesOr("defaults"), "effective window of each connection").within(("1460 B", "")),
    axis(
        "cut",
        "cut",
        Kind::Span,
        "a transfer that takes longer is ended and counted by its bytes",
    ).within(("1 ms", "")),
    axis(
        "scenario",
        "scenario",
        Kind::Word(&[
            "none",
            "P",
            "P+T1",
            "P+T2",
            "approach 1",
            "approach 2",
            "SACK",
            "RACK-TLP",
            "F-RTO",
            "CUBIC",
            "FQ-CoDel",
            "today",
            "held rate",
        ]),
        "what is done for thin clients: the study's remedies, then today's",
    ),
    axis(
        "era",
        "TCP of",
        Kind::Word(&["ns-2.1b9", "ns-2.28", "ns-2.35", "rfc", "linux"]),
        "whose habits the senders have",
    ),
    axis("traffic", "traffic", Kind::Word(&["intranet", "internet"]), "which of the study's two"),
    // the mean that keeps the study's flows is known for these (ALGORITHMS B.4)
    axis("burstiness", "σ of the pauses", Kind::Among(&["1.5", "2", "2.4"]), "of the logarithm of pauses between flows"),
    axis("pairs", "pairs", Kind::Whole, "of a server and a client, all at once").within(("1", "10000")),
    axis("minimum-rto", "minimum RTO", Kind::Span, "no retransmission time-out is shorter").within(("1 ms", "")),
    // the most that a window shifted by 7 bits can say, 65,535 · 2⁷ bytes
    axis("segments", "receiver's window", Kind::Whole, "in segments of 1,460 bytes").within(("1", "5745")),
    axis(
        "careful",
        "careful",
        Kind::Word(&["yes", "no"]),
        "no fast retransmission of what was sent before the last loss",
    ),
    axis("clock", "clock", Kind::Word(&["exact", "10 ms"]), "in what round trips are measured"),
    axis("downlink", "downlink", Kind::Rate, "of the thin link, towards the client").within(LEAST_RATE),
    axis(
        "uplink",
        "uplink",
        Kind::Rate,
        "of the thin link, from the client; where it is not said, it is looked for",
    ).within(LEAST_RATE),
    axis("mtu", "MTU", Kind::Whole, "largest IP packet on the thin link").within(MTU),
    axis(
        "lan-mtu",
        "MTU of the ends",
        Kind::Whole,
        "largest IP packet between a relay and who stands beside it",
    ).within(MTU),
    axis(
        "acks",
        "segments per ACK, asked",
        Kind::WholeOr("study"),
        "how many segments the receiver acknowledges at once; «study»: 2 of MTU 1500 and 1 of MTU 9000 in the simulator, whatever it does by itself on the kernel",
    ).within(("1", "255")),
    axis(
        "offload",
        "offload",
        Kind::Word(&["off", "on"]),
        "whether the kernel's hosts cut and join packets in batches",
    ),
    axis("slots", "slots", Kind::Whole, "packets that each queue of the thin link holds").within(("1", "1000000")),
    axis("framing", "framing", Kind::Whole, "bytes that the uplink counts beside each IP packet").within(("0", "1000")),
    axis(
        "up-queue",
        "uplink's queue",
        Kind::Word(&["droptail", "ack-first"]),
        "who goes first in it",
    ),
    axis(
        "jam",
        "jam",
        Kind::Share,
        "of the uplink's rate, as the uplink counts, that other packets take",
    ),
    axis(
        "jam-shape",
        "jam comes",
        Kind::Word(&["steady", "bursts"]),
        "evenly, or all of it in every other 10 ms",
    ),
    axis("jam-packet", "jam's packets", Kind::Whole, "bytes of each as an IP packet").within(("64", "9000")),
    axis("initial-rto", "first time-out", Kind::Span, "of a SYN").within(("1 ms", "")),
    // above 29 % waits double faster than they become rare, and their mean has no end; above this, more than a
    // hundredth of it is of longer rows of failures than are run
    axis(
        "handshake-loss",
        "handshake loss",
        Kind::Share,
        "of SYNs and of their answers, each; nothing else is lost",
    ).within(("0 %", "22 %")),
    axis(
        "scheme",
        "scheme",
        Kind::Word(&[
            "1", "2", "3", "4", "squid", "fixed 20 KiB", "fixed 64 KiB", "kernel", "E-ATBT", "E2-ATBT", "defaults",
        ]),
        "seed 2's: fixed buffers; E2-ATBT; and idle connections closed; and their buffers halved; squid beside them. Of downloads: how buffers come about",
    ),
    axis("clients", "clients", Kind::Whole, "people at browsers behind the proxy").within(("1", "10000")),
    axis(
        "knowledge",
        "paths are",
        Kind::Word(&["perfect", "estimated"]),
        "whether the proxy knows loss and round trip of each path, or estimates them",
    ),
    axis(
        "patience",
        "patience",
        Kind::Word(&["10 s", "30 s", "never"]),
        "after how long somebody who waits for a connection is refused",
    ),
    axis("persist", "kept idle", Kind::Span, "how long an idle connection is kept"),
    axis("halving", "halving", Kind::Span, "how often scheme 4 halves idle connections' buffers"),
    axis("pool", "pool", Kind::BytesOr("kernel"), "all buffers of the proxy together; «kernel»: as the kernel tunes them"),
    axis("bound", "bound", Kind::Word(&["places", "descriptors"]), "of what a proxy has few: connections as it counts them, or open files"),
    axis("receive", "kernel receives", Kind::Bytes, "how far the kernel tunes receive buffers: the third number of tcp_rmem").within(("64 KiB", "1 GiB")),
    axis("period", "period", Kind::Span, "between two ticks of the proxy").within(("1 ms", "")),
    axis("duration", "duration", Kind::Span, "how long a run on the kernel looks").within(("1 s", "600 s")),
    axis(
        "way",
        "way",
        Kind::Word(&["cubic", "bbr", "ekiden", "hysteria2", "simulated", "hold", "dedicated", "simulated-held"]),
        "how it goes over a long link: TCP by itself with this congestion control, a pair of relays with a tunnel, sing-box's hysteria2, today's TCP in the simulator, one relay at the far end whose kernel holds the rate; relays that are told that the whole line is theirs; a relay in the simulator that holds the rate",
    ),
    axis(
        "load",
        "load",
        Kind::Word(&["download", "upload", "echo", "pace", "file", "first byte", "page", "stream", "screens"]),
        "what is put on a long link; «echo» is a download with echoes beside it, «pace» one whose packets' gaps are looked at, «screens» are a hundred thin clients",
    ),
    axis("streams", "streams", Kind::Whole, "bulk connections at once").within(("1", "200")),
    axis("told-down", "told, down", Kind::Rate, "what a tunnel's ends are told the way down gives").within(("64 kbit/s", "")),
    axis("told-up", "told, up", Kind::Rate, "what a tunnel's ends are told the way up gives").within(("64 kbit/s", "")),
    axis("burst", "burst", Kind::Whole, "packets that are lost in a row, in the mean; 1: each by itself").within(("1", "1000")),
    axis(
        "rival",
        "beside",
        Kind::Word(&["none", "cubic", "bbr"]),
        "a TCP with this congestion control that goes straight over the same link",
    ),
    axis(
        "changes",
        "changes",
        Kind::Word(&["none", "drawn"]),
        "whether rate, delay and loss of the way down change at times and to values drawn by lot",
    ),
    axis("tunnel", "tunnel", Kind::Word(&["warm", "cold"]), "whether it stood before, or is begun by what is measured"),
    axis("settle", "settle", Kind::Span, "nothing is counted before"),
    axis("video", "stream", Kind::Rate, "payload of a stream that is played").within(("20 kbit/s", "")),
    axis("web", "workload", Kind::Word(&["surge", "clusters"]), "what is asked for"),
];

/// The axis of this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Axis> {
    AXES.iter().find(|axis| axis.name == name)
}

/// The axis that may have been meant.
#[must_use]
pub fn similar(name: &str) -> Option<&'static Axis> {
    super::similar(name, AXES.iter().map(|axis| axis.name)).and_then(named)
}

impl Axis {
    /// The one way to write a value.
    ///
    /// # Errors
    /// What is wrong with it, and how to write it.
    pub fn canonical(&self, text: &str) -> Result<String, String> {
        fn of<T: FromStr + Display>(text: &str) -> Result<String, String>
        where
            T::Err: Display,
        {
            text.parse::<T>().map(|v| v.to_string()).map_err(|error| error.to_string())
        }
        let written = match self.kind {
            Kind::Whole => whole(text).ok_or_else(|| format!("«{text}» is no whole number")),
            Kind::Among(numbers) => {
                let same = |one: &&&str| one.parse().ok() == text.parse::<f64>().ok();
                let found = numbers.iter().find(same).map(|one| (*one).to_owned());
                found.ok_or_else(|| format!("«{text}» is none of {}", numbers.join(", ")))
            }
            Kind::Span => of::<Span>(text),
            Kind::Bytes => of::<Bytes>(text),
            Kind::Rate => of::<Rate>(text),
            Kind::Share => of::<Share>(text),
            Kind::BytesOr(word) if text == word => Ok(text.to_owned()),
            Kind::BytesOr(word) => {
                of::<Bytes>(text).map_err(|error| format!("{error}, nor «{word}»"))
            }
            Kind::WholeOr(word) if text == word => Ok(text.to_owned()),
            Kind::WholeOr(word) => {
                whole(text).ok_or_else(|| format!("«{text}» is no whole number, nor «{word}»"))
            }
            Kind::Word(words) if words.contains(&text) => Ok(text.to_owned()),
            Kind::Word(words) => Err(format!("«{text}» is none of {}", words.join(", "))),
        }?;
        let number = self.number(&written);
        let (least, most) = self.range;
        if number.zip(self.number(least)).is_some_and(|(number, least)| number < least) {
            return Err(format!("«{text}» is too little; it is {least} at least"));
        }
        if number.zip(self.number(most)).is_some_and(|(number, most)| number > most) {
            return Err(format!("«{text}» is too much; it is {most} at most"));
        }
        Ok(written)
    }

    /// The value as a number to draw, in [`Self::unit`]; `None` of a word.
    #[must_use]
    pub fn number(&self, text: &str) -> Option<f64> {
        match self.kind {
            Kind::Whole | Kind::WholeOr(_) | Kind::Among(_) => text.parse().ok(),
            Kind::Span => Some(text.parse::<Span>().ok()?.as_nanos() as f64 / 1e6),
            Kind::Bytes | Kind::BytesOr(_) => {
                Some(text.parse::<Bytes>().ok()?.as_u64() as f64 / f64::from(1 << 20))
            }
            Kind::Rate => Some(text.parse::<Rate>().ok()?.as_bits_per_second() as f64 / 1e6),
            Kind::Share => Some(text.parse::<Share>().ok()?.as_parts_per_billion() as f64 / 1e7),
            Kind::Word(_) => None,
        }
    }

    /// The unit of [`Self::number`].
    #[must_use]
    pub fn unit(&self) -> &'static str {
        match self.kind {
            Kind::Whole | Kind::WholeOr(_) | Kind::Among(_) | Kind::Word(_) => "",
            Kind::Span => "ms",
            Kind::Bytes | Kind::BytesOr(_) => "MiB",
            Kind::Rate => "Mbit/s",
            Kind::Share => "%",
        }
    }

    /// Where values stand in a table: numbers by size, words as declared.
    #[must_use]
    pub fn rank(&self, text: &str) -> f64 {
        let word = |words: &[&str]| words.iter().position(|w| *w == text).map(|n| n as f64);
        match self.kind {
            Kind::Word(words) => word(words),
            _ => self.number(text),
        }
        .unwrap_or(f64::MAX)
    }
}

/// A whole number as it is written, `4` for `4.0`.
fn whole(text: &str) -> Option<String> {
    let number: f64 = text.parse().ok()?;
    (number.is_finite() && number.fract() == 0.0).then(|| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_one_spelling() {
        let canonical = |axis, text| named(axis).unwrap().canonical(text);
        assert_eq!(canonical("file", "8MiB"), Ok("8 MiB".to_owned()));
        assert_eq!(canonical("file", "8192 KiB"), Ok("8 MiB".to_owned()));
        assert_eq!(canonical("window", "defaults"), Ok("defaults".to_owned()));
        assert_eq!(canonical("relays", "4.0"), Ok("4".to_owned()));
        assert_eq!(canonical("loss", "0.4%"), Ok("0.4 %".to_owned()));
        assert_eq!(canonical("acks", "2.0"), Ok("2".to_owned()));
        assert_eq!(canonical("acks", "study"), Ok("study".to_owned()));
        assert!(canonical("acks", "studied").unwrap_err().contains("study"));
        assert!(canonical("peer", "squib").unwrap_err().contains("squid"));
    }

    #[test]
    fn what_would_yield_nothing_is_refused() {
        let told = |axis: &str, text| named(axis).unwrap().canonical(text).unwrap_err();
        for (axis, text, wanted) in [
            ("pairs", "0", "1 at least"),
            ("pairs", "2.5", "no whole number"),
            ("pairs", "NaN", "no whole number"),
            ("relays", "-1", "0 at least"),
            ("relays", "1e9", "100 at most"),
            ("segments", "0", "1 at least"),
            ("segments", "6000", "5745 at most"),
            ("rate", "1 bit/s", "1 kbit/s at least"),
            ("file", "0 B", "1 B at least"),
            ("window", "1 KiB", "1460 B at least"),
            ("cut", "0 s", "1 ms at least"),
            ("acks", "0", "1 at least"),
            ("acks", "1.5", "no whole number, nor «study»"),
            ("burstiness", "1.7", "none of 1.5, 2, 2.4"),
            ("mtu", "100", "576 at least"),
            ("handshake-loss", "25 %", "22 % at most"),
        ] {
            let told = told(axis, text);
            assert!(told.contains(wanted) && told.contains(text), "{axis}: {told}");
        }
        assert_eq!(named("burstiness").unwrap().canonical("2.0"), Ok("2".to_owned()));
        assert_eq!(named("window").unwrap().canonical("defaults"), Ok("defaults".to_owned()));
    }

    /// A bound that cannot be read would be none.
    #[test]
    fn every_bound_is_a_value_of_its_axis() {
        for axis in AXES {
            for bound in [axis.range.0, axis.range.1].into_iter().filter(|bound| !bound.is_empty())
            {
                assert_eq!(axis.canonical(bound), Ok(bound.to_owned()), "{}", axis.name);
                assert!(axis.number(bound).is_some());
            }
        }
    }

    #[test]
    fn numbers_are_drawn_in_the_axis_s_unit() {
        assert_eq!(named("file").unwrap().number("8 MiB"), Some(8.0));
        assert_eq!(named("loss").unwrap().number("0.4 %"), Some(0.4));
        assert_eq!(named("peer").unwrap().number("squid"), None);
    }

    #[test]
    fn a_misspelt_axis_is_guessed() {
        assert_eq!(similar("relay").map(|a| a.name), Some("relays"));
        assert!(similar("zzzzzz").is_none());
    }
}
