//! Legs as seen from outside: `ss` for the sockets, a capture for the packets.

use crate::harness::*;
use ekiden_linux::sockets::options::SocketOptions;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

fn client() -> SocketOptions {
    SocketOptions {
        congestion: vec!["reno".into()],
        pace: Some("20 Mbit/s".parse().unwrap()),
        mss: Some(1200),
        dscp: Some(46),
        no_delay: Some(true),
        ..SocketOptions::default()
    }
}

fn upstream() -> SocketOptions {
    SocketOptions {
        congestion: vec!["cubic".into()],
        pace: Some("80 Mbit/s".parse().unwrap()),
        mss: Some(1000),
        dscp: Some(10),
        no_delay: Some(true),
        ..SocketOptions::default()
    }
}

fn relay() -> Relay {
    let mut settings = settings();
    settings.legs.insert("client".into(), leg(client()));
    settings.legs.insert("direct".into(), leg(upstream()));
    Relay::start(settings)
}

/// Moves bytes there and back, so that both legs have sent much.
fn work(stream: &mut TcpStream, bytes: usize) {
    let mut writer = stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        std::io::Write::write_all(&mut writer, &vec![7; bytes]).unwrap();
    });
    let mut back = vec![0; bytes];
    stream.read_exact(&mut back).unwrap();
    sender.join().unwrap();
    assert!(back.iter().all(|byte| *byte == 7));
}

