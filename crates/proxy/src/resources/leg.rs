//! One leg whose buffers are managed: looked at, given sizes, given back.

use crate::settings;
use ekiden_linux::bpf::Control;
use ekiden_linux::buffers::{self, Limits, Memory};
use ekiden_linux::facts::Capabilities;
use ekiden_linux::socket;
use ekiden_linux::tcp_info::TcpInfo;
use ekiden_model::buffers::{
    CUBIC, Change, Facts, Grant, Looked, Open, RENO, Side, Widen, Widening,
};
use ekiden_model::units::{Bytes, Rate, Span, Time};
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::{Arc, LazyLock, Weak};
use tokio::net::TcpStream;

/// The kernel counts two bytes of buffer for one of payload, and doubles what it is passed.
const OVERHEAD: u64 = 2;

/// A size as the kernel counts, of a grant in payload bytes.
pub(super) const fn counted(payload: Bytes) -> Bytes {
    Bytes::new(payload.as_u64().saturating_mul(OVERHEAD))
}

/// Payload bytes of a size as the kernel counts.
pub(super) const fn payload(counted: Bytes) -> Bytes {
    Bytes::new(counted.as_u64() / OVERHEAD)
}

/// What the manager keeps of one leg. It does not keep the socket open.
#[derive(Debug)]
pub(super) struct Leg {
    stream: Weak<TcpStream>,
    /// Where a connection was made to from here; `None` of a client's.
    pub(super) to: Option<SocketAddr>,
    /// Whether nobody uses it; then it is not looked at.
    pub(super) idle: bool,
    /// Which of its buffers are shared out, the leg's profile leaving them to us.
    shared: [bool; 2],
    /// The size that was asked for and the one there is, where it is explicit.
    given: [Option<(u64, u32)>; 2],
    widening: Widening,
}

/// What one look saw.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    info: TcpInfo,
    memory: Memory,
}

/// A size that the kernel did not give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) side: Side,
    pub(super) given: u32,
}

/// A look at a leg's socket, two system calls; `None` once it is closed.
pub(super) fn look(stream: &Weak<TcpStream>) -> Option<Seen> {
    let stream = stream.upgrade()?;
    let info = TcpInfo::read(stream.as_fd()).ok()?;
    Some(Seen { info, memory: buffers::memory(stream.as_fd()).ok()? })
}

/// How a profile's leg is opened: what it sets itself stays its own.
pub(super) fn open(stream: &TcpStream, profile: &settings::Leg) -> Open {
    let gamma = match socket::congestion(stream.as_fd()).unwrap_or_default().as_str() {
        "cubic" => CUBIC,
        // its window is twice what it measures
        "bbr" => 2.0,
        _ => RENO,
    };
    let options = &profile.socket;
    Open {
        gamma,
        send: options.send_buffer.is_none(),
        receive: leaves_receive(profile),
        ..Open::default()
    }
}

/// From this round trip on HyStart takes 16 ms of waiting for a full queue (RFC 9406 §4 has an eighth of the round
/// trip, and no more than that), while the bursts that cause it grow with the path.
const LONG: Span = Span::from_millis(128);

/// Has the kernel spread what is sent over a long path, unless its congestion control does so by itself.
pub(super) fn spread(stream: &TcpStream, profile: &settings::Leg) {
    let congestion = || socket::congestion(stream.as_fd()).unwrap_or_default();
    let path = || TcpInfo::read(stream.as_fd()).ok()?.min_rtt_us();
    let asked = profile.spread && profile.socket.pace.is_none();
    if asked
        && is_long(path())
        && !congestion().starts_with("bbr")
        && let Err(error) = socket::spread(stream.as_fd())
    {
        tracing::debug!(%error, "what is sent cannot be spread over the round trip");
    }
}

/// Whether a path of this round trip, in microseconds, is a long one.
fn is_long(path: Option<u32>) -> bool {
    path.is_some_and(|us| Span::from_micros(us.into()) >= LONG)
}

/// Whether a leg's profile leaves its receive buffer and window to us.
pub(super) const fn leaves_receive(profile: &settings::Leg) -> bool {
    profile.socket.receive_buffer.is_none() && profile.socket.window_clamp.is_none()
}

