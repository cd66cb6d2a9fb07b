//! The thread between the sockets and the TUN device.

use crate::engine::{Engine, Gate, Outbox, Way};
use crate::segments::split;
use crate::send_batch::SendBatch;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_linux::links::tun::{HEAD, LONGEST, Tun};
use ekiden_linux::sockets::datagram;
use ekiden_linux::sockets::receive_batch::{ReceiveBatch, merge};
use ekiden_model::units::Span;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;

/// Between two looks at the sessions' timers, as boringtun wants them.
const TICK: Span = Span::from_millis(250);
/// Datagrams, or packets, of one turn; then the others have theirs.
const IN_A_ROW: usize = 128;
/// After so many handshakes a turn takes no more datagrams: each takes as long as a hundred packets or so.
const HANDSHAKES_IN_A_ROW: u64 = 16;

/// A running door, until dropped.
#[derive(Debug)]
pub struct Door {
    shared: Arc<DoorState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct DoorState {
    engine: Mutex<Engine>,
    stop: AtomicBool,
    wake: OwnedFd,
    /// Datagrams that the kernel did not take.
    lost: AtomicU64,
    listen: Vec<SocketAddr>,
    /// Why the device cannot be read any more.
    broken: OnceLock<io::Error>,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum DoorError {
    #[error("cannot listen on {address} for WireGuard: {error}")]
    Listen { address: SocketAddr, error: io::Error },
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

impl Door {
    /// Listens at `addresses` and moves packets between there and the device. `[::]` is left out where the kernel has no
    /// IPv6, unless it is the only one. Errors: [`DoorError`]; nothing is left then.
    pub fn start(
        addresses: &[SocketAddr],
        tun: Tun,
        engine: Engine,
        gate: impl Gate + 'static,
    ) -> Result<Self, DoorError> {
        let sockets = open_all(addresses, |address| {
            let socket = datagram::open(address)?;
            datagram::allow_fragments(&socket)?;
            datagram::report_destinations(&socket)?;
            // merging saves work; without it they come one by one
            let _ = merge(&socket);
            Ok(socket)
        })?;
        let listen = sockets.iter().map(UdpSocket::local_addr).collect::<Result<_, _>>()?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = wake.map_err(io::Error::from)?;
        let (stop, lost) = (AtomicBool::new(false), AtomicU64::new(0));
        let (engine, broken) = (Mutex::new(engine), OnceLock::new());
        let shared = Arc::new(DoorState { engine, stop, wake, lost, listen, broken });
        let own = Arc::clone(&shared);
        let run = move || run(&own, &sockets, &tun, gate);
        let thread = std::thread::Builder::new().name("wireguard".into()).spawn(run)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Its state. The thread waits meanwhile.
    pub fn engine(&self) -> MutexGuard<'_, Engine> {
        locked(&self.shared.engine)
    }

    /// Where it listens.
    pub fn listen(&self) -> &[SocketAddr] {
        &self.shared.listen
    }

    /// Why nothing passes any more: the device is gone, or the thread has ended.
    pub fn ended(&self) -> Option<String> {
        let is_over = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        let why =
            || self.shared.broken.get().map_or_else(String::new, |error| format!(": {error}"));
        is_over.then(|| format!("the TUN device cannot be read any more{}", why()))
    }

    /// Datagrams that the kernel did not take, since the start.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.shared.wake, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A socket at each address that is not left out.
fn open_all(
    addresses: &[SocketAddr],
    open: impl Fn(SocketAddr) -> io::Result<UdpSocket>,
) -> Result<Vec<UdpSocket>, DoorError> {
    let (mut sockets, mut left_out) = (Vec::new(), None);
    for address in addresses.iter().copied() {
        let is_missing = |error: &io::Error| {
            let every = address.is_ipv6() && address.ip().is_unspecified();
            every && error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error())
        };
        match open(address) {
            Ok(socket) => sockets.push(socket),
            Err(error) if is_missing(&error) => left_out = Some((address, error)),
            Err(error) => return Err(DoorError::Listen { address, error }),
        }
    }
    match left_out {
        Some((address, error)) if sockets.is_empty() => Err(DoorError::Listen { address, error }),
        _ => Ok(sockets),
    }
}

/// The way out of the engine.
struct Out<'a> {
    sockets: &'a [UdpSocket],
    tun: &'a Tun,
    batch: SendBatch,
    lost: u64,
}

impl Outbox for Out<'_> {
    fn room(&mut self) -> &mut [u8] {
        self.batch.room()
    }

    fn send(&mut self, way: Way, length: usize) {
        self.batch.add(self.sockets, way, length);
    }

    fn deliver(&mut self, packet: &[u8]) {
        // the checksum stands, and nothing is merged
        self.lost += u64::from(self.tun.write(&[0; HEAD], packet).is_err());
    }
}

fn run(shared: &DoorState, sockets: &[UdpSocket], tun: &Tun, mut gate: impl Gate) {
    let mut out = Out { sockets, tun, batch: SendBatch::new(), lost: 0 };
    let mut received = ReceiveBatch::default();
    let (mut read, mut room) = (vec![0; LONGEST], Vec::with_capacity(2_048));
    let mut ticked = clock::now();
    while !shared.stop.load(Ordering::Acquire) {
        let left = TICK.as_nanos().saturating_sub(clock::now().since(ticked).as_nanos());
        wait(shared, sockets, tun, left);
        for (n, socket) in sockets.iter().enumerate() {
            take_datagrams(shared, (n, socket), &mut received, &mut gate, &mut out);
            out.batch.flush(sockets);
        }
        // without a device nothing is left to do, and it would be ready for ever
        if let Err(error) = take_packets(shared, tun, (&mut read, &mut room), &mut gate, &mut out) {
            let _ = shared.broken.set(error);
            return;
        }
        if clock::now().since(ticked) >= TICK {
            ticked = clock::now();
            locked(&shared.engine).on_tick(ticked, &mut gate, &mut out);
            out.batch.flush(sockets);
        }
        shared.lost.store(out.lost + out.batch.lost, Ordering::Relaxed);
    }
}

/// Sleeps until something comes, or for so many nanoseconds.
fn wait(shared: &DoorState, sockets: &[UdpSocket], tun: &Tun, nanos: u64) {
    let mut wanted =
        vec![PollFd::new(&shared.wake, PollFlags::IN), PollFd::new(tun, PollFlags::IN)];
    wanted.extend(
        sockets.iter().map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)),
    );
    let time = Timespec { tv_sec: 0, tv_nsec: nanos.min(999_999_999) as _ };
    // interrupted, or out of memory: the next turn asks again
    let _ = poll(&mut wanted, Some(&time));
}

