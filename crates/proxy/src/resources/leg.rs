//! One leg whose buffers are managed: measured, resized, and given back to the kernel.

use super::reading::{DueLook, LegActivity, LegReading};
use crate::observe::registry::ConnectionEntry;
use crate::settings;
use ekiden_linux::bpf::Control;
use ekiden_linux::host::facts::Capabilities;
use ekiden_linux::sockets::buffers::{self, Limits};
use ekiden_linux::sockets::socket;
use ekiden_linux::sockets::tcp_info::TcpInfo;
use ekiden_model::resources::buffers::{
    CUBIC, Change, Grant, NewConnection, RENO, Side, Widen, Widening,
};
use ekiden_model::units::{Bytes, Rate, Span, Time};
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::{Arc, LazyLock, Weak};
use tokio::net::TcpStream;

/// The kernel counts two bytes of buffer for one byte of payload, and doubles requested sizes.
pub(super) const OVERHEAD: u64 = 2;

/// The kernel's size for a grant in payload bytes.
pub(super) const fn counted(payload: Bytes) -> Bytes {
    Bytes::new(payload.as_u64().saturating_mul(OVERHEAD))
}

/// The payload bytes of a kernel's size.
pub(super) const fn payload(counted: Bytes) -> Bytes {
    Bytes::new(counted.as_u64() / OVERHEAD)
}

/// A managed leg. It does not keep the socket open.
#[derive(Debug)]
pub(super) struct Leg {
    stream: Weak<TcpStream>,
    /// The remote address of an outgoing connection; `None` for a client's.
    pub(super) to: Option<SocketAddr>,
    /// An idle leg is not measured.
    pub(super) idle: bool,
    /// Which of its buffers are managed, because the leg's profile does not set them.
    shared: [bool; 2],
    /// Explicit sizes: the requested and the granted one.
    given: [Option<(u64, u32)>; 2],
    widening: Widening,
    /// Whether its profile lets the kernel pace it; `None` once it is settled.
    paces: Option<bool>,
    pub(super) activity: LegActivity,
}

/// A size that the kernel did not grant in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SizeRefusal {
    pub(super) side: Side,
    pub(super) given: u32,
}

/// The allocator's description of a new leg. Sizes that the profile sets stay the profile's.
pub(super) fn open(profile: &settings::Leg) -> NewConnection {
    let options = &profile.socket;
    NewConnection {
        send: options.send_buffer.is_none(),
        receive: leaves_receive(profile),
        ..NewConnection::default()
    }
}

/// What a leg that moves more than a few packets needs: lets the kernel pace over a long path, where the profile asks for
/// it and the congestion control does not pace itself. Returns the part of a window that this control fills.
pub(super) fn settle(stream: &TcpStream, paces: bool) -> f64 {
    let congestion = socket::congestion(stream.as_fd()).unwrap_or_default();
    if paces && !congestion.starts_with("bbr") {
        spread(stream);
    }
    match congestion.as_str() {
        "cubic" => CUBIC,
        // BBR's window is twice its measured bandwidth-delay product
        "bbr" => 2.0,
        _ => RENO,
    }
}

/// From this round trip on, HyStart takes 16 ms of queueing for a full queue (RFC 9406 §4 caps an
/// eighth of the round trip there), while bursts grow with the path.
const LONG: Span = Span::from_millis(128);

fn spread(stream: &TcpStream) {
    let path = || TcpInfo::read(stream.as_fd()).ok()?.min_rtt_us();
    if is_long(path())
        && let Err(error) = socket::spread(stream.as_fd())
    {
        tracing::debug!(%error, "cannot pace the leg over the round trip");
    }
}

/// Whether a path with this round-trip time in microseconds is long.
fn is_long(path: Option<u32>) -> bool {
    path.is_some_and(|us| Span::from_micros(us.into()) >= LONG)
}

/// Whether a leg's profile leaves its receive buffer and window to this manager.
pub(super) const fn leaves_receive(profile: &settings::Leg) -> bool {
    profile.socket.receive_buffer.is_none() && profile.socket.window_clamp.is_none()
}

/// Whether a leg's profile lets the kernel pace it over the round trip.
pub(super) const fn paces(profile: &settings::Leg) -> bool {
    profile.spread && profile.socket.pace.is_none()
}

fn most(limits: Limits) -> u64 {
    static PRIVILEGED: LazyLock<bool> = LazyLock::new(|| Capabilities::of_this_process().net_admin);
    if *PRIVILEGED { u64::MAX } else { limits.unprivileged }
}

impl Leg {
    pub(super) fn new(
        stream: &Arc<TcpStream>,
        to: Option<SocketAddr>,
        open: &NewConnection,
        paces: bool,
    ) -> Self {
        Self {
            stream: Arc::downgrade(stream),
            to,
            idle: false,
            shared: [open.send, open.receive],
            given: [None; 2],
            widening: Widening::default(),
            paces: Some(paces),
            activity: LegActivity::default(),
        }
    }

