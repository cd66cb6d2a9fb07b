//! Asking a socket for what its leg's profile says, and reading back what was granted.
//!
//! An option that was not asked for costs nothing: no system call, no memory; but for a look at the congestion
//! control that may have been inherited. One that was costs a set and a get (buffers and DSCP one or two more), and
//! takes memory only when it was not granted exactly as asked.

use crate::answer::{Granted, Outcomes, Stage};
use crate::bpf::{Control, Group};
use crate::key::Key;
use crate::options::SocketOptions;
use crate::read_back::local_address;
use crate::refusal::Refusal;
use crate::sockopt::{self, Errno};
use crate::sysctl;
use crate::tcp_info::TcpInfo;
use ekiden_model::scheduler::Lane;
use ekiden_model::units::{Bytes, Span};
use libc::{AF_INET6, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_MPTCP, IPPROTO_TCP, SOL_SOCKET, c_int};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

/// Connections that may wait in a listening socket's Fast Open queue; more are asked for a cookie
/// again and lose a round trip, nothing else.
const FAST_OPEN_QUEUE: c_int = 256;

/// Values that the kernel keeps in clock ticks may come back so much larger: one tick at HZ = 100.
const TICK_US: u64 = 10_000;

impl SocketOptions {
    /// A TCP socket (Multipath TCP if asked and there is any), non-blocking, closed on exec, with these
    /// options applied: with [`Stage::Connecting`] ready to connect, with [`Stage::Listening`] ready
    /// to bind and listen.
    ///
    /// # Errors
    /// When no socket can be made at all: no descriptors or memory left, or no such address family.
    /// An option that is refused is an outcome and never an error.
    pub fn new_stream_socket(&self, ipv6: bool, stage: Stage) -> io::Result<(Socket, Outcomes)> {
        let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
        let mut refused = None;
        let mut socket = None;
        if self.mptcp == Some(true) {
            match stream(domain, Protocol::from(IPPROTO_MPTCP)) {
                Ok(made) => socket = Some(made),
                // out of descriptors or memory: plain TCP will say so below
                Err(error) => refused = error.raw_os_error(),
            }
        }
        let socket = match socket {
            Some(socket) => socket,
            None => stream(domain, Protocol::TCP)?,
        };
        let outcomes = self.apply_to(socket.as_fd(), stage, refused);
        Ok((socket, outcomes))
    }

    /// A UDP socket, non-blocking, closed on exec, with those of these options applied that say which way
    /// packets go and how they are marked: mark, device, source, DSCP. It may be unbound yet.
    ///
    /// # Errors
    /// As for a stream socket. An option that is refused is an outcome and never an error.
    pub fn new_datagram_socket(&self, ipv6: bool) -> io::Result<(Socket, Outcomes)> {
        let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
        let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        if ipv6 {
            socket.set_only_v6(true)?;
        }
        let way = Self {
            mark: self.mark,
            device: self.device.clone(),
            source: self.source,
            dscp: self.dscp,
            ..Self::default()
        };
        let outcomes = way.apply_to(socket.as_fd(), Stage::Connecting, None);
        Ok((socket, outcomes))
    }

    /// Applies every option that was asked for to a TCP socket. Nothing is dropped: what makes no sense
    /// at this stage is reported with what the socket has instead. Options are applied at every stage
    /// where they do anything, so give one leg's options to the listening socket and again to what it
    /// accepts.
    #[must_use]
    pub fn apply(&self, fd: BorrowedFd<'_>, stage: Stage) -> Outcomes {
        self.apply_to(fd, stage, None)
    }

