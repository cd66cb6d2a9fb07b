//! The clients: each door and leg has some that transfer one after another until time is over.

mod capsules;
mod changing;
mod datagrams;
mod forward;
mod guesses;
mod http2;
mod messages;
mod names;
mod quota;
mod raw;
mod slow;

pub(crate) use quota::quota;

use crate::exchange::{Failure, Order};
use crate::laws::{Break, DOORS, Door, LEGS, Leg};
use crate::ledger::{Counted, Ledger, Live, Towards};
use crate::origin::{Service, port};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ekiden_model::rng::Rng;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The password of every account.
pub(crate) const PASSWORD: &str = "a password to soak with";
/// Clients of each door and leg.
pub(crate) const CLIENTS: u64 = 2;
/// What a relay sends within TLS before a stream is open, and more: a certificate, tickets, settings and an answer.
const HANDSHAKE: u64 = 4_096;
/// Bytes that a slow reader's kernel takes at once, so that the others wait at the relay.
const NARROW: u32 = 16 << 10;
/// A client whose transfer broke waits for so long.
const PAUSE: Duration = Duration::from_millis(200);

/// What all clients share.
#[derive(Debug, Clone)]
pub(crate) struct Clients {
    pub(crate) ledger: Arc<Ledger>,
    /// The near relay.
    pub(crate) relay: SocketAddr,
    /// The same over IPv6, if the machine has that.
    pub(crate) relay_v6: Option<SocketAddr>,
    /// The clients' other address, from which a proxy connects.
    pub(crate) proxy: Ipv4Addr,
    /// Where every name leads.
    pub(crate) servers: Ipv4Addr,
    /// Trusts its certificate.
    pub(crate) tls: Arc<rustls::ClientConfig>,
    /// No transfer begins after this.
    pub(crate) end: Instant,
    /// Bytes a second that each client may move each way.
    pub(crate) rate: u64,
    /// Bytes that the account with a quota may use.
    pub(crate) quota: u64,
}