    /// From now on it carries this connection's bytes.
    pub(super) fn set_owner(&mut self, owner: &Arc<ConnectionEntry>) {
        self.activity.set_owner(owner);
    }

    /// The look at it that is due in its tick: none at an idle leg, and few at one at rest.
    pub(super) fn due(&mut self, id: u64) -> Option<DueLook> {
        if self.idle {
            return None;
        }
        self.activity.due(id, &self.stream, self.paces.is_none())
    }

    /// Notes whether it may be left out of the next looks. A leg with a size of ours may not: what follows from
    /// its use is ours to find out.
    pub(super) fn note(&mut self, now: Time, seen: &LegReading) {
        let leg = usize::from(self.to.is_some());
        self.activity.note(now, seen, self.given == [None; 2], leg);
    }

    /// Whether looks at it are left out.
    pub(super) const fn is_at_rest(&self) -> bool {
        self.activity.is_at_rest()
    }

    /// Applies another profile; sizes that it sets are not managed.
    pub(super) fn set_profile(&mut self, open: &NewConnection, paces: bool) {
        self.paces = Some(paces);
        self.shared = [open.send, open.receive];
        self.given = [None; 2];
        self.activity.wake();
        self.widening.on_given_back();
    }

    /// Its socket and whether it may be paced, where it is not settled yet; from now on it is.
    pub(super) fn take_unsettled(&mut self) -> Option<(Arc<TcpStream>, bool)> {
        Some((self.stream.upgrade()?, self.paces.take()?))
    }

    pub(super) const fn given(&self, side: Side) -> Option<(u64, u32)> {
        self.given[side as usize]
    }

    pub(super) const fn is_shared(&self, side: Side) -> bool {
        self.shared[side as usize]
    }

    pub(super) const fn is_widened(&self, side: Side) -> bool {
        self.widening.is_widened(side)
    }

    /// Applies the allocator's decision to a buffer.
    pub(super) fn apply(&mut self, change: Change, limits: &[Limits; 2]) -> Option<SizeRefusal> {
        let Change { side, grant, .. } = change;
        match grant {
            Grant::Bytes(bytes) => self.set(side, counted(bytes).as_u64()),
            Grant::Automatic => {
                // never smaller than now: queued bytes may need the space
                let now = self.given[side as usize].take()?.1;
                let size = limits[side as usize].first.max(u64::from(now));
                self.release(side, size);
                None
            }
        }
    }

    /// Lets a buffer grow where the kernel's tuning limit throttles the leg and there is `room`, or
    /// gives it back to the kernel.
    pub(super) fn widen(
        &mut self,
        now: Time,
        seen: &LegReading,
        limits: &[Limits; 2],
        ceiling: u64,
        mut room: impl FnMut(u64) -> bool,
    ) -> Option<SizeRefusal> {
        let mut looked = seen.looked();
        let tuned = [limits[0].tuned, limits[1].tuned];
        if looked.send_size >= tuned[0] && self.holds_rate() {
            looked.held = seen.info.pacing().map_or(0, Rate::as_bytes_per_second);
        }
        let steps = self.widening.on_look(now, looked, tuned, ceiling);
        let mut refused = None;
        for (side, step) in Side::ALL.into_iter().zip(steps) {
            if !self.is_shared(side) {
                continue;
            }
            let size = u64::from(seen.memory.size(side));
            match step {
                Some(Widen::To(to)) => {
                    let to = to.as_u64().min(most(limits[side as usize]));
                    // without the privilege, the kernel grants no more, and a request would shrink
                    // the tuned size
                    if to > size && room(to - size) {
                        refused = self.set(side, to).or(refused);
                        if self.given[side as usize]
                            .is_some_and(|(_, given)| u64::from(given) > size)
                        {
                            self.widening.on_widened(side);
                        }
                    }
                }
                Some(Widen::Back) => {
                    self.given[side as usize] = None;
                    self.release(side, limits[side as usize].first);
                }
                _ => {}
            }
        }
        refused
    }

    /// Whether its congestion control is our rate holder, whose rate is then its pace.
    fn holds_rate(&self) -> bool {
        let congestion = |stream: &Arc<TcpStream>| socket::congestion(stream.as_fd());
        self.stream.upgrade().is_some_and(|stream| {
            congestion(&stream).is_ok_and(|name| Control::called(&name) == Some(Control::Hold))
        })
    }

    /// Gives widened buffers back, because the leg is idle.
    pub(super) fn rest(&mut self, limits: &[Limits; 2]) {
        self.idle = true;
        for side in Side::ALL {
            if self.widening.is_widened(side) {
                self.given[side as usize] = None;
                self.release(side, limits[side as usize].first);
            }
        }
        self.widening.on_given_back();
    }

