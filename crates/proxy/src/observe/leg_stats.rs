//! One leg of a live connection: the kernel's figures, and its path.

use crate::observe::leg_history::verdict_name;
use crate::observe::named_leg::NamedLeg;
use crate::observe::status::{FlowStatus, LegStatus, OptionStatus, TunnelStatus};
use ekiden_linux::sockets::outcome::{OptionOutcome, Outcomes};
use ekiden_linux::sockets::socket;
use ekiden_linux::sockets::tcp_info::TcpInfo;
use ekiden_model::connect::path_mtu::{PathFacts, PathMtu};
use ekiden_model::control::scheduler::Lane;
use ekiden_tunnel::driver::FlowView;
use socket2::SockRef;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Shutdown};
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use tokio::net::TcpStream;

/// A leg of a live connection. It does not keep the socket open.
#[derive(Debug, Clone)]
pub(crate) struct LegStats {
    pub(crate) stream: Weak<TcpStream>,
    pub(crate) leg: Arc<NamedLeg>,
    outcomes: Option<Outcomes>,
    path: PathMtu,
    /// The remote address, which a socket with both ends closed does not report any more.
    peer: IpAddr,
    looked: bool,
    carrier: Carrier,
    /// Version and cipher of an upstream proxy's TLS.
    tls: Option<Arc<str>>,
}

/// What carries a leg's bytes over the network.
#[derive(Debug, Clone)]
enum Carrier {
    /// The leg's own socket.
    Own,
    /// A TLS connection on this socket: all of it, or an HTTP/2 stream.
    Tls(Weak<TcpStream>, Option<Weak<dyn TlsLeg>>),
    /// A flow of a tunnel.
    Tunnel(TunnelLeg),
}

/// A leg within TLS that has no socket of its own.
pub(crate) trait TlsLeg: std::fmt::Debug + Send + Sync {
    /// Whether bytes have arrived that nobody has read.
    fn has_spoken(&self) -> bool;

    /// Ends it here: its reader finds the end of the stream, and its writer a broken pipe.
    fn shut(&self);

    /// Makes its close a reset. `why`: in words, for a peer.
    fn abort(&self, why: &str);
}

/// The flow that carries a leg through a peer's tunnel.
#[derive(Debug, Clone)]
pub(crate) struct TunnelLeg {
    pub(crate) peer: Arc<str>,
    pub(crate) flow: FlowView,
}

impl LegStats {
    pub(crate) fn new(
        stream: Weak<TcpStream>,
        peer: IpAddr,
        leg: Arc<NamedLeg>,
        outcomes: Option<Outcomes>,
    ) -> Self {
        let peer = peer.to_canonical();
        Self {
            stream,
            leg,
            outcomes,
            path: PathMtu::new(),
            peer,
            looked: false,
            carrier: Carrier::Own,
            tls: None,
        }
    }

    /// The same leg, whose bytes a flow of a tunnel carries.
    pub(crate) fn through_tunnel(self, tunnel: &TunnelLeg) -> Self {
        Self { carrier: Carrier::Tunnel(tunnel.clone()), ..self }
    }

    /// The tunnel that carries its bytes, if one does.
    pub(crate) const fn tunnel(&self) -> Option<&TunnelLeg> {
        match &self.carrier {
            Carrier::Tunnel(tunnel) => Some(tunnel),
            Carrier::Own | Carrier::Tls(..) => None,
        }
    }

    /// The same leg, whose bytes the TLS connection on `socket` carries.
    pub(crate) fn within_tls(
        self,
        socket: &Weak<TcpStream>,
        session: Option<Weak<dyn TlsLeg>>,
    ) -> Self {
        Self { carrier: Carrier::Tls(Weak::clone(socket), session), ..self }
    }

    /// The same leg, to an upstream proxy that speaks TLS: its version and cipher.
    pub(crate) fn with_tls(self, words: &Arc<str>) -> Self {
        Self { tls: Some(Arc::clone(words)), ..self }
    }

