//! A few handshakes to a relay: round-trip time, lost SYNs, segment size, and what it speaks. The rate
//! of a path is not measured: that would need traffic in bulk, and a listener that takes it.

use ekiden_linux::sockets::tcp_info::TcpInfo;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How many handshakes.
const HANDSHAKES: u32 = 10;
/// The longest wait for one: time for the SYN and two retransmissions of it (at 1 s and 3 s).
const ONE: Duration = Duration::from_millis(3500);
/// The longest for all of them.
const ALL: Duration = Duration::from_secs(15);
/// The longest wait for an answer to a question.
const ANSWER: Duration = Duration::from_secs(3);

/// What a few handshakes to a relay showed. Rate is not among it: handshakes do not measure it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ProxyReport {
    /// As named on the command line.
    pub relay: String,
    /// The address tried.
    pub address: Option<String>,
    /// Handshakes begun.
    pub handshakes: u32,
    /// Handshakes that succeeded.
    pub succeeded: u32,
    /// SYNs or SYN-ACKs sent again, so lost on the way or late by a second.
    pub syn_retransmissions: u32,
    /// Lost handshake packets as a share of SYNs sent, 0…1; coarse: one in ten is the least it can show.
    pub handshake_loss: Option<f64>,
    /// Smallest round-trip time, microseconds.
    pub min_rtt_us: Option<u32>,
    /// Median round-trip time, microseconds.
    pub median_rtt_us: Option<u32>,
    /// Largest segment, bytes of payload.
    pub mss: Option<u32>,
    /// Path MTU as this machine believes it, bytes.
    pub path_mtu: Option<u32>,
    /// First line of its answer to an HTTP request.
    pub http: Option<String>,
    /// Whether it answered a SOCKS5 greeting in SOCKS5.
    pub socks5: Option<bool>,
    /// Why nothing, or not everything, could be measured.
    pub error: Option<String>,
}

impl ProxyReport {
    /// Whether it answered as a relay does.
    pub(crate) fn fine(&self) -> bool {
        self.error.is_none() && self.speaks()
    }

    fn speaks(&self) -> bool {
        self.http.is_some() || self.socks5 == Some(true)
    }
}

/// Looks at a relay, `host:port`, in at most some twenty seconds.
pub(super) fn look(relay: &str) -> ProxyReport {
    let mut report = ProxyReport { relay: relay.into(), ..ProxyReport::default() };
    let address = match relay.to_socket_addrs().map(|mut all| all.next()) {
        Ok(Some(address)) => address,
        Ok(None) => {
            report.error = Some("this name has no address".into());
            return report;
        }
        Err(error) => {
            report.error = Some(format!("{error}; write it like relay.example:3128"));
            return report;
        }
    };
    report.address = Some(address.to_string());
    handshakes(address, &mut report);
    if report.succeeded > 0 {
        report.socks5 = Some(ask(address, &[5, 1, 0]).is_some_and(|answer| answer[0] == 5));
        let request = format!(
            "OPTIONS * HTTP/1.1\r\nHost: {relay}\r\nMax-Forwards: 0\r\nConnection: close\r\n\r\n"
        );
        report.http = ask(address, request.as_bytes())
            .filter(|answer| answer.starts_with(b"HTTP/1."))
            .map(|answer| {
                let line = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
                line.iter()
                    .map(|b| if b.is_ascii_graphic() { char::from(*b) } else { ' ' })
                    .collect()
            });
        if !report.speaks() && report.error.is_none() {
            report.error =
                Some("it answers neither HTTP nor SOCKS5: is this the relay's port?".into());
        }
    }
    report
}

fn handshakes(address: SocketAddr, report: &mut ProxyReport) {
    let start = Instant::now();
    let mut rtts = Vec::new();
    let mut sent = 0;
    while report.handshakes < HANDSHAKES {
        let left = ALL.saturating_sub(start.elapsed());
        if left.is_zero() {
            break;
        }
        report.handshakes += 1;
        match TcpStream::connect_timeout(&address, ONE.min(left)) {
            Ok(stream) => {
                report.succeeded += 1;
                sent += 1;
                if let Ok(info) = TcpInfo::read(stream.as_fd()) {
                    sent += info.total_retrans;
                    report.syn_retransmissions += info.total_retrans;
                    rtts.extend((info.rtt > 0).then_some(info.rtt));
                    report.mss = Some(info.snd_mss);
                    report.path_mtu = Some(info.pmtu);
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) => {
                // the SYN and its retransmissions, none of them answered
                sent += 2;
                report.syn_retransmissions += 2;
                report.error =
                    Some(format!("no answer from {address} within {} s", ONE.as_secs_f32()));
            }
            Err(error) => {
                report.error = Some(match error.kind() {
                    ErrorKind::ConnectionRefused => {
                        format!("{address} refused the connection: nothing listens there")
                    }
                    _ => format!("{address}: {error}"),
                });
                break;
            }
        }
    }
    rtts.sort_unstable();
    report.min_rtt_us = rtts.first().copied();
    report.median_rtt_us = rtts.get(rtts.len() / 2).copied();
    if sent > 0 {
        report.handshake_loss = Some(f64::from(report.syn_retransmissions) / f64::from(sent));
    }
}

/// The first bytes of the answer to a question, on a connection of its own.
fn ask(address: SocketAddr, question: &[u8]) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, ONE).ok()?;
    stream.set_read_timeout(Some(ANSWER)).ok()?;
    stream.write_all(question).ok()?;
    let mut answer = vec![0; 256];
    let length = stream.read(&mut answer).ok()?;
    answer.truncate(length);
    (length > 0).then_some(answer)
}