/// The most that a buffer can be set to.
fn most(limits: Limits) -> u64 {
    static PRIVILEGED: LazyLock<bool> = LazyLock::new(|| Capabilities::of_this_process().net_admin);
    if *PRIVILEGED { u64::MAX } else { limits.unprivileged }
}

impl Leg {
    pub(super) fn new(stream: &Arc<TcpStream>, to: Option<SocketAddr>, open: &Open) -> Self {
        Self {
            stream: Arc::downgrade(stream),
            to,
            idle: false,
            shared: [open.send, open.receive],
            given: [None; 2],
            widening: Widening::default(),
        }
    }

    /// The profile is another one now: what that sets is its own.
    pub(super) fn become_other(&mut self, open: &Open) {
        self.shared = [open.send, open.receive];
        self.given = [None; 2];
        self.widening.on_given_back();
    }

    pub(super) const fn stream(&self) -> &Weak<TcpStream> {
        &self.stream
    }

    /// What this side was asked to have and has, where that is explicit.
    pub(super) const fn given(&self, side: Side) -> Option<(u64, u32)> {
        self.given[side as usize]
    }

    pub(super) const fn is_shared(&self, side: Side) -> bool {
        self.shared[side as usize]
    }

    pub(super) const fn is_widened(&self, side: Side) -> bool {
        self.widening.is_widened(side)
    }

    /// Gives a buffer what was decided.
    pub(super) fn apply(&mut self, change: Change, limits: &[Limits; 2]) -> Option<Refused> {
        let Change { side, grant, .. } = change;
        match grant {
            Grant::Bytes(bytes) => self.set(side, counted(bytes).as_u64()),
            Grant::Automatic => {
                // never smaller by being given back: what is queued may need it
                let now = self.given[side as usize].take()?.1;
                let size = limits[side as usize].first.max(u64::from(now));
                self.release(side, size);
                None
            }
        }
    }

    /// Lets a buffer grow beyond the kernel's tuning where that stands in the way, or gives it back.
    /// Answers what it may have then, all of it counted; `room` says whether so much more is there.
    pub(super) fn widen(
        &mut self,
        now: Time,
        seen: &Seen,
        limits: &[Limits; 2],
        ceiling: u64,
        mut room: impl FnMut(u64) -> bool,
    ) -> Option<Refused> {
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
                    // without the privilege more is not given, and asking would cut what tuning gave
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

    /// Whether its congestion control is ours that holds a rate, which then is its pace.
    fn holds_rate(&self) -> bool {
        let congestion = |stream: &Arc<TcpStream>| socket::congestion(stream.as_fd());
        self.stream.upgrade().is_some_and(|stream| {
            congestion(&stream).is_ok_and(|name| Control::called(&name) == Some(Control::Hold))
        })
    }

    /// Nobody uses it: what was widened is given back.
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

    fn set(&mut self, side: Side, bytes: u64) -> Option<Refused> {
        let stream = self.stream.upgrade()?;
        let given = buffers::set(stream.as_fd(), side, bytes).ok()?;
        self.given[side as usize] = Some((bytes, given));
        (u64::from(given) < bytes).then_some(Refused { side, given })
    }

    fn release(&self, side: Side, bytes: u64) {
        if let Some(stream) = self.stream.upgrade()
            && let Err(error) = buffers::release(stream.as_fd(), side, Some(bytes))
        {
            // before Linux 5.14: it stays at the first size
            tracing::debug!(%error, "a {side} buffer cannot be given back to the kernel");
        }
    }
}

impl Seen {
    /// As the allocator is told: in payload bytes.
    pub(super) fn facts(&self) -> Facts {
        let Self { info, memory } = self;
        let micros = |n: u32| Span::from_micros(n.into());
        let unread = u64::from(memory.used(Side::Receive)) / OVERHEAD;
        Facts {
            rtt: micros(info.rtt),
            rto: micros(info.rto),
            backoff: info.backoff.into(),
            mss: info.snd_mss.into(),
            send_window: info.snd_wnd.map(u64::from),
            segments_sent: info.data_segs_out.unwrap_or_default().into(),
            retransmitted: info.total_retrans.into(),
            spurious: info.dsack_dups.unwrap_or_default().into(),
            busy: Span::from_micros(info.busy_time.unwrap_or_default()),
            buffer_limited: info.sndbuf_limited.map(Span::from_micros),
            bytes_received: info.bytes_received.unwrap_or_default(),
            queued: u64::from(memory.used(Side::Send)) / OVERHEAD,
            unread,
            // a pump reads at once unless its sink is full
            held_back: unread > 0,
        }
    }