    fn apply_to(&self, fd: BorrowedFd<'_>, stage: Stage, no_mptcp: Option<Errno>) -> Outcomes {
        let mut to = Applier { fd, stage, outcomes: Outcomes::new(stage) };
        to.multipath(self.mptcp, no_mptcp);
        // where packets go comes first: binding looks at device and mark
        if let Some(mark) = self.mark {
            to.int(Key::Mark, mark as c_int, u64::from(mark));
        }
        if let Some(device) = &self.device {
            to.device(device);
        }
        if let Some(source) = self.source {
            to.source(source);
        }
        to.congestion(&self.congestion, self.rate.as_ref());
        if let Some(pace) = self.pace {
            to.pace(pace.as_bits_per_second());
        }
        if let Some(size) = self.unsent_low_water {
            to.int(Key::UnsentLowWater, clamped(size.as_u64()), size.as_u64());
        }
        if let Some(size) = self.send_buffer {
            to.buffer(Key::SendBuffer, libc::SO_SNDBUFFORCE, size);
        }
        if let Some(size) = self.receive_buffer {
            to.buffer(Key::ReceiveBuffer, libc::SO_RCVBUFFORCE, size);
        }
        // after the receive buffer, which the clamp is bounded by
        if let Some(size) = self.window_clamp {
            to.window_clamp(size.as_u64());
        }
        if let Some(lock) = self.lock_buffers {
            to.lock_buffers(lock, self.send_buffer.is_some(), self.receive_buffer.is_some());
        }
        if let Some(dscp) = self.dscp {
            to.dscp(dscp);
        }
        if let Some(mss) = self.mss {
            to.mss(mss);
        }
        if let Some(count) = self.syn_count {
            match stage {
                Stage::Accepted => to.not_here(Key::SynCount, Refusal::NotOnAccepted),
                // on a listening socket it counts retransmissions of the SYN-ACK
                _ => to.int(Key::SynCount, c_int::from(count), u64::from(count)),
            }
        }
        to.times(self);
        if let Some(on) = self.no_delay {
            to.int(Key::NoDelay, c_int::from(on), u64::from(on));
        }
        if let Some(on) = self.fast_open {
            to.fast_open(on);
        }
        to.outcomes
    }
}

fn stream(domain: Domain, protocol: Protocol) -> io::Result<Socket> {
    // `Socket::new` sets close-on-exec; both flags in the one system call
    Socket::new(domain, Type::STREAM.nonblocking(), Some(protocol))
}

/// As an `int`, at most the largest.
fn clamped(value: u64) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

struct Applier<'a> {
    fd: BorrowedFd<'a>,
    stage: Stage,
    outcomes: Outcomes,
}

