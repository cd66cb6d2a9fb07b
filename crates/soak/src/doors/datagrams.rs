//! Datagrams by UDP ASSOCIATE and over HTTP: associations of some seconds, whose datagrams come back.

use super::capsules::Capsules;
use super::{Clients, Opened, book, raw, target};
use crate::exchange::Failure;
use crate::laws::{Door, Leg};
use crate::ledger::{Counted, Datagrams};
use crate::origin::{Service, compared, datagram};
use ekiden_model::rng::Rng;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, interval_at, sleep_until};

/// Between two datagrams of an association.
const GAP: Duration = Duration::from_millis(10);
/// Bytes of pattern in one at most: with all heads it passes every link whole.
const LARGEST: u64 = 1_100;
/// After the last datagram, answers come for so long.
const LINGER: Duration = Duration::from_secs(2);

pub(super) async fn associations(clients: &Clients, door: Door, leg: Leg, mut rng: Rng) {
    while !clients.is_over() {
        let (from, opened) = (clients.ledger.now(), Opened::default());
        if let Err(failure) = associate(clients, (door, leg), &mut rng, &opened).await {
            book(clients, (door, leg), from, 0, opened.get(), Err(failure)).await;
        }
    }
}

/// One association. Over HTTP it is open once a datagram has come: a far relay refuses after the first one.
async fn associate(
    clients: &Clients,
    (door, leg): (Door, Leg),
    rng: &mut Rng,
    opened: &Opened,
) -> Result<(), Failure> {
    let to = target(rng, leg, Service::Datagrams, door);
    let seed = rng.next_u64();
    let way = match door {
        Door::UdpOverHttp => Way::Http(Capsules::open(clients, door, &to, seed & 1 == 0).await?),
        _ => {
            opened.set();
            Way::Socks(SocksUdp::open(clients, door, &to).await?)
        }
    };
    let unanswered = BTreeSet::new();
    let sent = 0;
    let mut association = Association { clients, door, leg, way, opened, seed, sent, unanswered };
    let (lasts, from) = (Duration::from_secs(2 + rng.below(15)), clients.ledger.now());
    let result = association.run(lasts, rng).await;
    let Association { sent, unanswered, .. } = association;
    let (to, unanswered) = (clients.ledger.now(), unanswered.len() as u64);
    clients.ledger.on_datagrams(Datagrams { door, leg, from, to, sent, unanswered });
    result
}

/// How datagrams come to the relay and from it.
enum Way {
    Socks(SocksUdp),
    Http(Capsules),
}

/// UDP ASSOCIATE.
struct SocksUdp {
    control: Counted<TcpStream>,
    socket: UdpSocket,
    head: Vec<u8>,
}

impl SocksUdp {
    async fn open(clients: &Clients, door: Door, to: &(String, u16)) -> Result<Self, Failure> {
        let control = clients.connect().await?;
        let local = control.local_addr()?.ip();
        let mut control = clients.counted(control, door);
        let any = ("0.0.0.0".to_owned(), 0);
        // a method, a verdict and a reply
        clients.ledger.down(door).on_own(2 + 2 + 10);
        let (_, relay) = raw::socks(&mut control, door, 3, &any).await?;
        let socket = UdpSocket::bind((local, 0)).await?;
        socket.connect(SocketAddr::from((clients.relay.ip(), relay))).await?;
        Ok(Self { control, socket, head: head(&to.0, to.1) })
    }

    async fn send(&self, datagram: &[u8], clients: &Clients, door: Door) -> Result<(), Failure> {
        let bytes = [&self.head, datagram].concat();
        clients.ledger.up(door).on_sent(bytes.len() as u64);
        self.socket.send(&bytes).await.map_err(ended)?;
        Ok(())
    }

