//! One leg of a live connection as the register sees it: the kernel's figures, and its path.

use crate::known::verdict_name;
use crate::status::{LegStatus, OptionStatus};
use crate::world::NamedLeg;
use ekiden_linux::answer::{Answer, Outcomes};
use ekiden_linux::socket;
use ekiden_linux::tcp_info::TcpInfo;
use ekiden_model::path_mtu::{Facts, PathMtu};
use ekiden_model::scheduler::Lane;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use tokio::net::TcpStream;

/// A leg as the register sees it. It does not keep the socket open.
#[derive(Debug, Clone)]
pub(crate) struct SeenLeg {
    pub(crate) stream: Weak<TcpStream>,
    pub(crate) leg: Arc<NamedLeg>,
    outcomes: Vec<Outcomes>,
    path: PathMtu,
    /// Where it goes: a socket whose both ends are closed no longer says, and at a tunnel's end that is
    /// the one whose sending is to be judged.
    peer: IpAddr,
    looked: bool,
}

impl SeenLeg {
    pub(crate) fn new(
        stream: &Arc<TcpStream>,
        peer: IpAddr,
        leg: Arc<NamedLeg>,
        outcomes: Vec<Outcomes>,
    ) -> Self {
        let (stream, peer) = (Arc::downgrade(stream), peer.to_canonical());
        Self { stream, leg, outcomes, path: PathMtu::new(), peer, looked: false }
    }

    /// Looks whether packets of full size get through, and tells the leg.
    pub(crate) fn look(&mut self) {
        let Some(stream) = self.stream.upgrade() else { return };
        let Ok(info) = TcpInfo::read(stream.as_fd()) else { return };
        if !std::mem::replace(&mut self.looked, true) {
            self.leg.known.on_path_mtu(info.pmtu);
        }
        let ip = if self.peer.is_ipv4() { 20 } else { 40 };
        let stamps = if info.has(TcpInfo::OPT_TIMESTAMPS) { 12 } else { 0 };
        let acked = info.bytes_acked.unwrap_or(0).saturating_sub(1); // the SYN
        // older kernels do not say what was sent: then nothing is under way, and nothing suspected
        let sent = info.bytes_sent.unwrap_or(0).saturating_sub(info.bytes_retrans.unwrap_or(0));
        let verdict = self.path.on_look(Facts {
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
        self.leg.known.on_verdict(&self.leg.name, self.peer, verdict, self.path.passed());
    }

    /// Where it shares a rate that the kernel holds: in this lane from now on.
    pub(crate) fn set_lane(&self, lane: Lane) {
        let Some(group) = &self.leg.leg.socket.rate else { return };
        let Some(stream) = self.stream.upgrade() else { return };
        let fd = stream.as_fd();
        if socket::congestion(fd).is_ok_and(|name| name == group.control()) {
            // out of memory, it stays where it is
            let _ = group.join(fd, 1, lane);
        }
    }

    /// The kernel's figures; `None` when the socket is closed already.
    pub(crate) fn status(&self, side: &str) -> Option<LegStatus> {
        let stream = self.stream.upgrade()?;
        let fd = stream.as_fd();
        let info = TcpInfo::read(fd).ok()?;
        let buffers = socket::buffers(fd).ok()?;
        // the kernel says «unlimited» by the largest number
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

    /// What was asked of the socket and what became of it, in words.
    fn options(&self) -> Vec<OptionStatus> {
        let answers =
            self.outcomes.iter().flat_map(|outcomes| outcomes.answers(&self.leg.leg.socket));
        answers
            .map(|Answer { option, asked, granted, refused }| OptionStatus {
                option: option.to_owned(),
                asked,
                granted,
                refused,
            })
            .collect()
    }
}
