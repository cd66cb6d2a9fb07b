//! Applies the options of a leg's profile to a socket, and reads back what was granted.
//!
//! An unset option costs nothing, except for one look at an inherited congestion control. A set one
//! costs a set and, but for `TCP_NODELAY`, a get (buffers and DSCP one or two more), and memory only when it was not
//! granted exactly as requested. An accepted socket costs neither that look nor `TCP_NODELAY` where [`Inherited`] knows
//! what its listening socket gave it.

use crate::bpf::{Control, Group};
use crate::host::sysctl;
use crate::sockets::key::Key;
use crate::sockets::options::SocketOptions;
use crate::sockets::outcome::{Granted, Outcomes, Stage};
use crate::sockets::read_back::local_address;
use crate::sockets::refusal::Refusal;
use crate::sockets::sockopt::{self, Errno};
use crate::sockets::tcp_info::TcpInfo;
use ekiden_model::control::scheduler::Lane;
use ekiden_model::units::{Bytes, Span};
use libc::{AF_INET6, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_MPTCP, IPPROTO_TCP, SOL_SOCKET, c_int};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

pub use inherited::Inherited;

/// Waiting connections of a listening socket's Fast Open queue; more lose a round trip.
const FAST_OPEN_QUEUE: c_int = 256;

/// Values that the kernel keeps in clock ticks may come back so much larger: one tick at HZ = 100.
const TICK_US: u64 = 10_000;

impl SocketOptions {
    /// A TCP socket (Multipath TCP if asked and available), non-blocking, closed on exec, with
    /// these options, ready to connect or to bind and listen as `stage` says. Errors: no socket at
    /// all, for lack of descriptors, memory or the address family. A refused option is an outcome,
    /// never an error.
    pub fn new_stream_socket(&self, ipv6: bool, stage: Stage) -> io::Result<(Socket, Outcomes)> {
        let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
        let mut refused = None;
        let mut socket = None;
        if self.mptcp == Some(true) {
            match stream(domain, Protocol::from(IPPROTO_MPTCP)) {
                Ok(made) => socket = Some(made),
                // out of descriptors or memory: plain TCP will report it below
                Err(error) => refused = error.raw_os_error(),
            }
        }
        let socket = match socket {
            Some(socket) => socket,
            None => stream(domain, Protocol::TCP)?,
        };
        let outcomes = self.apply_to(socket.as_fd(), stage, refused, Inherited::default());
        Ok((socket, outcomes))
    }

    /// A UDP socket, non-blocking, closed on exec, unbound unless a source is set, with mark,
    /// device, source and DSCP. Errors: as for a stream socket.
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
        let outcomes = way.apply_to(socket.as_fd(), Stage::Connecting, None, Inherited::default());
        Ok((socket, outcomes))
    }

    /// Applies every set option to a TCP socket. An option without effect at this stage is reported
    /// with the socket's actual value. Give one leg's options to the listening socket and again to
    /// accepted ones: each applies wherever it has an effect.
    pub fn apply(&self, fd: BorrowedFd<'_>, stage: Stage) -> Outcomes {
        self.apply_to(fd, stage, None, Inherited::default())
    }

    /// The same for a socket as `accept` returned it, to which nothing was applied yet. What its
    /// listening socket gave it, as `inherited` says, costs no system call.
    pub fn apply_accepted(&self, fd: BorrowedFd<'_>, inherited: Inherited) -> Outcomes {
        self.apply_to(fd, Stage::Accepted, None, inherited)
    }

    fn apply_to(
        &self,
        fd: BorrowedFd<'_>,
        stage: Stage,
        no_mptcp: Option<Errno>,
        inherited: Inherited,
    ) -> Outcomes {
        let mut to = Applier { fd, stage, inherited, outcomes: Outcomes::new(stage) };
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
        if let Some(size) = self.notsent_lowat {
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
            to.no_delay(on);
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
    inherited: Inherited,
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
        match sockopt::set_and_get(self.fd, level, name, value) {
            Err(errno) => self.refuse(key, errno),
            Ok(got) => self.compare(key, asked, u64::from(got as u32), why),
        }
    }

    /// Not read back: no kernel grants anything else, and each connection has two of them.
    fn no_delay(&mut self, on: bool) {
        if self.inherited.no_delay == Some(on) {
            return self.outcomes.granted_as_asked(Key::NoDelay);
        }
        match sockopt::set_int(self.fd, IPPROTO_TCP, libc::TCP_NODELAY, c_int::from(on)) {
            Ok(()) => self.outcomes.granted_as_asked(Key::NoDelay),
            Err(errno) => self.refuse(Key::NoDelay, errno),
        }
    }

    fn compare(&mut self, key: Key, asked: u64, got: u64, why: Refusal) {
        if got == asked {
            self.outcomes.granted_as_asked(key);
        } else {
            self.number(key, got, why);
        }
    }

    fn number(&mut self, key: Key, got: u64, why: Refusal) {
        self.outcomes.push(key, Granted::Number(got), Some(why));
    }

    fn multipath(&mut self, asked: Option<bool>, errno: Option<Errno>) {
        let Some(asked) = asked else { return };
        if let Some(errno) = errno {
            return self.number(Key::Mptcp, 0, Refusal::Errno(errno));
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
            Ok(got) => {
                let name = Granted::Name(got.into());
                self.outcomes.push(Key::Device, name, Some(Refusal::SetOnListener));
            }
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
                    local => self.address(local, Refusal::NotOnAccepted),
                };
            }
            Stage::Connecting => {}
        }
        if self.is_ipv6() != source.is_ipv6() {
            return self.not_here(Key::Source, Refusal::OtherFamily);
        }
        // the port is chosen on connect; a kernel without the option (before 4.2) chooses one now
        let _ = sockopt::set_int(self.fd, IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
        if let Err(error) = SockRef::from(&self.fd).bind(&SocketAddr::new(source, 0).into()) {
            return self.refuse(Key::Source, error.raw_os_error().unwrap_or(libc::EINVAL));
        }
        match local_address(self.fd) {
            Some(local) if local == source => self.outcomes.granted_as_asked(Key::Source),
            local => self.address(local, Refusal::Adjusted),
        }
    }

    fn address(&mut self, local: Option<IpAddr>, why: Refusal) {
        let granted = local.map_or(Granted::Nothing, Granted::Address);
        self.outcomes.push(Key::Source, granted, Some(why));
    }

    fn is_ipv6(&self) -> bool {
        sockopt::get_int(self.fd, SOL_SOCKET, libc::SO_DOMAIN) == Ok(AF_INET6)
    }
}

mod buffers;
mod inherited;
mod rate;
mod tcp_options;
#[cfg(test)]
mod tests;
