//! Datagrams by UDP ASSOCIATE and over HTTP: associations of some seconds, whose datagrams come back.

use super::capsules::Capsules;
use super::{Clients, book, domain, raw, target};
use crate::exchange::Failure;
use crate::laws::{Door, Leg};
use crate::ledger::{Counted, Datagrams, Live};
use crate::origin::{Service, compared, datagram};
use ekiden_model::rng::Rng;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

/// Between two datagrams of an association.
const GAP: Duration = Duration::from_millis(10);
/// Bytes of pattern in one at most: with all heads it passes every link whole.
const LARGEST: u64 = 1_100;
/// After the last datagram, answers come for so long.
const LINGER: Duration = Duration::from_secs(2);

pub(super) async fn associations(clients: &Clients, door: Door, leg: Leg, mut rng: Rng) {
    while !clients.is_over() {
        let to = target(&mut rng, leg, Service::Datagrams, door);
        let live = clients.ledger.begin(domain(&to.0));
        if let Err(failure) = associate(clients, (door, leg), &to, &mut rng, &live).await {
            book(clients, (door, leg), &live, 0, Err(failure)).await;
        }
    }
}

/// One association. It is open once a datagram has come: until then it waits for a name, and over HTTP a far relay may
/// refuse it.
async fn associate(
    clients: &Clients,
    (door, leg): (Door, Leg),
    to: &(String, u16),
    rng: &mut Rng,
    live: &Live,
) -> Result<(), Failure> {
    let seed = rng.next_u64();
    let way = match door {
        Door::UdpOverHttp => Way::Http(Capsules::open(clients, door, to, seed & 1 == 0).await?),
        _ => Way::Socks(SocksUdp::open(clients, door, to).await?),
    };
    let mut association = Association { clients, door, leg, way, live, seed, sent: Vec::new() };
    let (lasts, from) = (Duration::from_secs(2 + rng.below(15)), clients.ledger.now());
    let result = association.run(lasts, rng).await;
    let (to, sent) = (clients.ledger.now(), &association.sent);
    clients.ledger.on_datagrams(tally(sent, Datagrams { from, to, ..Datagrams::none(door, leg) }));
    result
}

/// A datagram of an association; its number is its place.
#[derive(Debug, Clone, Copy)]
struct Sent {
    length: usize,
    answers: u64,
}

/// Notes the answer to a datagram of this number; whether it is the first one. Errors: what is wrong with it.
fn note(sent: &mut [Sent], number: u64, length: usize) -> Result<bool, String> {
    let sent = usize::try_from(number).ok().and_then(|number| sent.get_mut(number));
    let sent = sent.ok_or_else(|| format!("an answer to number {number}, which was not sent,"))?;
    if sent.length != length {
        return Err(format!("an answer to a datagram of {} bytes", sent.length));
    }
    sent.answers += 1;
    Ok(sent.answers == 1)
}

/// The sums of an association. No network here and no relay repeats a datagram, so each further answer is the relay's.
fn tally(all: &[Sent], datagrams: Datagrams) -> Datagrams {
    let is_lost = |sent: &&Sent| sent.answers == 0;
    let first = all.iter().position(|sent| sent.answers > 0).unwrap_or(0);
    Datagrams {
        sent: all.len() as u64,
        unanswered: all.iter().filter(is_lost).count() as u64,
        lost: all.iter().skip(first).filter(is_lost).count() as u64,
        duplicates: all.iter().map(|sent| sent.answers.saturating_sub(1)).sum(),
        ..datagrams
    }
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
        // the head of its answer is the relay's own, at most with an address of IPv6
        clients.ledger.down(door).on_own(4 + 16 + 2);
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
    live: &'a Live,
    seed: u64,
    sent: Vec<Sent>,
}

impl Association<'_> {
    async fn run(&mut self, lasts: Duration, rng: &mut Rng) -> Result<(), Failure> {
        let begun = Instant::now();
        let mut ticks = interval_at(begun, GAP);
        // a client that stood still does not send the rest in a burst, which buffers would not hold
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let sends = begun.elapsed() < lasts && !self.clients.is_over();
            tokio::select! {
                _ = ticks.tick(), if sends => self.send(rng).await?,
                came = receive(&mut self.way) => self.on_received(&came?)?,
                () = sleep_until(begun + lasts + LINGER), if !sends => return Ok(()),
            }
        }
    }

    async fn send(&mut self, rng: &mut Rng) -> Result<(), Failure> {
        let number = self.sent.len() as u64;
        let bytes = datagram(self.seed, number, rng.below(LARGEST) as usize, false);
        match &mut self.way {
            Way::Socks(socks) => socks.send(&bytes, self.clients, self.door).await?,
            Way::Http(capsules) => capsules.send(&bytes).await?,
        }
        self.sent.push(Sent { length: bytes.len(), answers: 0 });
        Ok(())
    }

    fn on_received(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let wrong = |what: &str| Failure::Wrong(format!("{what} of {} bytes", bytes.len()));
        let (seed, number) = compared(bytes, true).ok_or_else(|| wrong("a datagram"))?;
        if seed != self.seed {
            return Err(wrong("a datagram of another association"));
        }
        self.live.on_moved();
        let ledger = &self.clients.ledger;
        ledger.down(self.door).on_compared(bytes.len() as u64);
        if note(&mut self.sent, number, bytes.len()).map_err(|what| wrong(&what))? {
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
    fn cut_answers_and_those_to_nothing_are_wrong() {
        let mut sent = vec![Sent { length: 100, answers: 0 }; 2];
        assert_eq!(note(&mut sent, 1, 100), Ok(true));
        assert_eq!(note(&mut sent, 1, 100), Ok(false));
        assert!(note(&mut sent, 0, 99).is_err());
        assert!(note(&mut sent, 2, 100).is_err());
    }

    #[test]
    fn losses_count_from_the_first_answer_on_and_further_answers_as_duplicates() {
        let sums = |answers: &[u64]| {
            let sent = |answers: &u64| Sent { length: 16, answers: *answers };
            let all: Vec<Sent> = answers.iter().map(sent).collect();
            let sums = tally(&all, Datagrams::none(Door::Datagrams, Leg::Direct));
            (sums.sent, sums.unanswered, sums.lost, sums.duplicates)
        };
        assert_eq!(sums(&[]), (0, 0, 0, 0));
        assert_eq!(sums(&[0, 0, 1, 0, 3]), (5, 3, 1, 2));
        assert_eq!(sums(&[0, 0]), (2, 2, 2, 0));
    }

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
