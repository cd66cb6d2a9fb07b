//! Traffic between two hosts of a network.

use ekiden_emulator::topology::{Host, HostPlan, LinkPlan, Topology, TopologyPlan};
use ekiden_model::network::link::Config;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// A socket that received nothing for so long receives nothing more: longer than a busy machine
/// keeps a thread waiting.
const SILENCE: Duration = Duration::from_secs(3);

/// Two hosts, `a` and `b`, and a link.
pub(crate) fn two(forward: Config, backward: Config) -> TopologyPlan {
    let host = |name: &str| HostPlan { name: name.into(), ..HostPlan::default() };
    TopologyPlan {
        hosts: vec![host("a"), host("b")],
        links: vec![LinkPlan {
            name: "a-b".into(),
            between: ["a".into(), "b".into()],
            mtu: 1500,
            super_packets: false,
            one_by_one: false,
            forward,
            backward,
        }],
        processes: vec![],
    }
}

/// A listener on `host`.
pub(crate) fn listen(host: &Host, address: IpAddr) -> TcpListener {
    host.run(|| TcpListener::bind((address, 0))).unwrap().unwrap()
}

/// Sends `bytes` by TCP from `from` to `to` and says how many arrived; both close.
pub(crate) fn transfer(from: &Host, to: &Host, address: IpAddr, bytes: usize) -> usize {
    let listener = listen(to, address);
    let at: SocketAddr = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = vec![0; 1 << 16];
            let mut count = 0;
            loop {
                match stream.read(&mut buffer).unwrap() {
                    0 => return count,
                    n => count += n,
                }
            }
        });
        let mut stream = from.run(|| TcpStream::connect(at)).unwrap().unwrap();
        stream.write_all(&vec![7; bytes]).unwrap();
        drop(stream);
        reader.join().unwrap()
    })
}

/// A UDP socket on `host`.
pub(crate) fn datagrams(host: &Host, address: IpAddr) -> UdpSocket {
    let socket = host.run(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    // a reader that waits for a processor must not lose what the link delivered
    socket2::SockRef::from(&socket).set_recv_buffer_size(4 << 20).unwrap();
    socket
}

/// Sends `count` datagrams of `payload` bytes, `gap` apart, and says how many came by
/// [`SILENCE`] after the last.
pub(crate) fn stream(topology: &Topology, count: u32, payload: usize, gap: Duration) -> u32 {
    let (a, b) = (topology.host("a").unwrap(), topology.host("b").unwrap());
    let sender = datagrams(a, a.address().into());
    let receiver = datagrams(b, b.address().into());
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            let mut got = 0;
            while receiver.recv(&mut buffer).is_ok() {
                got += 1;
            }
            got
        });
        let begun = Instant::now();
        for n in 0..count {
            while begun.elapsed() < gap * n {
                std::thread::sleep(Duration::from_micros(50));
            }
            sender.send(&vec![0; payload]).unwrap();
        }
        reader.join().unwrap()
    })
}

/// Run as a program of its own, which a stopped emulator does not stop: datagrams for `millis`.
pub(crate) fn flood_from_outside(to: &str, millis: u64) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(millis) {
        // nobody listens: a refusal that comes back is no matter
        let _ = socket.send_to(&[0; 200], to);
        std::thread::sleep(Duration::from_micros(500));
    }
}
