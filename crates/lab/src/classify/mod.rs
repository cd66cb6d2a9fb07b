//! `ekiden lab classify`: flows of a thin client's traffic in a capture beside published ones. Memory grows
//! with the number of connections, not with the capture.
//!
//! Bias: see [`ekiden_model::network::workload::flows`]; capture near the server, behind its segmentation
//! offload.

mod connections;
mod container;
mod headers;
mod table;
#[cfg(test)]
mod tests;

pub use connections::ServerAddress;
pub use table::Document;

use crate::command::Answer;
use connections::Connections;
use ekiden_model::network::workload::flows::{Summary, THRESHOLD};
use ekiden_model::units::Span;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::Path;

/// How to look at a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The side whose data counts; `None`: found by handshakes and ports.
    pub server: Option<ServerAddress>,
    /// A longer pause begins a new flow.
    pub threshold: Span,
}

impl Default for Options {
    fn default() -> Self {
        Self { server: None, threshold: THRESHOLD }
    }
}

/// What was found in a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Found {
    /// Packets of all kinds.
    pub packets: u64,
    /// Those with a TCP header.
    pub tcp: u64,
    /// Connections on which the server sent data.
    pub connections: u64,
    /// Connections of which no side could be taken for the server.
    pub undecided: u64,
    /// Connections of other servers than the one named.
    pub others: u64,
    /// Packets of the server that brought nothing new: retransmitted, or captured twice.
    pub repeated: u64,
    /// Packets with more than 1500 bytes of payload: captured before a device cut them.
    pub uncut: u64,
    /// Where no server sent any: the first side that sent data without being taken for a server.
    pub not_counted: Option<SocketAddr>,
    /// Of the flows.
    pub summary: Summary,
}

/// Why a capture cannot be classified.
#[derive(Debug, thiserror::Error)]
pub enum ClassifyError {
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// There is nothing in it.
    #[error("the file is empty")]
    Empty,
    /// Neither pcap nor pcapng.
    #[error(
        "this is no capture: it begins with the mark of neither pcap nor pcapng; `tcpdump -w FILE` \
         writes captures, and a compressed one has to be unpacked first"
    )]
    NotACapture,
    /// It ends within a packet.
    #[error(
        "the file ends in the middle of a packet, after {packets} whole ones; if it is still being \
         written, stop that first; `tcpdump -r FILE -w WHOLE` keeps the whole packets"
    )]
    Truncated {
        /// That are whole.
        packets: u64,
    },
    /// A length or a type that cannot be.
    #[error("the capture is damaged after {packets} packets: {what}")]
    Damaged {
        /// Before the damage.
        packets: u64,
        /// What cannot be.
        what: &'static str,
    },
    /// Headers below IP that are not known here; the number is libpcap's.
    #[error(
        "packets of link type {0} cannot be read; Ethernet, raw IP and Linux's `any` can: capture with \
         `tcpdump -i any`, or on the server's Ethernet interface"
    )]
    LinkType(u32),
    /// No server has sent data in it.
    #[error("{}", nothing(.0))]
    NoData(Box<Found>),
}

fn nothing(found: &Found) -> String {
    let Found { packets, tcp, undecided, others, not_counted, .. } = found;
    let hint = if *undecided > 0 {
        "cannot tell which side is the server"
    } else if *others > 0 {
        "no connection has the address of --server"
    } else if *tcp > 0 {
        "the side that was taken for the server sent none"
    } else {
        "capture where the clients' TCP connections pass, without a filter that leaves them out"
    };
    let mut text =
        format!("there is no data from a server in {packets} packets, {tcp} of them TCP; {hint}");
    if let Some(sent) = not_counted {
        text += &format!(
            "; {sent} sent data: if that is a server, say --server {sent}, or --server :{} for all \
             at this port",
            sent.port()
        );
    }
    text
}

/// Reads a capture and classifies the data of its servers. Errors: it is no capture, is cut off or damaged, has
/// headers that are not known here, or has no data.
pub fn classify(input: impl Read, options: &Options) -> Result<Found, ClassifyError> {
    let mut connections = Connections::new(*options);
    let mut found = Found::default();
    container::read(input, |packet| {
        found.packets += 1;
        if let Some(segment) = headers::segment(packet)? {
            found.tcp += 1;
            connections.on_segment(packet.at, &segment);
        }
        Ok(())
    })?;
    connections.finish(&mut found);
    if found.summary.flows() == 0 {
        return Err(ClassifyError::NoData(Box::new(found)));
    }
    found.not_counted = None;
    Ok(found)
}

/// `ekiden lab classify CAPTURE`.
pub fn command(capture: &Path, options: &Options, as_json: bool) -> Result<Answer, String> {
    let name = capture.display().to_string();
    let found = File::open(capture)
        .map_err(ClassifyError::from)
        .and_then(|file| classify(file, options))
        .map_err(|error| format!("{name}: {error}"))?;
    let document = Document::new(&name, options, &found);
    let text = if as_json {
        serde_json::to_string_pretty(&document).map_err(|error| error.to_string())? + "\n"
    } else {
        document.text()
    };
    Ok(Answer::of(text))
}
