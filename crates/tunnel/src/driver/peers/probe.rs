//! Whether a relay that invited this one is reached, before anything is kept.

use super::connect::{Attempt, Joined, Underlay, resolve};
use super::tcp_fallback::{self, TransportMode};
use super::{GOODBYE, Inner, LOOK, Settings};
use crate::core::{Limits, TunnelEnd};
use crate::driver::locked;
use crate::trust::{Credentials, Peer, Store};
use ekiden_linux::host::clock;
use ekiden_model::units::Span;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// A handshake over a satellite, with a loss or two.
const PATIENCE: Duration = Duration::from_secs(6);

/// The reason with which a trial's tunnel is closed: the other relay has lost nothing.
pub(super) const TRIAL: &str = "a trial, which showed that the relay is reached";

/// What trying to reach a relay showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The round trip over UDP, or why there was no tunnel.
    pub udp: Result<Span, String>,
    /// Whether TLS on TCP, the way out where UDP is blocked, leads there; or why not.
    pub tcp: Result<(), String>,
    /// The relay was reached, and says why it takes no tunnel of this one.
    pub refused: Option<String>,
}

impl Probe {
    /// Whether it was reached in any way, also where it refused.
    pub const fn reached(&self) -> bool {
        self.udp.is_ok() || self.tcp.is_ok() || self.refused.is_some()
    }

    fn nowhere(why: &str) -> Self {
        Self { udp: Err(why.to_owned()), tcp: Err(why.to_owned()), refused: None }
    }
}

/// Tries to reach the relay that invited this one, over UDP and TCP at once, for 6 s at most; once more where it refuses,
/// since it reads an invitation a moment after it was made. Where it is reached, the invitation belongs to these
/// credentials from then on. Must be called within a tokio runtime.
pub async fn probe(credentials: &Credentials, peer: &Peer) -> Probe {
    let seen = probe_once(credentials, peer).await;
    if seen.refused.is_none() {
        return seen;
    }
    tokio::time::sleep(LOOK + GOODBYE).await;
    probe_once(credentials, peer).await
}

async fn probe_once(credentials: &Credentials, peer: &Peer) -> Probe {
    let Some(joined) = Joined::of(peer) else {
        return Probe::nowhere("this relay was not invited by that one");
    };
    let addresses = match resolve(&joined.address).await {
        Ok(addresses) => addresses,
        Err(why) => return Probe::nowhere(&why),
    };
    let inner = Arc::new(inner(credentials));
    let joined = Arc::new(joined);
    let (udp, tcp) = tokio::join!(
        first(&addresses, |to| tunnel(Arc::clone(&inner), Arc::clone(&joined), to)),
        first(&addresses, |to| connect(Arc::clone(&inner), Arc::clone(&joined), to)),
    );
    let udp_refused = udp.as_ref().err().and_then(|end| end.by_peer.then(|| end.reason.clone()));
    // where UDP is blocked the invitation is used over TCP
    let refused = match (&udp, &tcp) {
        (Err(end), Ok(to)) if !end.by_peer => {
            let attempt = inner.attempt(&joined, (*to, Underlay::Tcp), false);
            match tokio::time::timeout(PATIENCE, attempt).await {
                Ok(Ok(up)) => {
                    end_tunnel(up).await;
                    None
                }
                Ok(Err(end)) => Some(end.reason),
                Err(_) => Some(format!("TCP {to}: no tunnel within {PATIENCE:?}")),
            }
        }
        _ => udp_refused,
    };
    Probe {
        udp: udp.map_err(|end| end.reason),
        tcp: tcp.map(drop).map_err(|end| end.reason),
        refused,
    }
}

/// Of a relay that listens nowhere and keeps nothing.
fn inner(credentials: &Credentials) -> Inner {
    Inner {
        settings: Settings {
            store: Store::new(PathBuf::new()),
            listen: Vec::new(),
            carrier: TransportMode::Auto,
            dscp: [0, 0],
            limits: Limits::default(),
            threads: 1,
        },
        credentials: credentials.clone(),
        incoming: mpsc::channel(1).0,
        listening: Vec::new(),
        addresses: Vec::new(),
        known: Default::default(),
        changes: Default::default(),
        unsaved: Default::default(),
        carried: Default::default(),
        origin: Instant::now() - Duration::from_nanos(clock::now().as_nanos()),
        #[cfg(test)]
        panics: Default::default(),
    }
}

/// The first address that succeeds, or what became of all.
async fn first<T, F>(
    addresses: &[SocketAddr],
    attempt: impl Fn(SocketAddr) -> F,
) -> Result<T, TunnelEnd>
where
    T: Send + 'static,
    F: Future<Output = Result<T, TunnelEnd>> + Send + 'static,
{
    let mut attempts = JoinSet::new();
    for to in addresses.iter().copied() {
        let attempt = attempt(to);
        attempts.spawn(async move {
            let late = || format!("{to}: no answer within {} s", PATIENCE.as_secs()).into();
            tokio::time::timeout(PATIENCE, attempt).await.unwrap_or_else(|_| Err(late()))
        });
    }
    let mut end = TunnelEnd { reason: String::new(), by_peer: false };
    while let Some(done) = attempts.join_next().await {
        match done {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(other)) => {
                end.by_peer |= other.by_peer;
                let comma = if end.reason.is_empty() { "" } else { "; " };
                end.reason = format!("{}{comma}{}", end.reason, other.reason);
            }
            Err(error) => end.reason = error.to_string(),
        }
    }
    Err(end)
}

async fn tunnel(inner: Arc<Inner>, joined: Arc<Joined>, to: SocketAddr) -> Result<Span, TunnelEnd> {
    let up = tokio::select! {
        up = inner.attempt(&joined, (to, Underlay::Udp), false) => up?,
        why = nobody(to) => return Err(why.into()),
    };
    let rtt = locked(&up.driver.shared.core).snapshot(up.tunnel).map(|seen| seen.rtt);
    end_tunnel(up).await;
    Ok(rtt.unwrap_or_default())
}

/// The last frames leave before the program ends.
async fn end_tunnel(up: Attempt) {
    up.driver.close(up.tunnel, TRIAL);
    tokio::time::sleep(GOODBYE).await;
    drop(up);
}

/// Waits until the kernel is told that nobody listens there; the tunnel's own socket has many peers and is not told.
async fn nobody(to: SocketAddr) -> String {
    let from: SocketAddr = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let listened = async {
        let socket = UdpSocket::bind(from).await?;
        socket.connect(to).await?;
        loop {
            // a datagram that means nothing
            socket.send(&[0]).await?;
            let mut buffer = [0; 16];
            let answer = tokio::time::timeout(Duration::from_secs(1), socket.recv(&mut buffer));
            if let Ok(Err(error)) = answer.await {
                return Err::<(), io::Error>(error);
            }
        }
    };
    match listened.await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            format!("UDP {to}: nothing listens there")
        }
        Err(error) => format!("UDP {to}: {error}"),
        Ok(()) => String::new(),
    }
}

async fn connect(
    inner: Arc<Inner>,
    joined: Arc<Joined>,
    to: SocketAddr,
) -> Result<SocketAddr, TunnelEnd> {
    let made = tcp_fallback::connect(&inner.credentials, joined.fingerprint, to).await;
    made.map(|_| to).map_err(|error| format!("TCP {to}: {error}").into())
}