    fn set(&mut self, side: Side, bytes: u64) -> Option<SizeRefusal> {
        let stream = self.stream.upgrade()?;
        let given = buffers::set(stream.as_fd(), side, bytes).ok()?;
        self.given[side as usize] = Some((bytes, given));
        (u64::from(given) < bytes).then_some(SizeRefusal { side, given })
    }

    fn release(&self, side: Side, bytes: u64) {
        if let Some(stream) = self.stream.upgrade()
            && let Err(error) = buffers::release(stream.as_fd(), side, Some(bytes))
        {
            // before Linux 5.14 the buffer keeps its initial size
            tracing::debug!(%error, "cannot give a {side} buffer back to the kernel");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_linux::sockets::buffers::Memory;
    use std::process::Command;

    /// A measurement in which the receive buffer throttles 200 Mbit/s × 600 ms, at this second.
    fn in_the_way(stream: &TcpStream, second: u64) -> LegReading {
        let mut info = TcpInfo::read(stream.as_fd()).unwrap();
        let memory = buffers::memory(stream.as_fd()).unwrap();
        info.rcv_wnd = Some(memory.receive_buffer / 2);
        info.bytes_received = Some(second * 25_000_000);
        (info.rtt, info.rcv_rtt) = (600_000, 600_000);
        info.min_rtt = Some(600_000);
        let memory = Memory { receive_used: 0, ..memory };
        LegReading { id: 1, moves: None, info, memory }
    }

    const LOOKS: u64 = 8;

    /// Measures a leg several times after the kernel's tuning ended; its receive buffer before and after.
    async fn widened(room: bool, limits: [Limits; 2]) -> (Leg, u64, u64) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _other) = (Arc::new(stream), listener.accept().await.unwrap());
        let mut leg = Leg::new(
            &stream,
            None,
            &NewConnection { send: true, receive: true, ..NewConnection::default() },
            true,
        );
        let size = || u64::from(buffers::memory(stream.as_fd()).unwrap().receive_buffer);
        let before = size();
        for second in 0..LOOKS {
            let seen = in_the_way(&stream, second);
            let now = Time::ZERO + Span::from_secs(second);
            let refused = leg.widen(now, &seen, &limits, 64 << 20, |_| room);
            assert_eq!(refused, None, "what is not given is not asked for");
        }
        let after = size();
        (leg, before, after)
    }

    fn limits(unprivileged: u64) -> [Limits; 2] {
        [Limits { first: 16_384, tuned: 0, unprivileged }; 2]
    }

    #[tokio::test]
    async fn does_not_widen_without_room() {
        let most = Limits::of(Side::Receive).unprivileged;
        let (leg, before, after) = widened(false, limits(most)).await;
        assert!(!leg.is_widened(Side::Receive) && leg.given(Side::Receive).is_none());
        assert_eq!(before, after);
        let (leg, before, after) = widened(true, limits(most)).await;
        assert!(leg.is_widened(Side::Receive) && after > before, "{before} {after}");
    }

    /// A child of this test drops the capability, so that the kernel itself refuses.
    #[test]
    fn widens_up_to_the_unprivileged_limit() {
        if Capabilities::of_this_process().net_admin {
            let test = std::env::current_exe().unwrap();
            let name = "resources::leg::tests::widens_up_to_the_unprivileged_limit";
            let drop =
                ["--bounding-set=-net_admin", "--inh-caps=-net_admin", "--ambient-caps=-all"];
            let ran = Command::new("setpriv").args(drop).arg(test).args(["--exact", name]).output();
            let ran = match ran {
                Ok(ran) => ran,
                Err(error) if std::env::var_os("CI").is_none() => {
                    return println!("SKIPPED: setpriv cannot be run: {error}");
                }
                Err(error) => panic!("setpriv cannot be run: {error}"),
            };
            let text = String::from_utf8_lossy(&ran.stdout);
            assert!(ran.status.success() && text.contains("1 passed"), "{text}");
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let real = Side::ALL.map(Limits::of);
        let tuned = |mut limits: Limits| {
            limits.tuned = 0;
            limits
        };
        let (leg, before, after) = runtime.block_on(widened(true, real.map(tuned)));
        let most = real[Side::Receive as usize].unprivileged;
        if most > before {
            // each measurement but the first wants twice as much
            assert_eq!(after, most.min(before << (LOOKS - 1)));
            assert!(leg.is_widened(Side::Receive));
        } else {
            assert_eq!(after, before, "asking would have cut what there is");
            assert!(!leg.is_widened(Side::Receive) && leg.given(Side::Receive).is_none());
        }
    }
}