fn take_datagrams(
    shared: &DoorState,
    (n, socket): (usize, &UdpSocket),
    received: &mut ReceiveBatch,
    gate: &mut impl Gate,
    out: &mut impl Outbox,
) {
    let (mut taken, mut handshakes) = (0, 0);
    while taken < IN_A_ROW && handshakes < HANDSHAKES_IN_A_ROW {
        let more = match received.receive(socket, IN_A_ROW - taken) {
            Ok(more) => more,
            // an ICMP error of an earlier datagram
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
            Err(_) => break,
        };
        let mut engine = locked(&shared.engine);
        let (now, before) = (clock::now(), engine.worked_on());
        for datagram in received.datagrams() {
            taken += 1;
            let way = Way { socket: n, to: datagram.from, here: datagram.here };
            engine.on_datagram(now, way, datagram.bytes, gate, out);
        }
        handshakes += engine.worked_on() - before;
        if !more {
            break;
        }
    }
}

/// Errors: the device is gone.
fn take_packets(
    shared: &DoorState,
    tun: &Tun,
    (read, room): (&mut [u8], &mut Vec<u8>),
    gate: &mut impl Gate,
    out: &mut Out<'_>,
) -> io::Result<()> {
    for _ in 0..IN_A_ROW {
        let length = match tun.read(read) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let mut engine = locked(&shared.engine);
        let now = clock::now();
        let each = |packet: &[u8]| engine.on_packet(now, packet, gate, out);
        split(read.get_mut(..length).unwrap_or_default(), room, each);
    }
    out.batch.flush(out.sockets);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::Header;
    use crate::keys::PrivateKey;
    use crate::peer::PeerSettings;
    use boringtun::noise::{Tunn, TunnResult};
    use ekiden_model::units::Time;
    use std::net::Ipv4Addr;

    struct Nowhere(Vec<u8>);

    impl Outbox for Nowhere {
        fn room(&mut self) -> &mut [u8] {
            &mut self.0
        }
        fn send(&mut self, _: Way, _: usize) {}
        fn deliver(&mut self, _: &[u8]) {}
    }

    struct Open;

    impl Gate for Open {
        fn passes(&mut self, _: Time, _: &PeerSettings, _: bool, _: &Header) -> bool {
            true
        }
        fn on_tick(&mut self, _: Time) {}
    }

    #[test]
    fn a_door_opens_without_the_ipv6_that_the_kernel_does_not_have() {
        let four = |address: SocketAddr| match address.is_ipv4() {
            true => UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)),
            false => Err(Errno::AFNOSUPPORT.into()),
        };
        let opened = |texts: &[&str]| {
            let addresses: Vec<SocketAddr> = texts.iter().map(|at| at.parse().unwrap()).collect();
            open_all(&addresses, four).map(|sockets| sockets.len())
        };
        assert_eq!(opened(&["0.0.0.0:51820", "[::]:51820"]).unwrap(), 1);
        // an address of its own is meant, and nobody would come in by none
        for none in [&["0.0.0.0:51820", "[fd77::1]:51820"][..], &["[::]:51820"]] {
            let why = opened(none).unwrap_err().to_string();
            assert!(why.starts_with("cannot listen on [") && why.contains(none[none.len() - 1]));
        }
    }

    #[test]
    fn a_turn_has_few_handshakes_and_the_rest_come_in_the_next() {
        let engine = Engine::new(PrivateKey::generate().unwrap());
        let (own, relay) = (PrivateKey::generate().unwrap(), engine.public());
        let mut stranger = Tunn::new(own.secret(), relay.half(), None, None, 7, None);
        let mut room = vec![0; 2_000];
        let TunnResult::WriteToNetwork(begin) =
            stranger.format_handshake_initiation(&mut room, true)
        else {
            panic!("no handshake");
        };
        let socket = datagram::open("127.0.0.1:0".parse().unwrap()).unwrap();
        for n in 0..80 {
            let from = UdpSocket::bind((Ipv4Addr::new(127, 0, 1, n), 0)).unwrap();
            from.send_to(begin, socket.local_addr().unwrap()).unwrap();
        }
        let shared = DoorState {
            engine: Mutex::new(engine),
            stop: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
            lost: AtomicU64::new(0),
            listen: Vec::new(),
            broken: OnceLock::new(),
        };
        let (mut received, mut out) = (ReceiveBatch::default(), Nowhere(vec![0; 65_567]));
        let mut done = 0;
        while done < 80 {
            take_datagrams(&shared, (0, &socket), &mut received, &mut Open, &mut out);
            let all = locked(&shared.engine).worked_on();
            assert!(all - done <= HANDSHAKES_IN_A_ROW, "{} in one turn", all - done);
            done = all;
        }
    }
}
