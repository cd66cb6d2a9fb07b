//! One leg of a live connection: the kernel's figures, and its path.

use crate::observe::leg_history::verdict_name;
use crate::observe::named_leg::NamedLeg;
use crate::observe::status::{LegStatus, OptionStatus};
use ekiden_linux::sockets::outcome::{OptionOutcome, Outcomes};
use ekiden_linux::sockets::socket;
use ekiden_linux::sockets::tcp_info::TcpInfo;
use ekiden_model::connect::path_mtu::{PathFacts, PathMtu};
use ekiden_model::control::scheduler::Lane;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use tokio::net::TcpStream;

/// A leg of a live connection. It does not keep the socket open.
#[derive(Debug, Clone)]
pub(crate) struct LegStats {
    pub(crate) stream: Weak<TcpStream>,
    pub(crate) leg: Arc<NamedLeg>,
    outcomes: Vec<Outcomes>,
    path: PathMtu,
    /// The remote address, which a socket with both ends closed does not report any more.
    peer: IpAddr,
    looked: bool,
}

impl LegStats {
    pub(crate) fn new(
        stream: &Arc<TcpStream>,
        peer: IpAddr,
        leg: Arc<NamedLeg>,
        outcomes: Vec<Outcomes>,
    ) -> Self {
        let (stream, peer) = (Arc::downgrade(stream), peer.to_canonical());
        Self { stream, leg, outcomes, path: PathMtu::new(), peer, looked: false }
    }

    /// Checks whether full-sized packets get through, and tells the leg's history.
    pub(crate) fn check(&mut self) {
        let Some(stream) = self.stream.upgrade() else { return };
        let Ok(info) = TcpInfo::read(stream.as_fd()) else { return };
        if !std::mem::replace(&mut self.looked, true) {
            self.leg.history.on_path_mtu(info.pmtu);
        }
        let ip = if self.peer.is_ipv4() { 20 } else { 40 };
        let stamps = if info.has(TcpInfo::OPT_TIMESTAMPS) { 12 } else { 0 };
        let acked = info.bytes_acked.unwrap_or(0).saturating_sub(1); // the SYN
        // older kernels do not report sent bytes: then nothing counts as in flight, and no path is suspected
        let sent = info.bytes_sent.unwrap_or(0).saturating_sub(info.bytes_retrans.unwrap_or(0));
        let verdict = self.path.on_look(PathFacts {
            path_mtu: info.pmtu,
            mss: info.snd_mss,
            announced: info.advmss,
            headers: ip + 20 + stamps,
            in_flight: sent.saturating_sub(acked),
            segments: info.unacked,
            timeouts: info.retransmits.into(),
            timeouts_ever: info.total_rto.map_or(info.retransmits.into(), u32::from),
            acked,
            delivered: info.delivered.unwrap_or(0).into(),
        });
        self.leg.history.on_verdict(&self.leg.name, self.peer, verdict, self.path.passed());
    }

    /// Moves the socket to another lane of the rate that the kernel holds for its leg.
    pub(crate) fn set_lane(&self, lane: Lane) {
        let Some(group) = &self.leg.leg.socket.rate else { return };
        let Some(stream) = self.stream.upgrade() else { return };
        let fd = stream.as_fd();
        if socket::congestion(fd).is_ok_and(|name| name == group.control()) {
            // fails without memory; the socket then keeps its lane
            let _ = group.join(fd, 1, lane);
        }
    }

    /// The kernel's figures; `None` when the socket is closed already.
    pub(crate) fn status(&self, side: &str) -> Option<LegStatus> {
        let stream = self.stream.upgrade()?;
        let fd = stream.as_fd();
        let info = TcpInfo::read(fd).ok()?;
        let buffers = socket::buffers(fd).ok()?;
        // the kernel reports "unlimited" as the largest number
        let pacing = info.pacing_rate.filter(|rate| *rate != u64::MAX);
        Some(LegStatus {
            side: side.to_owned(),
            profile: self.leg.name.clone(),
            local: stream.local_addr().ok(),
            peer: stream.peer_addr().ok(),
            state: info.state.to_string(),
            congestion: socket::congestion(fd).unwrap_or_default(),
            rtt_us: info.rtt,
            rtt_var_us: info.rttvar,
            min_rtt_us: info.min_rtt.unwrap_or_default(),
            retransmits: info.total_retrans,
            bytes_retransmitted: info.bytes_retrans.unwrap_or_default(),
            delivery_rate: info.delivery_rate.unwrap_or_default().saturating_mul(8),
            pacing_rate: pacing.map(|bytes| bytes.saturating_mul(8)),
            cwnd: info.snd_cwnd,
            mss: info.snd_mss,
            path_mtu: info.pmtu,
            announced_mss: info.advmss,
            received_mss: info.rcv_mss,
            path: verdict_name(self.path.verdict()).to_owned(),
            send_buffer: buffers.send,
            receive_buffer: buffers.receive,
            unsent: info.notsent_bytes.unwrap_or_default(),
            unacked: info.unacked,
            options: self.options(),
        })
    }

    /// The options requested of the socket, and the kernel's answers.
    fn options(&self) -> Vec<OptionStatus> {
        let answers =
            self.outcomes.iter().flat_map(|outcomes| outcomes.in_words(&self.leg.leg.socket));
        answers
            .map(|OptionOutcome { option, asked, granted, refused }| OptionStatus {
                option: option.to_owned(),
                asked,
                granted,
                refused,
            })
            .collect()
    }
}
