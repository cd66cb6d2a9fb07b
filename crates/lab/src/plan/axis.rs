//! What a plan may vary: every axis with its kind of value, so that `8MiB` and `8 MiB` are one cell and
//! a misspelt axis is refused where it stands.

use ekiden_model::units::{Bytes, Rate, Share, Span};
use std::fmt::Display;
use std::str::FromStr;

/// A kind of value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A plain number.
    Number,
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
    /// A plain number, or this word.
    NumberOr(&'static str),
}

/// Something that a plan may fix or vary.
#[derive(Debug)]
pub struct Axis {
    /// As in plans and rows.
    pub name: &'static str,
    /// As in figures and tables.
    pub title: &'static str,
    /// What its values are.
    pub kind: Kind,
    /// What it does.
    pub about: &'static str,
}

const fn axis(name: &'static str, title: &'static str, kind: Kind, about: &'static str) -> Axis {
    Axis { name, title, kind, about }
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
    axis("relays", "relays in a row", Kind::Number, "how many relays the path is cut by"),
    axis("at", "position of the relay", Kind::Share, "share of the round trip before the relay"),
    axis("file", "file", Kind::Bytes, "what is downloaded"),
    axis("rtt", "round trip", Kind::Span, "of the whole path, unloaded"),
    axis("rate", "link rate", Kind::Rate, "of each link, both directions"),
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
    axis("window", "window", Kind::BytesOr("defaults"), "effective window of each connection"),
    axis(
        "cut",
        "cut",
        Kind::Span,
        "a transfer that takes longer is ended and counted by its bytes",
    ),
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
    axis("burstiness", "σ of the pauses", Kind::Number, "of the logarithm of pauses between flows"),
    axis("pairs", "pairs", Kind::Number, "of a server and a client, all at once"),
    axis("minimum-rto", "minimum RTO", Kind::Span, "no retransmission time-out is shorter"),
    axis("segments", "receiver's window", Kind::Number, "in segments of 1,460 bytes"),
    axis(
        "careful",
        "careful",
        Kind::Word(&["yes", "no"]),
        "no fast retransmission of what was sent before the last loss",
    ),
    axis("clock", "clock", Kind::Word(&["exact", "10 ms"]), "in what round trips are measured"),
    axis("downlink", "downlink", Kind::Rate, "of the thin link, towards the client"),
    axis(
        "uplink",
        "uplink",
        Kind::Rate,
        "of the thin link, from the client; where it is not said, it is looked for",
    ),
    axis("mtu", "MTU", Kind::Number, "largest IP packet on the thin link"),
    axis(
        "lan-mtu",
        "MTU of the ends",
        Kind::Number,
        "largest IP packet between a relay and who stands beside it",
    ),
    axis(
        "acks",
        "segments per ACK",
        Kind::NumberOr("study"),
        "how many segments the receiver acknowledges at once; «study»: 2 of MTU 1500 and 1 of MTU 9000 in the simulator, whatever it does by itself on the kernel",
    ),
    axis(
        "offload",
        "offload",
        Kind::Word(&["off", "on"]),
        "whether the kernel's hosts cut and join packets in batches",
    ),
    axis("slots", "slots", Kind::Number, "packets that each queue of the thin link holds"),
    axis("framing", "framing", Kind::Number, "bytes that the uplink counts beside each IP packet"),
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
    axis("jam-packet", "jam's packets", Kind::Number, "bytes of each as an IP packet"),
    axis("initial-rto", "first time-out", Kind::Span, "of a SYN"),
    axis(
        "handshake-loss",
        "handshake loss",
        Kind::Share,
        "of SYNs and of their answers, each; nothing else is lost",
    ),
    axis(
        "scheme",
        "scheme",
        Kind::Word(&["1", "2", "3", "4", "fixed 64 KiB", "kernel", "E-ATBT"]),
        "seed 2's: fixed buffers; E2-ATBT; and idle connections closed; and their buffers halved. Of downloads: how their send buffers come about",
    ),
    axis("clients", "clients", Kind::Number, "people at browsers behind the proxy"),
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
    axis("pool", "pool", Kind::Bytes, "all buffers of the proxy together"),
    axis("period", "period", Kind::Span, "between two ticks of the proxy"),
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
        match self.kind {
            Kind::Number => {
                let number: f64 = text.parse().map_err(|_| format!("«{text}» is no number"))?;
                Ok(number.to_string())
            }
            Kind::Span => of::<Span>(text),
            Kind::Bytes => of::<Bytes>(text),
            Kind::Rate => of::<Rate>(text),
            Kind::Share => of::<Share>(text),
            Kind::BytesOr(word) if text == word => Ok(text.to_owned()),
            Kind::BytesOr(word) => {
                of::<Bytes>(text).map_err(|error| format!("{error}, nor «{word}»"))
            }
            Kind::NumberOr(word) if text == word => Ok(text.to_owned()),
            Kind::NumberOr(word) => {
                let number: f64 =
                    text.parse().map_err(|_| format!("«{text}» is no number, nor «{word}»"))?;
                Ok(number.to_string())
            }
            Kind::Word(words) if words.contains(&text) => Ok(text.to_owned()),
            Kind::Word(words) => Err(format!("«{text}» is none of {}", words.join(", "))),
        }
    }

    /// The value as a number to draw, in [`Self::unit`]; `None` of a word.
    #[must_use]
    pub fn number(&self, text: &str) -> Option<f64> {
        match self.kind {
            Kind::Number | Kind::NumberOr(_) => text.parse().ok(),
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
            Kind::Number | Kind::NumberOr(_) | Kind::Word(_) => "",
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