impl Clients {
    fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// A connection to the relay.
    async fn connect(&self) -> io::Result<TcpStream> {
        let stream =
            crate::exchange::patiently("connecting", TcpStream::connect(self.relay)).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// A connection to a forwarded port, by the proxy.
    async fn connect_by_proxy(&self, port: u16) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((self.proxy, 0).into())?;
        let connecting = socket.connect((self.relay.ip(), port).into());
        let stream = crate::exchange::patiently("connecting", connecting).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// A connection to the relay, of which little waits at the client's end.
    async fn connect_narrow(&self) -> io::Result<TcpStream> {
        let socket = match self.relay {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.set_recv_buffer_size(NARROW)?;
        let connecting = socket.connect(self.relay);
        let stream = crate::exchange::patiently("connecting", connecting).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn counted<T>(&self, stream: T, door: Door) -> Counted<T> {
        Counted::new(stream, &self.ledger, door, Towards::Server)
    }

    /// TLS with the relay, whose certificate is checked. Records count as what they carry.
    async fn secure(
        &self,
        protocol: &[u8],
        door: Door,
    ) -> io::Result<TlsStream<Counted<TcpStream>>> {
        self.secure_over(self.connect().await?, protocol, door).await
    }

    /// The same over this stream to it.
    async fn secure_over<T: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: T,
        protocol: &[u8],
        door: Door,
    ) -> io::Result<TlsStream<Counted<T>>> {
        let mut config = rustls::ClientConfig::clone(&self.tls);
        config.alpn_protocols = vec![protocol.to_vec()];
        let name =
            rustls::pki_types::ServerName::try_from("relay.test").map_err(io::Error::other)?;
        let stream = self.counted(stream, door);
        let connecting = TlsConnector::from(Arc::new(config)).connect(name, stream);
        crate::exchange::patiently("TLS", connecting).await
    }

    fn broke(&self, door: Door, leg: Leg, live: &Live, failure: Failure) {
        let opened = live.opened();
        if matches!(door, Door::Tls | Door::Http2 | Door::UdpOverHttp | Door::Slow) {
            let down = self.ledger.down(door);
            // a window of records is on its way in open streams alone
            if opened { down.on_broken_records() } else { down.on_own(HANDSHAKE) }
        }
        let (why, clean) = match failure {
            Failure::Ended(why) => (why, false),
            Failure::Finished(why) => (why, true),
            Failure::Wrong(what) => {
                let place = format!("{} over the {} leg", door.name(), leg.name());
                self.ledger.on_wrong(format!("{place}: {what}"));
                return;
            }
            Failure::Left => return self.ledger.on_left(door, leg),
        };
        let (from, to, moved) = (live.from, self.ledger.now(), live.moved());
        let domain = live.domain.clone();
        self.ledger.on_break(Break { door, leg, domain, from, to, moved, opened, clean, why });
    }
}

/// `Basic`, with a door's user and the password.
fn credentials(door: Door) -> String {
    format!("Basic {}", STANDARD.encode(format!("{}:{PASSWORD}", door.name())))
}

/// A name of its own for each transfer, so that caches of names do not hide the name server.
fn name(rng: &mut Rng, leg: Leg) -> String {
    format!("n{}.{}", rng.below(1_000_000), leg.domain(rng.next_u64()))
}

/// What stands behind the first label of a name.
fn domain(name: &str) -> &str {
    name.split_once('.').map_or(name, |(_, domain)| domain)
}

/// A name and the port of an account's server.
fn target(rng: &mut Rng, leg: Leg, service: Service, door: Door) -> (String, u16) {
    (name(rng, leg), port(service, door))
}

/// Starts all clients. The set is empty when each has ended its last transfer.
pub(crate) fn start(clients: &Arc<Clients>, seed: u64) -> JoinSet<()> {
    let mut running = JoinSet::new();
    let mut seeds = Rng::new(seed);
    let over_v6 = clients.relay_v6.map(|relay| Arc::new(Clients { relay, ..(**clients).clone() }));
    for door in DOORS {
        for leg in LEGS.into_iter().filter(|leg| door.takes(*leg)) {
            let count = if door == Door::Slow { slow::WAYS.len() } else { CLIENTS as usize };
            for nth in 0..count {
                // each second one
                let over_v6 = over_v6.as_ref().filter(|_| door.speaks_v6() && nth % 2 == 1);
                if over_v6.is_some() {
                    clients.ledger.on_count("clients over IPv6");
                }
                let clients = Arc::clone(over_v6.unwrap_or(clients));
                let rng = Rng::new(seeds.next_u64());
                running.spawn(live(clients, door, leg, nth, rng));
            }
        }
    }
    running
}

/// The life of the nth client of a door over a leg.
async fn live(clients: Arc<Clients>, door: Door, leg: Leg, nth: usize, rng: Rng) {
    match door {
        Door::Forward => forward::exchanges(&clients, leg, rng).await,
        Door::Cache => forward::objects(&clients, leg, rng).await,
        Door::Quota => quota::exchanges(&clients, leg, rng).await,
        Door::Guesses => guesses::tries(&clients, leg, rng).await,
        Door::Messages => messages::batches(&clients, leg, rng).await,
        Door::Slow => slow::downloads(&clients, slow::WAYS[nth], leg, rng).await,
        Door::Changing => changing::objects(&clients, leg, rng).await,
        Door::Connect | Door::Socks | Door::Tls | Door::PortForward => {
            raw::exchanges(&clients, door, leg, rng).await
        }
        Door::Names => names::questions(&clients, leg, rng).await,
        Door::Http2 => http2::exchanges(&clients, leg, rng).await,
        Door::Datagrams | Door::UdpOverHttp => {
            datagrams::associations(&clients, door, leg, rng).await
        }
    }
}

/// Books what became of a transfer. A client whose transfer broke waits a little.
async fn book(
    clients: &Clients,
    (door, leg): (Door, Leg),
    live: &Live,
    bytes: u64,
    result: Result<(), Failure>,
) {
    match result {
        Ok(()) => clients.ledger.on_whole(door, leg, bytes),
        Err(failure) => {
            clients.broke(door, leg, live, failure);
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The bytes of an order, both ways.
const fn volume(order: &Order) -> u64 {
    order.up + order.down
}
