//! Relays questions to a resolver on the machine's loopback, which a namespace of its own cannot reach.

use ekiden_linux::namespaces::netns::Netns;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const PORT: u16 = 53;
/// How long an answer is waited for, as resolvers do.
const PATIENCE: Duration = Duration::from_secs(5);
/// Questions asked at once.
const MOST: usize = 64;
/// EDNS0's usual limit is 4096; a datagram of DNS is never longer than this.
const LARGEST: usize = 65_535;

/// Passes questions on until dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    stop: Arc<AtomicBool>,
}

/// The namespace in which the resolver is, where it listens, and how many are being asked.
#[derive(Debug)]
struct Asking {
    resolver: SocketAddr,
    netns: Netns,
    /// Who may ask: else the machine would resolve names for its neighbours, too.
    asker: IpAddr,
    at_once: AtomicUsize,
    stop: Arc<AtomicBool>,
}

impl Relay {
    /// Takes questions of `asker` on `listen`, port 53 of UDP and TCP, in `netns`, for the `resolver` there.
    pub(crate) fn start(
        netns: &Netns,
        listen: IpAddr,
        asker: IpAddr,
        resolver: IpAddr,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (datagrams, streams) = netns.run(|| {
            io::Result::Ok((UdpSocket::bind((listen, PORT))?, TcpListener::bind((listen, PORT))?))
        })??;
        datagrams.set_read_timeout(Some(Duration::from_millis(100)))?;
        streams.set_nonblocking(true)?;
        let asking = Arc::new(Asking {
            resolver: (resolver, PORT).into(),
            netns: netns.try_clone()?,
            asker,
            at_once: AtomicUsize::new(0),
            stop: Arc::clone(&stop),
        });
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let on_datagrams = Arc::clone(&asking);
        named("names, udp").spawn(move || take_datagrams(&Arc::new(datagrams), &on_datagrams))?;
        named("names, tcp").spawn(move || take_streams(&streams, &asking))?;
        Ok(Self { stop })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

impl Asking {
    /// Runs `f` on a thread unless too many are busy: a question without an answer is asked again.
    fn on_a_thread(self: &Arc<Self>, f: impl FnOnce(&Self) -> io::Result<()> + Send + 'static) {
        if self.at_once.fetch_add(1, Ordering::AcqRel) >= MOST {
            self.at_once.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        let this = Arc::clone(self);
        let spawned = std::thread::Builder::new().name("name".to_owned()).spawn(move || {
            // a resolver that does not answer is the asker's to notice, by its own patience
            let _: io::Result<()> = f(&this);
            this.at_once.fetch_sub(1, Ordering::AcqRel);
        });
        if spawned.is_err() {
            self.at_once.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn any(&self) -> SocketAddr {
        match self.resolver {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        }
    }
}

fn take_datagrams(socket: &Arc<UdpSocket>, asking: &Arc<Asking>) {
    let mut buffer = vec![0; LARGEST];
    while !asking.stopped() {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
        if from.ip() != asking.asker {
            continue;
        }
        let question = buffer[..length].to_vec();
        let back = Arc::clone(socket);
        asking.on_a_thread(move |asking| {
            let there = asking.netns.run(|| UdpSocket::bind(asking.any()))??;
            there.connect(asking.resolver)?;
            there.set_read_timeout(Some(PATIENCE))?;
            there.send(&question)?;
            let mut answer = vec![0; LARGEST];
            let length = there.recv(&mut answer)?;
            back.send_to(&answer[..length], from).map(drop)
        });
    }
}

fn take_streams(listener: &TcpListener, asking: &Arc<Asking>) {
    while !asking.stopped() {
        let Ok((stream, from)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        if from.ip() != asking.asker {
            continue;
        }
        asking.on_a_thread(move |asking| {
            stream.set_nonblocking(false)?;
            let resolver = asking.resolver;
            let there = asking.netns.run(|| TcpStream::connect_timeout(&resolver, PATIENCE))??;
            converse(stream, there)
        });
    }
}

/// One question and its answer, each with its length in front (RFC 1035 §4.2.2), as often as asked.
fn converse(mut here: TcpStream, mut there: TcpStream) -> io::Result<()> {
    for stream in [&here, &there] {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
    }
    loop {
        pass(&mut here, &mut there)?;
        pass(&mut there, &mut here)?;
    }
}

fn pass(from: &mut TcpStream, to: &mut TcpStream) -> io::Result<()> {
    let mut length = [0; 2];
    from.read_exact(&mut length)?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    from.read_exact(&mut message)?;
    to.write_all(&length)?;
    to.write_all(&message)
}