impl Applier<'_> {
    fn refuse(&mut self, key: Key, errno: Errno) {
        self.outcomes.push(key, Granted::Nothing, Some(Refusal::Errno(errno)));
    }

    fn not_here(&mut self, key: Key, why: Refusal) {
        self.outcomes.push(key, Granted::Nothing, Some(why));
    }

    /// Sets one plain `int` and reads it back; `asked` is the value in the option's own unit.
    fn int(&mut self, key: Key, value: c_int, asked: u64) {
        self.int_or(key, value, asked, Refusal::Adjusted);
    }

    fn int_or(&mut self, key: Key, value: c_int, asked: u64, why: Refusal) {
        let Some((level, name)) = key.place() else { return };
        match sockopt::set_int(self.fd, level, name, value)
            .and_then(|()| sockopt::get_int(self.fd, level, name))
        {
            Err(errno) => self.refuse(key, errno),
            Ok(got) => self.compare(key, asked, u64::from(got as u32), why),
        }
    }

    fn compare(&mut self, key: Key, asked: u64, got: u64, why: Refusal) {
        if got == asked {
            self.outcomes.granted_as_asked(key);
        } else {
            self.outcomes.push(key, Granted::Number(got), Some(why));
        }
    }

    fn multipath(&mut self, asked: Option<bool>, errno: Option<Errno>) {
        let Some(asked) = asked else { return };
        if let Some(errno) = errno {
            return self.outcomes.push(Key::Mptcp, Granted::Number(0), Some(Refusal::Errno(errno)));
        }
        match sockopt::get_int(self.fd, SOL_SOCKET, libc::SO_PROTOCOL) {
            Err(errno) => self.refuse(Key::Mptcp, errno),
            Ok(protocol) => {
                let got = u64::from(protocol == IPPROTO_MPTCP);
                self.compare(Key::Mptcp, u64::from(asked), got, Refusal::NotMultipath);
            }
        }
    }

    fn device(&mut self, device: &str) {
        if self.stage != Stage::Accepted {
            let name = libc::SO_BINDTODEVICE;
            if let Err(errno) = sockopt::set_bytes(self.fd, SOL_SOCKET, name, device.as_bytes()) {
                return self.refuse(Key::Device, errno);
            }
        }
        match sockopt::get_text(self.fd, SOL_SOCKET, libc::SO_BINDTODEVICE) {
            Err(errno) => self.refuse(Key::Device, errno),
            Ok(got) if got == device => self.outcomes.granted_as_asked(Key::Device),
            Ok(got) if got.is_empty() => self.not_here(Key::Device, Refusal::SetOnListener),
            Ok(got) => self.outcomes.push(
                Key::Device,
                Granted::Name(got.into()),
                Some(Refusal::SetOnListener),
            ),
        }
    }

    fn source(&mut self, source: IpAddr) {
        match self.stage {
            Stage::Listening => return self.not_here(Key::Source, Refusal::NotOnListener),
            Stage::Accepted => {
                return match local_address(self.fd) {
                    Some(local) if local == source => {
                        self.outcomes.granted_as_asked(Key::Source);
                    }
                    Some(local) => self.outcomes.push(
                        Key::Source,
                        Granted::Address(local),
                        Some(Refusal::NotOnAccepted),
                    ),
                    None => self.not_here(Key::Source, Refusal::NotOnAccepted),
                };
            }
            Stage::Connecting => {}
        }
        if self.is_ipv6() != source.is_ipv6() {
            return self.not_here(Key::Source, Refusal::OtherFamily);
        }
        // the port is chosen on connect, where only the four-tuple must be free; a kernel without the
        // option (before 4.2) chooses one now
        let _ = sockopt::set_int(self.fd, IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
        if let Err(error) = SockRef::from(&self.fd).bind(&SocketAddr::new(source, 0).into()) {
            return self.refuse(Key::Source, error.raw_os_error().unwrap_or(libc::EINVAL));
        }
        match local_address(self.fd) {
            Some(local) if local == source => self.outcomes.granted_as_asked(Key::Source),
            other => self.outcomes.push(
                Key::Source,
                other.map_or(Granted::Nothing, Granted::Address),
                Some(Refusal::Adjusted),
            ),
        }
    }

    fn is_ipv6(&self) -> bool {
        sockopt::get_int(self.fd, SOL_SOCKET, libc::SO_DOMAIN) == Ok(AF_INET6)
    }

    /// The first that is granted. One that holds a rate is only where the socket has a part of it.
    fn congestion(&mut self, names: &[String], group: Option<&Group>) {
        let mut refused: Vec<(u8, Refusal)> = Vec::new();
        let mut granted = None;
        let mut held = Err(Refusal::NotHeld);
        for (nth, name) in names.iter().enumerate() {
            let Ok(nth) = u8::try_from(nth) else {
                refused.push((u8::MAX, Refusal::TooMany));
                break;
            };
            let done = match group.filter(|group| group.control() == name) {
                Some(group) => {
                    held = self.hold(group);
                    held
                }
                None => self.choose(name),
            };
            match done {
                Ok(()) => {
                    granted = Some((nth, name));
                    break;
                }
                Err(why) => refused.push((nth, why)),
            }
        }
        if granted.is_none() && self.stage != Stage::Connecting {
            self.leave();
        }
        if group.is_some() {
            match held {
                Ok(()) => self.outcomes.granted_as_asked(Key::Rate),
                Err(why) => self.not_here(Key::Rate, why),
            }
        }
        if names.is_empty() {
            return;
        }
        let got = sockopt::get_text(self.fd, IPPROTO_TCP, libc::TCP_CONGESTION)
            .map_or(Granted::Nothing, |name| Granted::Name(name.into()));
        let last = refused.len().saturating_sub(1);
        for (i, (nth, why)) in refused.into_iter().enumerate() {
            // when none was granted, the last line says what the socket has instead
            let instead =
                if granted.is_none() && i == last { got.clone() } else { Granted::Nothing };
            self.outcomes.push_nth(Key::Congestion, nth, instead, Some(why));
        }
        if let Some((nth, name)) = granted {
            match got {
                Granted::Name(got) if *got == **name => {
                    self.outcomes.granted_nth(Key::Congestion, nth);
                }
                got => {
                    self.outcomes.push_nth(Key::Congestion, nth, got, Some(Refusal::Adjusted));
                }
            }
        }
    }

    fn choose(&self, name: &str) -> Result<(), Refusal> {
        sockopt::set_bytes(self.fd, IPPROTO_TCP, libc::TCP_CONGESTION, name.as_bytes())
            .map_err(Refusal::Errno)
    }

    /// Gives the socket its part, then the congestion control: without the one the other sends ten packets a round trip.
    fn hold(&self, group: &Group) -> Result<(), Refusal> {
        if sockopt::get_int(self.fd, SOL_SOCKET, libc::SO_PROTOCOL) != Ok(IPPROTO_TCP) {
            return Err(Refusal::NotHeld);
        }
        if !group.is_current() {
            return Err(Refusal::Replaced);
        }
        // those that are accepted join one by one; what is new is short until it has shown otherwise
        if self.stage != Stage::Listening {
            let joined = group.join(self.fd, 1, Lane::Interactive);
            joined.map_err(|error| Refusal::Errno(error.raw_os_error().unwrap_or(libc::ENOMEM)))?;
        }
        self.choose(group.control())
    }

    /// A program of ours that the socket inherited and that this leg does not ask for, or not with a part of a rate,
    /// gives way to the system's default.
    fn leave(&self) {
        let got = sockopt::get_text(self.fd, IPPROTO_TCP, libc::TCP_CONGESTION);
        let Some(ours) = got.ok().filter(|name| Control::is_ours(name)) else { return };
        let default = sysctl::read("net.ipv4.tcp_congestion_control");
        // reno is in every kernel
        for name in default.iter().map(String::as_str).chain(["reno"]) {
            if name == ours || self.choose(name).is_ok() {
                return;
            }
        }
    }

    fn pace(&mut self, bits_per_second: u64) {
        let bytes = bits_per_second / 8;
        if bytes == 0 {
            return self.not_here(Key::Pace, Refusal::NoPace);
        }
        match sockopt::set_pace(self.fd, bytes).and_then(|()| sockopt::get_pace(self.fd)) {
            Err(errno) => self.refuse(Key::Pace, errno),
            Ok(got) if got == bytes && bits_per_second.is_multiple_of(8) => {
                self.outcomes.granted_as_asked(Key::Pace);
            }
            Ok(got) => {
                let why = (got != bytes).then_some(Refusal::Adjusted);
                self.outcomes.push(Key::Pace, Granted::Number(got), why);
            }
        }
    }

    fn buffer(&mut self, key: Key, force: c_int, size: Bytes) {
        let Some((level, name)) = key.place() else { return };
        let read = |fd| sockopt::get_int(fd, level, name).map(|got| u64::from(got as u32));
        let accepted_with_window = self.stage == Stage::Accepted && key == Key::ReceiveBuffer;
        if accepted_with_window && read(self.fd) == Ok(size.as_u64()) {
            return self.outcomes.granted_as_asked(key); // inherited, window scale and all
        }
        // Linux doubles what it is given, to account for its own overhead
        let half = clamped(size.as_u64().div_ceil(2)).min(c_int::MAX / 2);
        let set = sockopt::set_int(self.fd, level, force, half)
            .or_else(|_| sockopt::set_int(self.fd, level, name, half));
        match set.and_then(|()| read(self.fd)) {
            Err(errno) => self.refuse(key, errno),
            Ok(got) if got == 2 * half as u64 && accepted_with_window => {
                self.outcomes.push(key, Granted::Number(got), Some(Refusal::ScaleSettled));
            }
            // an odd size is rounded up to an even one
            Ok(got) if got == size.as_u64() + 1 => {
                self.outcomes.push(key, Granted::Number(got), None);
            }
            Ok(got) => {
                let beyond = size.as_u64() > c_int::MAX as u64 - 1;
                let why =
                    if got > size.as_u64() || beyond { Refusal::Bound } else { Refusal::Capped };
                self.compare(key, size.as_u64(), got, why);
            }
        }
    }

    /// Linux (measured on 6.18) moves the clamp with the buffer as data arrives. What lasts is the
    /// window's scale, settled by the clamp in the handshake: the window stays below twice the clamp.
    fn window_clamp(&mut self, size: u64) {
        let largest = (self.stage == Stage::Accepted)
            .then(|| TcpInfo::read(self.fd).ok())
            .flatten()
            .map_or(0, |info| 65_535_u64 << info.rcv_wscale);
        if largest < size.max(65_536).saturating_mul(2) {
            return self.int(Key::WindowClamp, clamped(size), size);
        }
        match sockopt::set_int(self.fd, IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, clamped(size))
            .and_then(|()| sockopt::get_int(self.fd, IPPROTO_TCP, libc::TCP_WINDOW_CLAMP))
        {
            Err(errno) => self.refuse(Key::WindowClamp, errno),
            Ok(got) => self.outcomes.push(
                Key::WindowClamp,
                Granted::Number(u64::from(got as u32)),
                Some(Refusal::ClampMoves),
            ),
        }
    }

    fn lock_buffers(&mut self, lock: bool, send: bool, receive: bool) {
        // SOCK_SNDBUF_LOCK is 1, SOCK_RCVBUF_LOCK is 2; with no buffer set here, as large as they are
        let bits = match (lock, send, receive) {
            (false, ..) => 0,
            (true, true, false) => 1,
            (true, false, true) => 2,
            (true, ..) => 3,
        };
        let (level, name) = (SOL_SOCKET, libc::SO_BUF_LOCK);
        match sockopt::set_int(self.fd, level, name, bits)
            .and_then(|()| sockopt::get_int(self.fd, level, name))
        {
            Err(errno) => self.refuse(Key::LockBuffers, errno),
            Ok(got) if got & bits == bits && (lock || got == 0) => {
                self.outcomes.granted_as_asked(Key::LockBuffers);
            }
            Ok(got) => self.outcomes.push(
                Key::LockBuffers,
                Granted::Number(u64::from(got != 0)),
                Some(Refusal::Adjusted),
            ),
        }
    }

    fn dscp(&mut self, dscp: u8) {
        if dscp > 63 {
            return self.refuse(Key::Dscp, libc::EINVAL);
        }
        let set = |level, name| {
            let ecn = sockopt::get_int(self.fd, level, name)? & 3;
            sockopt::set_int(self.fd, level, name, c_int::from(dscp) << 2 | ecn)?;
            Ok(u64::from(sockopt::get_int(self.fd, level, name)? as u32 >> 2))
        };
        let mut result = set(IPPROTO_IP, libc::IP_TOS);
        if self.is_ipv6() {
            // both, since an IPv6 socket may carry IPv4
            result = result.and(set(IPPROTO_IPV6, libc::IPV6_TCLASS));
        }
        match result {
            Err(errno) => self.refuse(Key::Dscp, errno),
            Ok(got) => self.compare(Key::Dscp, u64::from(dscp), got, Refusal::Adjusted),
        }
    }

    fn mss(&mut self, mss: u16) {
        if self.stage != Stage::Accepted {
            return self.int(Key::Mss, c_int::from(mss), u64::from(mss));
        }
        match sockopt::get_int(self.fd, IPPROTO_TCP, libc::TCP_MAXSEG) {
            Err(errno) => self.refuse(Key::Mss, errno),
            Ok(got) => {
                let got = u64::from(got as u32);
                // the segment in use: options (12 bytes of time stamps) or the peer may make it less
                let why = (got > u64::from(mss)).then_some(Refusal::SetOnListener);
                self.outcomes.push(Key::Mss, Granted::Number(got), why);
            }
        }
    }

    fn times(&mut self, options: &SocketOptions) {
        let millis = |span: Span| span.as_nanos().div_ceil(1_000_000);
        if let Some(span) = options.user_timeout {
            self.time(Key::UserTimeout, millis(span), 1_000, span);
        }
        if let Some(span) = options.rto_max {
            self.time(Key::RtoMax, millis(span), 1_000, span);
        }
        if let Some(span) = options.rto_min {
            self.time(Key::RtoMin, span.as_nanos().div_ceil(1_000), 1, span);
        }
        let seconds = |span: Span| span.as_nanos().div_ceil(1_000_000_000).max(1);
        let idle = options.keepalive_idle.map(seconds);
        let interval = options.keepalive_interval.map(seconds);
        if idle.is_none() && interval.is_none() && options.keepalive_count.is_none() {
            return;
        }
        let on = sockopt::set_int(self.fd, SOL_SOCKET, libc::SO_KEEPALIVE, 1);
        if let (Some(span), Some(seconds)) = (options.keepalive_idle, idle) {
            self.seconds(Key::KeepaliveIdle, seconds, span, on);
        }
        if let (Some(span), Some(seconds)) = (options.keepalive_interval, interval) {
            self.seconds(Key::KeepaliveInterval, seconds, span, on);
        }
        if let Some(count) = options.keepalive_count {
            match on {
                Ok(()) => self.int(Key::KeepaliveCount, c_int::from(count), u64::from(count)),
                Err(errno) => self.refuse(Key::KeepaliveCount, errno),
            }
        }
    }

    /// A time in `unit_us` microseconds each, kept by the kernel in clock ticks.
    fn time(&mut self, key: Key, value: u64, unit_us: u64, asked: Span) {
        let Some((level, name)) = key.place() else { return };
        match sockopt::set_int(self.fd, level, name, clamped(value))
            .and_then(|()| sockopt::get_int(self.fd, level, name))
        {
            Err(errno) => self.refuse(key, errno),
            Ok(got) => {
                let got = u64::from(got as u32);
                let got_us = got.saturating_mul(unit_us);
                if got_us.saturating_mul(1_000) == asked.as_nanos() {
                    return self.outcomes.granted_as_asked(key);
                }
                // rounding to the clock is no refusal, the value read back is told all the same
                let near = got_us.abs_diff(asked.as_micros()) <= TICK_US;
                let why = (!near).then_some(Refusal::Adjusted);
                self.outcomes.push(key, Granted::Number(got), why);
            }
        }
    }

    fn seconds(&mut self, key: Key, value: u64, asked: Span, on: Result<(), Errno>) {
        if let Err(errno) = on {
            return self.refuse(key, errno);
        }
        if value.saturating_mul(1_000_000_000) == asked.as_nanos() {
            return self.int(key, clamped(value), value);
        }
        // asked with a fraction: report what was made of it
        self.int_or(key, clamped(value), u64::MAX, Refusal::WholeSeconds);
    }

    fn fast_open(&mut self, on: bool) {
        match self.stage {
            Stage::Accepted => self.not_here(Key::FastOpen, Refusal::NotOnAccepted),
            Stage::Connecting => self.int(Key::FastOpen, c_int::from(on), u64::from(on)),
            Stage::Listening => {
                let queue = if on { FAST_OPEN_QUEUE } else { 0 };
                let (level, name) = (IPPROTO_TCP, libc::TCP_FASTOPEN);
                match sockopt::set_int(self.fd, level, name, queue)
                    .and_then(|()| sockopt::get_int(self.fd, level, name))
                {
                    Err(errno) => self.refuse(Key::FastOpen, errno),
                    // the kernel takes the queue and then never uses it without this bit
                    Ok(_)
                        if on && sysctl::number("net.ipv4.tcp_fastopen").unwrap_or(3) & 2 == 0 =>
                    {
                        self.outcomes.push(
                            Key::FastOpen,
                            Granted::Number(0),
                            Some(Refusal::FastOpenOff),
                        );
                    }
                    Ok(got) => self.compare(
                        Key::FastOpen,
                        u64::from(on),
                        u64::from(got > 0),
                        Refusal::Adjusted,
                    ),
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