    /// Its session within TLS, kept. The last hold takes locks as it is dropped, so that belongs outside of all.
    pub(super) fn session(&self) -> Option<Arc<dyn TlsLeg>> {
        match &self.carrier {
            Carrier::Tls(_, session) => session.as_ref()?.upgrade(),
            Carrier::Own | Carrier::Tunnel(_) => None,
        }
    }

    fn flow(&self) -> Option<&FlowView> {
        self.tunnel().map(|leg| &leg.flow)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.stream.strong_count() > 0
            || self.session().is_some()
            || self.flow().is_some_and(|flow| flow.status().is_some())
    }

    /// Whether bytes have arrived that nobody has read.
    pub(crate) fn has_spoken(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        if let Some(stream) = self.stream.upgrade() {
            SockRef::from(&*stream).peek(&mut byte).is_ok_and(|n| n > 0)
        } else if let Some(session) = self.session() {
            session.has_spoken()
        } else {
            self.flow().and_then(FlowView::status).is_some_and(|flow| flow.held > 0)
        }
    }

    /// Ends it here; a flow and a TLS session in both directions.
    pub(crate) fn shut(&self, how: Shutdown) {
        if let Some(stream) = self.stream.upgrade() {
            // fails only when the other end is gone
            let _ = SockRef::from(&*stream).shutdown(how);
        } else if let Some(session) = self.session() {
            session.shut();
        } else if let Some(flow) = self.flow() {
            flow.shut();
        }
    }

    /// Makes its close a reset, because neither end may take a cut for an end of stream.
    pub(crate) fn abort(&self) {
        if let Some(stream) = self.stream.upgrade() {
            let _ = socket::abort(stream.as_fd());
        } else if let Some(session) = self.session() {
            session.abort("ended by the operator or by a limit");
        } else if let Some(flow) = self.flow() {
            flow.abort();
        }
    }