    fn looked(&self) -> Looked {
        let Self { info, memory } = self;
        let half = memory.size(Side::Receive) / 2;
        // the receiver's own estimate, where data comes in and nothing goes out to measure by
        let rtt = if info.rcv_rtt > 0 { info.rcv_rtt } else { info.rtt };
        Looked {
            send_size: memory.size(Side::Send).into(),
            send_used: memory.used(Side::Send).into(),
            busy: Span::from_micros(info.busy_time.unwrap_or_default()),
            limited: Span::from_micros(info.sndbuf_limited.unwrap_or_default()),
            sent: info.bytes_acked.unwrap_or_default(),
            held: 0,
            receive_size: memory.size(Side::Receive).into(),
            receive_used: memory.used(Side::Receive).into(),
            window: info.rcv_wnd.filter(|window| *window > 0).unwrap_or(half).into(),
            received: info.bytes_received.unwrap_or_default(),
            rtt: Span::from_micros(rtt.into()),
            path: Span::from_micros(info.min_rtt_us().unwrap_or_default().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A receive buffer that stands in the way of 200 Mbit/s × 600 ms, looked at in this second.
    fn in_the_way(stream: &TcpStream, second: u64) -> Seen {
        let mut info = TcpInfo::read(stream.as_fd()).unwrap();
        let memory = buffers::memory(stream.as_fd()).unwrap();
        info.rcv_wnd = Some(memory.receive_buffer / 2);
        info.bytes_received = Some(second * 25_000_000);
        (info.rtt, info.rcv_rtt) = (600_000, 600_000);
        info.min_rtt = Some(600_000);
        Seen { info, memory: Memory { receive_used: 0, ..memory } }
    }

    const LOOKS: u64 = 8;

    /// Some looks at a leg whose kernel is done with tuning; what its receive buffer was and is.
    async fn widened(room: bool, limits: [Limits; 2]) -> (Leg, u64, u64) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _other) = (Arc::new(stream), listener.accept().await.unwrap());
        let mut leg =
            Leg::new(&stream, None, &Open { send: true, receive: true, ..Open::default() });
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
    async fn without_room_nothing_is_widened_nor_said_to_be() {
        let most = Limits::of(Side::Receive).unprivileged;
        let (leg, before, after) = widened(false, limits(most)).await;
        assert!(!leg.is_widened(Side::Receive) && leg.given(Side::Receive).is_none());
        assert_eq!(before, after);
        let (leg, before, after) = widened(true, limits(most)).await;
        assert!(leg.is_widened(Side::Receive) && after > before, "{before} {after}");
    }

    /// The capability is taken from a child of this test, so that the kernel itself says no.
    #[test]
    fn without_the_privilege_it_goes_as_far_as_the_kernel_lets_everybody() {
        if Capabilities::of_this_process().net_admin {
            let test = std::env::current_exe().unwrap();
            let name = "resources::leg::tests::without_the_privilege_it_goes_as_far_as_the_kernel_lets_everybody";
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
            let said = String::from_utf8_lossy(&ran.stdout);
            assert!(ran.status.success() && said.contains("1 passed"), "{said}");
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
            // twice as much was wanted at each look but the first
            assert_eq!(after, most.min(before << (LOOKS - 1)));
            assert!(leg.is_widened(Side::Receive));
        } else {
            assert_eq!(after, before, "asking would have cut what there is");
            assert!(!leg.is_widened(Side::Receive) && leg.given(Side::Receive).is_none());
        }
    }
}