/// What `ss -tni` says of one socket.
fn ss(local: SocketAddr, peer: SocketAddr) -> Option<String> {
    let mut command = Command::new("ss");
    command.args(["-tniH", "src", &local.to_string(), "dst", &peer.to_string()]);
    let output = command.output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn ss_shows_congestion_control_pace_and_mss_of_each_leg() {
    let relay = relay();
    let (_, mut stream) = connect(relay.address, echo());
    work(&mut stream, 4 << 20);
    let connection = relay.relayed();
    assert!(connection.bytes_up == 4 << 20 && connection.bytes_down == 4 << 20);
    for (leg, congestion, mss, pace) in [
        (&connection.legs[0], "reno", "mss:1188 ", 20_000_000),
        (&connection.legs[1], "cubic", "mss:988 ", 80_000_000),
    ] {
        let Some(text) = ss(leg.local.unwrap(), leg.peer.unwrap()) else {
            return skip("there is no ss: apt-get install iproute2");
        };
        assert!(text.contains(congestion) && text.contains(mss), "{text}");
        assert!(text.contains(&format!("/{pace}bps")) || paces(&text) == Some(pace), "{text}");
        // the kernel's own pace never goes beyond; the status says the same as ss
        assert!(leg.pacing_rate.is_some_and(|rate| rate <= pace), "{leg:?}");
        assert_eq!(
            (leg.congestion.as_str(), leg.mss),
            (congestion, if pace == 20_000_000 { 1188 } else { 988 })
        );
        eprintln!("{} leg: {}", leg.side, text.split_whitespace().collect::<Vec<_>>().join(" "));
    }
}

/// The most a socket sends: behind the slash of `pacing_rate 19Mbps/20Mbps`.
fn paces(text: &str) -> Option<u64> {
    let rates = text.split("pacing_rate ").nth(1)?.split_whitespace().next()?;
    let most = rates.rsplit('/').next()?.strip_suffix("bps")?;
    let (number, scale) = match most.chars().last()? {
        'G' => (&most[..most.len() - 1], 1e9),
        'M' => (&most[..most.len() - 1], 1e6),
        'K' => (&most[..most.len() - 1], 1e3),
        _ => (most, 1.0),
    };
    number.parse::<f64>().ok().map(|rate| (rate * scale) as u64)
}

/// Packets on loopback, as tcpdump tells them.
struct Capture {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    /// Ports nobody listens on: what goes there marks the begin and the end.
    marks: [SocketAddr; 2],
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A packet: the port it comes from, the one it goes to, and tcpdump's two lines.
type Packet = (u16, u16, String);

impl Capture {
    /// Captures what goes from or to these ports. `None` when that is not permitted.
    fn start(ports: &[u16]) -> Option<Self> {
        let marks = [crate::upstream::refusing(), crate::upstream::refusing()];
        let all = ports.iter().copied().chain(marks.map(|mark| mark.port()));
        let filter: Vec<_> = all.map(|port| format!("tcp port {port}")).collect();
        let mut command = Command::new("tcpdump");
        command.args(["-i", "lo", "-n", "-v", "-l", "-tt", "-B", "16384", "--immediate-mode"]);
        command.arg(filter.join(" or ")).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let out = BufReader::new(child.stdout.take()?);
        let mut capture = Self { child, out, marks };
        // it says that it listens a little before it does
        capture.until_mark(0)?;
        Some(capture)
    }

    /// The packets up to a mark that is set now; `None` when tcpdump has ended.
    fn until_mark(&mut self, nth: usize) -> Option<Vec<Packet>> {
        let mark = self.marks[nth];
        let seen = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !seen.load(Relaxed) {
                    let _ = TcpStream::connect(mark);
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            let packets = self.packets(mark.port());
            seen.store(true, Relaxed);
            packets
        })
    }

    fn packets(&mut self, mark: u16) -> Option<Vec<Packet>> {
        let mut packets = Vec::new();
        let mut head = String::new();
        loop {
            let mut line = String::new();
            if self.out.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let Some(body) = line.strip_prefix("    ") else {
                head = line.trim_end().to_owned();
                continue;
            };
            let mut words = body.split_whitespace();
            let port =
                |text: &str| text.trim_end_matches(':').rsplit('.').next()?.parse::<u16>().ok();
            let ends = (words.next().and_then(port), words.nth(1).and_then(port));
            let (Some(from), Some(to)) = ends else { continue };
            if to == mark {
                return Some(packets);
            }
            packets.push((from, to, format!("{head} {}", body.trim_end())));
        }
    }
}

#[test]
fn a_capture_shows_dscp_and_mss_of_each_leg() {
    let relay = relay();
    let server = echo();
    let (near, far) = (relay.address.port(), server.port());
    let Some(mut capture) = Capture::start(&[near, far]) else {
        return skip("tcpdump is not permitted or not installed");
    };
    let (_, mut stream) = connect(relay.address, server);
    work(&mut stream, 64 << 10);
    drop(stream);
    wait_for("relay.status().connections.is_empty()", || relay.status().connections.is_empty());
    let packets = capture.until_mark(1).unwrap();
    let only = |from_relay: &dyn Fn(&Packet) -> bool| -> Vec<String> {
        packets.iter().filter(|packet| from_relay(packet)).map(|(.., text)| text.clone()).collect()
    };
    // what the relay sends to its client, and what it sends to the server
    let to_client = only(&|packet| packet.0 == near);
    let to_server = only(&|packet| packet.1 == far);
    for (sent, tos, mss, largest) in
        [(&to_client, "tos 0xb8", "mss 1200", 1188), (&to_server, "tos 0x28", "mss 1000", 988)]
    {
        let syn: Vec<_> = sent.iter().filter(|text| text.contains("Flags [S")).collect();
        assert!(!syn.is_empty() && syn.iter().all(|text| text.contains(mss)), "{syn:?}");
        let data: Vec<_> = sent.iter().filter(|text| length(text) > 0).collect();
        assert!(data.iter().all(|text| text.contains(tos)), "{data:?}");
        // loopback hands over many segments as one; none is cut across
        assert!(data.iter().any(|text| length(text) >= largest), "{data:?}");
    }
    // the class starts with the SYN where this side opens, and with the first data where it accepts
    assert!(to_server.iter().all(|text| text.contains("tos 0x28")), "{to_server:?}");
    // the other ends' packets have their own class: none
    for (.., text) in packets.iter().filter(|packet| packet.1 == near || packet.0 == far) {
        assert!(text.contains("tos 0x0"), "{text}");
    }
}

/// Payload bytes of a packet.
fn length(text: &str) -> usize {
    let digits = text.rsplit(", length ").next().unwrap_or("0");
    digits.split(|c: char| !c.is_ascii_digit()).next().unwrap_or("0").parse().unwrap_or(0)
}