    /// Checks whether full-sized packets get through, and tells the leg's history. Returns whether nothing is under way
    /// that could be stuck.
    pub(crate) fn check(&mut self) -> bool {
        // loopback has no path
        let stream = match &self.carrier {
            Carrier::Tls(socket, _) if self.tls.is_some() => socket,
            _ => &self.stream,
        };
        let Some(stream) = stream.upgrade() else { return true };
        let Ok(info) = TcpInfo::read(stream.as_fd()) else { return true };
        if !std::mem::replace(&mut self.looked, true) {
            self.leg.history.on_path_mtu(info.pmtu);
        }
        let ip = if self.peer.is_ipv4() { 20 } else { 40 };
        let stamps = if info.has(TcpInfo::OPT_TIMESTAMPS) { 12 } else { 0 };
        let acked = info.bytes_acked.unwrap_or(0).saturating_sub(1); // the SYN
        // older kernels do not report sent bytes: then nothing counts as in flight, and no path is suspected
        let sent = info.bytes_sent.unwrap_or(0).saturating_sub(info.bytes_retrans.unwrap_or(0));
        let look = self.path.on_look(PathFacts {
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
        self.leg.history.on_path_look(&self.leg.name, self.peer, look);
        info.unacked == 0 && info.notsent_bytes.unwrap_or(0) == 0
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

    /// The figures of what carries the leg; `None` when a socket is closed already.
    pub(crate) fn status(&self, side: &str, tunnels: &[TunnelStatus]) -> Option<LegStatus> {
        let stream = match &self.carrier {
            Carrier::Tunnel(TunnelLeg { peer, flow }) => {
                let tunnel = tunnels.iter().find(|tunnel| tunnel.peer == **peer);
                let flow = flow.status()?;
                return Some(self.of_tunnel(side, peer, tunnel, &flow));
            }
            Carrier::Tls(socket, _) => socket.upgrade()?,
            Carrier::Own => self.stream.upgrade()?,
        };
        let info = TcpInfo::read(stream.as_fd()).ok()?;
        self.of_socket(side, &stream, &info)
    }

    fn of_socket(&self, side: &str, stream: &TcpStream, info: &TcpInfo) -> Option<LegStatus> {
        let fd = stream.as_fd();
        let buffers = socket::buffers(fd).ok()?;
        // the kernel reports "unlimited" as the largest number
        let pacing = info.pacing_rate.filter(|rate| *rate != u64::MAX);
        Some(LegStatus {
            side: side.to_owned(),
            profile: self.leg.name.clone(),
            tunnel: None,
            flow: None,
            window_full: window_full(info),
            tls: self.tls.as_deref().map(str::to_owned),
            local: stream.local_addr().ok(),
            peer: stream.peer_addr().ok(),
            state: info.state.to_string(),
            congestion: socket::congestion(fd).unwrap_or_default(),
            rtt_us: info.rtt,
            rtt_var_us: info.rttvar,
            min_rtt_us: info.min_rtt.unwrap_or_default(),
            loss: loss(info),
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

    /// A leg within a tunnel: the tunnel's figures, and the flow's.
    fn of_tunnel(
        &self,
        side: &str,
        peer: &str,
        tunnel: Option<&TunnelStatus>,
        flow: &ekiden_tunnel::core::FlowStatus,
    ) -> LegStatus {
        let up = tunnel.filter(|tunnel| tunnel.up);
        let of = |figure: fn(&TunnelStatus) -> u64| up.map_or(0, figure);
        let micros =
            |figure: fn(&TunnelStatus) -> f64| up.map_or(0, |tunnel| figure(tunnel) as u32);
        let short = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        LegStatus {
            side: side.to_owned(),
            profile: self.leg.name.clone(),
            tunnel: Some(peer.to_owned()),
            flow: Some(FlowStatus {
                answered: flow.answered,
                waiting: flow.queued,
                full: flow.full,
                all_full: flow.all_full,
                short: flow.short,
                held: flow.held,
            }),
            tls: self.tls.as_deref().map(str::to_owned),
            local: None,
            peer: up.and_then(|tunnel| tunnel.address.as_ref()?.parse().ok()),
            state: if up.is_some() { "up" } else { "down" }.to_owned(),
            congestion: "tunnel".to_owned(),
            rtt_us: micros(|tunnel| tunnel.rtt_us),
            rtt_var_us: 0,
            min_rtt_us: micros(|tunnel| (tunnel.rtt_us - tunnel.queue_us).max(0.0)),
            loss: up.map(|tunnel| tunnel.path_loss),
            retransmits: short(of(|tunnel| tunnel.packets_lost)),
            bytes_retransmitted: 0,
            delivery_rate: of(|tunnel| tunnel.rate),
            pacing_rate: up.map(|tunnel| tunnel.rate),
            cwnd: 0,
            mss: 0,
            path_mtu: u32::try_from(of(|tunnel| tunnel.mtu)).unwrap_or(0),
            announced_mss: 0,
            received_mss: 0,
            path: String::new(),
            window_full: false,
            send_buffer: 0,
            receive_buffer: 0,
            unsent: short(flow.queued),
            unacked: 0,
            options: self.options(),
        }
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

/// The share of bytes that were sent again; data sent again without need counts, too.
fn loss(info: &TcpInfo) -> Option<f64> {
    let (sent, again) = (info.bytes_sent?, info.bytes_retrans?);
    (sent > 0).then(|| (again as f64 / sent as f64).min(1.0))
}

/// Bytes that were sent, those sent again left out.
fn sent_once(info: &TcpInfo) -> Option<u64> {
    Some(info.bytes_sent?.saturating_sub(info.bytes_retrans?))
}

/// Whether bytes wait and the next segment does not fit into the other end's window.
fn window_full(info: &TcpInfo) -> bool {
    let figures = || {
        let acked = info.bytes_acked?.saturating_sub(1); // the SYN
        let in_flight = sent_once(info)?.saturating_sub(acked);
        Some((in_flight, u64::from(info.snd_wnd?), info.notsent_bytes?))
    };
    figures().is_some_and(|(in_flight, window, unsent)| {
        unsent > 0 && in_flight + u64::from(info.snd_mss.min(unsent)) > window
    })
}
