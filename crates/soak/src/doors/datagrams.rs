//! UDP ASSOCIATE: associations of some seconds, whose datagrams come back.

use super::{Clients, book, name, raw};
use crate::exchange::Failure;
use crate::laws::{Door, Leg};
use crate::origin::{Service, compared, datagram, port};
use ekiden_model::rng::Rng;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, interval_at, sleep_until};

const DOOR: Door = Door::Datagrams;
/// Between two datagrams of an association.
const GAP: Duration = Duration::from_millis(10);
/// Bytes of pattern in one at most: with all heads it passes every link whole.
const LARGEST: u64 = 1_100;
/// After the last datagram, answers come for so long.
const LINGER: Duration = Duration::from_secs(2);

pub(super) async fn associations(clients: &Clients, leg: Leg, mut rng: Rng) {
    while !clients.is_over() {
        let from = clients.ledger.now();
        if let Err(failure) = associate(clients, leg, &mut rng).await {
            book(clients, (DOOR, leg), from, 0, true, Err(failure)).await;
        }
    }
}

/// One association.
async fn associate(clients: &Clients, leg: Leg, rng: &mut Rng) -> Result<(), Failure> {
    let mut control = clients.connect().await?;
    let any = ("0.0.0.0".to_owned(), 0);
    let (_, relay) = raw::socks(&mut control, DOOR, 3, &any).await?;
    let local = control.local_addr()?.ip();
    let socket = UdpSocket::bind((local, 0)).await?;
    socket.connect(SocketAddr::from((clients.relay.ip(), relay))).await?;
    let mut association = Association {
        clients,
        leg,
        socket,
        head: head(&name(rng, leg), port(Service::Datagrams, DOOR)),
        seed: rng.next_u64(),
        unanswered: BTreeSet::new(),
    };
    let lasts = Duration::from_secs(2 + rng.below(15));
    let result = association.run(&mut control, lasts, rng).await;
    (0..association.unanswered.len()).for_each(|_| clients.ledger.on_unanswered(leg));
    result
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
    leg: Leg,
    socket: UdpSocket,
    head: Vec<u8>,
    seed: u64,
    unanswered: BTreeSet<u64>,
}

impl Association<'_> {
    async fn run(
        &mut self,
        control: &mut TcpStream,
        lasts: Duration,
        rng: &mut Rng,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        let mut ticks = interval_at(begun, GAP);
        let (mut number, mut buffer) = (0, vec![0; 2_048]);
        let mut last = [0];
        loop {
            let sends = begun.elapsed() < lasts && !self.clients.is_over();
            tokio::select! {
                _ = ticks.tick(), if sends => {
                    self.send(number, rng).await?;
                    number += 1;
                }
                came = self.socket.recv(&mut buffer) => {
                    let came = came.map_err(ended)?;
                    self.receive(buffer.get(..came).unwrap_or_default())?;
                }
                end = control.read(&mut last) => {
                    let why = end.err().map_or_else(|| "ended".to_owned(), |error| error.to_string());
                    return Err(Failure::Ended(format!("the association: {why}")));
                }
                () = sleep_until(begun + lasts + LINGER), if !sends => return Ok(()),
            }
        }
    }

    async fn send(&mut self, number: u64, rng: &mut Rng) -> Result<(), Failure> {
        let length = rng.below(LARGEST) as usize;
        let bytes = [self.head.clone(), datagram(self.seed, number, length, false)].concat();
        self.clients.ledger.up(DOOR).on_sent(bytes.len() as u64);
        self.socket.send(&bytes).await.map_err(ended)?;
        self.unanswered.insert(number);
        Ok(())
    }

    fn receive(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let wrong = |what: &str| Failure::Wrong(format!("{what} of {} bytes", bytes.len()));
        let payload = payload(bytes).ok_or_else(|| wrong("a datagram without a head"))?;
        let (seed, number) = compared(payload, true).ok_or_else(|| wrong("a datagram"))?;
        if seed != self.seed {
            return Err(wrong("a datagram of another association"));
        }
        let ledger = &self.clients.ledger;
        // a network may duplicate them, and each copy is counted
        ledger.down(DOOR).on_compared(payload.len() as u64);
        if self.unanswered.remove(&number) {
            ledger.on_whole(DOOR, self.leg, payload.len() as u64);
        }
        Ok(())
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