    async fn receive(&mut self) -> Result<Vec<u8>, Failure> {
        let (mut buffer, mut last) = (vec![0; 2_048], [0]);
        tokio::select! {
            came = self.socket.recv(&mut buffer) => {
                buffer.truncate(came.map_err(ended)?);
                let wrong = || Failure::Wrong(format!("a datagram without a head of {} bytes", buffer.len()));
                Ok(payload(&buffer).ok_or_else(wrong)?.to_vec())
            }
            end = self.control.read(&mut last) => {
                let why = end.err().map_or_else(|| "ended".to_owned(), |error| error.to_string());
                Err(Failure::Ended(format!("the association: {why}")))
            }
        }
    }
}

/// The head of a datagram (RFC 1928 section 7).
fn head(name: &str, port: u16) -> Vec<u8> {
    [&[0, 0, 0, 3, name.len() as u8], name.as_bytes(), &port.to_be_bytes()].concat()
}

/// What stands behind the head of an answer, whose address may be of any kind.
fn payload(bytes: &[u8]) -> Option<&[u8]> {
    let address = match bytes.get(3)? {
        1 => 4,
        3 => 1 + usize::from(*bytes.get(4)?),
        4 => 16,
        _ => return None,
    };
    bytes.get(4 + address + 2..)
}

struct Association<'a> {
    clients: &'a Clients,
    door: Door,
    leg: Leg,
    way: Way,
    opened: &'a Opened,
    seed: u64,
    sent: u64,
    unanswered: BTreeSet<u64>,
}

impl Association<'_> {
    async fn run(&mut self, lasts: Duration, rng: &mut Rng) -> Result<(), Failure> {
        let begun = Instant::now();
        let (mut ticks, mut number) = (interval_at(begun, GAP), 0);
        loop {
            let sends = begun.elapsed() < lasts && !self.clients.is_over();
            tokio::select! {
                _ = ticks.tick(), if sends => {
                    self.send(number, rng).await?;
                    number += 1;
                }
                came = receive(&mut self.way) => self.on_received(&came?)?,
                () = sleep_until(begun + lasts + LINGER), if !sends => return Ok(()),
            }
        }
    }

    async fn send(&mut self, number: u64, rng: &mut Rng) -> Result<(), Failure> {
        let bytes = datagram(self.seed, number, rng.below(LARGEST) as usize, false);
        match &mut self.way {
            Way::Socks(socks) => socks.send(&bytes, self.clients, self.door).await?,
            Way::Http(capsules) => capsules.send(&bytes).await?,
        }
        self.sent += 1;
        self.unanswered.insert(number);
        Ok(())
    }

    fn on_received(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let wrong = |what: &str| Failure::Wrong(format!("{what} of {} bytes", bytes.len()));
        let (seed, number) = compared(bytes, true).ok_or_else(|| wrong("a datagram"))?;
        if seed != self.seed {
            return Err(wrong("a datagram of another association"));
        }
        self.opened.set();
        let ledger = &self.clients.ledger;
        // a network may duplicate them, and each copy is counted
        ledger.down(self.door).on_compared(bytes.len() as u64);
        if self.unanswered.remove(&number) {
            ledger.on_whole(self.door, self.leg, bytes.len() as u64);
        }
        Ok(())
    }
}

/// The next datagram. What a dropped call has read is not lost.
async fn receive(way: &mut Way) -> Result<Vec<u8>, Failure> {
    match way {
        Way::Socks(socks) => socks.receive().await,
        Way::Http(capsules) => capsules.receive().await,
    }
}

/// The relay's port is gone: the association is.
fn ended(error: io::Error) -> Failure {
    Failure::Ended(format!("the relay's UDP port: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn payloads_stand_behind_addresses_of_every_kind() {
        let v4 = [&[0, 0, 0, 1], &Ipv4Addr::LOCALHOST.octets()[..], &[0, 9], b"x"].concat();
        assert_eq!(payload(&v4), Some(&b"x"[..]));
        let named = [&head("a.test", 9)[..], b"y"].concat();
        assert_eq!(payload(&named), Some(&b"y"[..]));
        assert_eq!(payload(&[0, 0, 0, 9, 1]), None);
        assert_eq!(payload(&[0, 0]), None);
    }
}
