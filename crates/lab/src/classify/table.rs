//! What was found, as text and as JSON, beside Table 1 of the thin-client study.

use super::{Found, Options};
use crate::evaluation::tables;
use ekiden_model::network::workload::flows::{Steps, Totals};
use ekiden_model::network::workload::thin_client::{TABLE_1, ThinClient};
use schemars::JsonSchema;
use serde::Serialize;

/// What `ekiden lab classify --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Document {
    /// The file, as it was named.
    pub capture: String,
    /// A longer pause than this many nanoseconds began a new flow.
    pub threshold_ns: u64,
    /// Packets in the capture.
    pub packets: u64,
    /// Of those, with a TCP header.
    pub tcp_packets: u64,
    /// Connections on which the server sent data.
    pub connections: u64,
    /// Connections left out because no side could be taken for the server.
    pub undecided: u64,
    /// Connections left out because neither side has the address of --server.
    pub others: u64,
    /// Packets of servers left out because they brought nothing new: retransmitted, or captured twice.
    pub repeated_packets: u64,
    /// Packets with more than 1500 bytes of payload, captured before a device cut them.
    pub uncut_packets: u64,
    /// Flows of one packet.
    pub interactive: Kind,
    /// Flows of several packets.
    pub bulk: Kind,
    /// What was published.
    pub published: Published,
}

/// Flows of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Kind {
    /// Flows.
    pub flows: u64,
    /// Their packets.
    pub packets: u64,
    /// Their payload.
    pub bytes: u64,
    /// Mean; null without flows.
    pub packets_per_flow: Option<f64>,
    /// Mean payload; null without packets.
    pub bytes_per_packet: Option<f64>,
    /// How often the next flow of the connection is of the same kind, α or β; null if none followed.
    pub stays: Option<f64>,
}

/// Ogawa, Hasegawa and Murata: means of about 100 traces of intranet connections.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Published {
    /// Length of a trace.
    pub seconds: u64,
    /// Flows of one packet.
    pub interactive: Kind,
    /// Flows of several packets.
    pub bulk: Kind,
}

impl Kind {
    fn new(totals: &Totals, stays: Option<f64>) -> Self {
        Self {
            flows: totals.flows,
            packets: totals.packets,
            bytes: totals.bytes,
            packets_per_flow: totals.packets_per_flow(),
            bytes_per_packet: totals.bytes_per_packet(),
            stays,
        }
    }

    fn column(&self) -> [String; 6] {
        let share = |value: Option<f64>, digits| {
            value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
        };
        [
            grouped(self.flows),
            grouped(self.packets),
            grouped(self.bytes),
            share(self.packets_per_flow, 1),
            share(self.bytes_per_packet, 1),
            share(self.stays, 2),
        ]
    }
}

impl Document {
    /// Of a capture.
    pub fn new(capture: &str, options: &Options, found: &Found) -> Self {
        let summary = &found.summary;
        let kind = |totals, steps: &Steps| Kind::new(totals, steps.share());
        Self {
            capture: capture.to_owned(),
            threshold_ns: options.threshold.as_nanos(),
            packets: found.packets,
            tcp_packets: found.tcp,
            connections: found.connections,
            undecided: found.undecided,
            others: found.others,
            repeated_packets: found.repeated,
            uncut_packets: found.uncut,
            interactive: kind(&summary.interactive, &summary.from_interactive),
            bulk: kind(&summary.bulk, &summary.from_bulk),
            published: Published {
                seconds: TABLE_1.duration.as_secs(),
                interactive: Kind::new(&TABLE_1.interactive, Some(TABLE_1.alpha)),
                bulk: Kind::new(&TABLE_1.bulk, Some(TABLE_1.beta)),
            },
        }
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let Published { seconds, interactive, bulk } = &self.published;
        let titles = ["", "interactive", "published", "bulk", "published"].map(str::to_owned);
        let columns = [
            ["flows", "packets", "bytes", "packets/flow", "bytes/packet", "same kind next"]
                .map(str::to_owned),
            self.interactive.column(),
            interactive.column(),
            self.bulk.column(),
            bulk.column(),
        ];
        let row = |n: usize| columns.each_ref().map(|column| column[n].clone()).to_vec();
        let lines: Vec<Vec<String>> =
            [titles.to_vec()].into_iter().chain((0..6).map(row)).collect();
        let mut text = self.origin() + &tables::columns(&lines, 1);
        let internet = ThinClient::internet();
        text += &format!(
            "\npublished: means of {seconds} s of an intranet connection (Ogawa, Hasegawa, Murata, Table 1).\n\
             Of Internet connections, only how often the next flow is of the same kind: {:.2} and {:.2}\n",
            internet.alpha, internet.beta
        );
        for note in self.notes() {
            text += &format!("{note}\n");
        }
        text
    }

    /// Where it comes from, above the table.
    fn origin(&self) -> String {
        format!(
            "{}: {}, {}, {} of them TCP; pauses above {} ms part flows\n\n",
            self.capture,
            count(self.connections, "connection"),
            count(self.packets, "packet"),
            grouped(self.tcp_packets),
            self.threshold_ns as f64 / 1e6
        )
    }

    /// What a reader should know before believing the table.
    fn notes(&self) -> Vec<String> {
        let notes = [
            (self.repeated_packets, "packet", "left out: nothing new by sequence number"),
            (
                self.undecided,
                "connection",
                "left out: which side is the server? --server ADDRESS or :PORT says it",
            ),
            (self.others, "connection", "left out: neither side has the address of --server"),
            (
                self.uncut_packets,
                "packet",
                "longer than Ethernet's, so that a whole bulk flow may be one: capture behind the\n  \
                 server's network card, or switch its offload off (ethtool -K DEVICE tso off gso off)",
            ),
        ];
        let there = notes.into_iter().filter(|(n, ..)| *n > 0);
        there.map(|(n, noun, what)| format!("{} {what}", count(n, noun))).collect()
    }
}

fn count(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(n), if n == 1 { "" } else { "s" })
}

fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn thousands_are_grouped() {
        let grouped = [0, 999, 1_000, 1_373_366].map(super::grouped);
        assert_eq!(grouped, ["0", "999", "1,000", "1,373,366"]);
    }
}
