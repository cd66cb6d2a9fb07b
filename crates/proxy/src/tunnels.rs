//! Tunnels to other relays, as the proxy uses them: a flow is one end of a TCP connection on loopback, so
//! that everything that is done with connections is done with it: splicing, half-close, RST, buffers, idle
//! limits.

pub(crate) mod measure;
mod plug;

use crate::destination::{Destination, Host};
use crate::failure::{Failure, Kind};
use crate::registry::locked;
use crate::resources::Spare;
use crate::settings::Settings;
use crate::status::TunnelStatus;
use ekiden_model::units::Span;
use ekiden_tunnel::core::Limits;
use ekiden_tunnel::driver::{self, Ended, Flow, Incoming, Relays};
use ekiden_tunnel::frame::{self, Carries, Opening, Target};
use ekiden_tunnel::reason::Reason;
use ekiden_tunnel::trust::Store;
pub(crate) use plug::Plug;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// A request may pass so many tunnels; more is a circle. A chain on purpose has two or three.
const MOST_HOPS: u8 = 8;
/// Flows that came in and are not begun with yet.
const WAITING: usize = 1_024;

/// The tunnels of this relay.
#[derive(Debug)]
pub(crate) struct Tunnels {
    relays: Relays,
    plug: Plug,
    /// Numbers clients for the other relay, which is to tell them apart and not to know them.
    accounts: RandomState,
}

/// A flow to a destination, as a connection.
#[derive(Debug)]
pub(crate) struct Dug {
    pub(crate) stream: Arc<TcpStream>,
    pub(crate) answer: Arc<FarAnswer>,
}

/// What the other relay said of a flow that was used before it had answered.
#[derive(Debug, Default)]
pub(crate) struct FarAnswer(Mutex<Option<Failure>>);

impl FarAnswer {
    /// Why the flow broke, if the other relay said so.
    pub(crate) fn failure(&self) -> Option<Failure> {
        locked(&self.0).clone()
    }
}

/// Where a flow is to go, and for whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) to: &'a Destination,
    pub(crate) client: IpAddr,
    /// Through how many tunnels it has come.
    pub(crate) hops: u8,
    /// The mark of what the client sends, where it is known.
    pub(crate) dscp: Option<u8>,
}

impl Tunnels {
    /// Listens for relays and connects to them; what comes out of their tunnels comes out of the receiver.
    ///
    /// # Errors
    /// In words.
    pub(crate) fn start(
        settings: &Settings,
    ) -> Result<(Self, mpsc::Receiver<Incoming>), Box<dyn std::error::Error + Send + Sync>> {
        let tunnel = &settings.tunnel;
        let directory = tunnel.state.clone().ok_or(
            "there is no directory for what is known of other relays; set `state` in [tunnel]",
        )?;
        let (sender, incoming) = mpsc::channel(WAITING);
        let settings = driver::Settings {
            store: Store::new(directory),
            listen: tunnel.listen.clone(),
            carrier: tunnel.carrier,
            dscp: [tunnel.interactive_dscp, tunnel.bulk_dscp],
            limits: Limits { memory: tunnel.memory, ..Limits::default() },
        };
        let plug = Plug::new().map_err(|error| {
            format!("tunnels need a port on 127.0.0.1, which cannot be listened on: {error}")
        })?;
        let relays = Relays::start(settings, sender)?;
        Ok((Self { relays, plug, accounts: RandomState::new() }, incoming))
    }

    /// Opens a flow to `to` through the tunnel to `relay`. With `wait` the destination has answered when
    /// this returns; without, its refusal becomes a reset, and [`FarAnswer`] has its words. `place` is that of
    /// the connection on loopback.
    ///
    /// # Errors
    /// There is no tunnel, or the other relay cannot or may not go there.
    pub(crate) async fn open(
        &self,
        relay: &str,
        asked: Asked<'_>,
        patience: Span,
        wait: bool,
        place: Spare,
    ) -> Result<Dug, Failure> {
        let flow = self.begin(relay, asked, patience, Carries::Stream).await?;
        if wait {
            flow.answered().await.map_err(|(reason, words)| refused(relay, reason, &words))?;
        }
        let (outside, inside) = self.plug.pair().await.map_err(|error| {
            Failure::io("cannot connect to this relay's own end of the tunnel", &error)
        })?;
        let answer = Arc::new(FarAnswer::default());
        let for_task = Arc::clone(&answer);
        let relay = relay.to_owned();
        tokio::spawn(async move {
            let ended = flow.carry(inside, |reason, words| {
                *locked(&for_task.0) = Some(refused(&relay, reason, words));
            });
            ended.await;
            drop(place);
        });
        Ok(Dug { stream: Arc::new(outside), answer })
    }

    /// Opens a flow of packets to `to` through the tunnel to `relay`; they may follow at once.
    ///
    /// # Errors
    /// There is no tunnel.
    pub(crate) async fn open_packets(
        &self,
        relay: &str,
        asked: Asked<'_>,
        patience: Span,
    ) -> Result<Flow, Failure> {
        self.begin(relay, asked, patience, Carries::Packets).await
    }

    async fn begin(
        &self,
        relay: &str,
        asked: Asked<'_>,
        patience: Span,
        carries: Carries,
    ) -> Result<Flow, Failure> {
        let hops = one_more(asked.hops)?;
        let account = self.accounts.hash_one(asked.client).to_be_bytes();
        let opening = Opening {
            account: bytes::Bytes::copy_from_slice(&account),
            hops,
            target: target(asked.to),
            dscp: asked.dscp,
            carries,
        };
        let flow = self.relays.open(relay, opening, patience).await;
        flow.map_err(|error| {
            let kind = match error.reason {
                Reason::Exhausted => Kind::Exhausted,
                _ => Kind::Unreachable,
            };
            Failure::new(kind, error.words)
        })
    }

    /// Two ends of a connection on loopback, for a flow that came in.
    pub(crate) async fn pair(&self) -> std::io::Result<(TcpStream, TcpStream)> {
        self.plug.pair().await
    }

    /// Tells the relays at the other ends that this one stops.
    pub(crate) async fn close(&self) {
        self.relays.close().await;
    }

    pub(crate) fn status(&self) -> Vec<TunnelStatus> {
        self.relays.status().into_iter().map(TunnelStatus::from).collect()
    }
}

/// Through how many tunnels a request has come that goes through another after `hops`, which a peer may say as it likes.
fn one_more(hops: u8) -> Result<u8, Failure> {
    if hops >= MOST_HOPS {
        let text = format!("the request has come through {MOST_HOPS} tunnels already");
        return Err(Failure::new(Kind::Loop, text));
    }
    Ok(hops + 1)
}

fn target(to: &Destination) -> Target {
    let host = match &to.host {
        Host::Address(address) => frame::Host::Address(*address),
        Host::Name(name) => frame::Host::Name(name.clone()),
    };
    Target { host, port: to.port }
}

/// Where a flow that came in is to go; `None` where that is nowhere.
pub(crate) fn destination(target: &Target) -> Option<Destination> {
    let host = match &target.host {
        frame::Host::Address(address) => Host::from_address(*address),
        frame::Host::Name(name) => Host::from_name(name).ok()?,
    };
    Some(Destination { host, port: target.port })
}

/// What the other relay said, for the client of this one.
fn refused(relay: &str, reason: Reason, words: &str) -> Failure {
    let kind = match reason {
        Reason::NoName => Kind::NoName,
        Reason::Refused => Kind::Refused,
        Reason::Unreachable | Reason::TunnelLost => Kind::Unreachable,
        Reason::TimedOut => Kind::TimedOut,
        Reason::BadAnswer => Kind::BadAnswer,
        Reason::Closed | Reason::Stalled => Kind::Closed,
        // the other relay's own affairs: another way may do
        _ => Kind::UpstreamRefused,
    };
    let words = if words.is_empty() { reason.to_string() } else { words.to_owned() };
    Failure::new(kind, format!("relay «{relay}»: {words}"))
}

/// A flow of packets is over: in peace, or why not.
pub(crate) fn ended(relay: &str, ended: Ended) -> Result<(), Failure> {
    match ended {
        Ended::Closed | Ended::Here(_) | Ended::There(Reason::Closed, _) => Ok(()),
        Ended::There(reason, words) => Err(refused(relay, reason, &words)),
    }
}

/// The reason that the other relay is told.
pub(crate) const fn reason(kind: Kind) -> Reason {
    match kind {
        Kind::Denied | Kind::LogIn => Reason::Denied,
        Kind::Loop => Reason::Loop,
        Kind::NoName => Reason::NoName,
        Kind::Refused => Reason::Refused,
        Kind::Unreachable => Reason::Unreachable,
        Kind::TimedOut => Reason::TimedOut,
        Kind::UpstreamRefused => Reason::UpstreamRefused,
        Kind::NotAdmitted => Reason::NotAdmitted,
        Kind::BadAnswer | Kind::Malformed(_) => Reason::BadAnswer,
        Kind::Closed => Reason::Closed,
        Kind::Exhausted => Reason::Exhausted,
    }
}

/// A flow that came in and is not begun with yet.
#[derive(Debug)]
pub(crate) struct Arrival {
    relay: String,
    hops: u8,
    flow: Mutex<Option<(Incoming, TcpStream)>>,
}

impl Arrival {
    /// With the inner end of its connection.
    pub(crate) fn new(incoming: Incoming, inside: TcpStream) -> Arc<Self> {
        let (relay, hops) = (incoming.relay.clone(), incoming.opening.hops);
        Arc::new(Self { relay, hops, flow: Mutex::new(Some((incoming, inside))) })
    }

    /// Through how many tunnels it has come.
    pub(crate) const fn hops(&self) -> u8 {
        self.hops
    }

    /// What the relay is called here out of whose tunnel it came.
    pub(crate) fn relay(&self) -> &str {
        &self.relay
    }

    /// To begin with it, once.
    pub(crate) fn take(&self) -> Option<(Incoming, TcpStream)> {
        locked(&self.flow).take()
    }

    /// It may not come in.
    pub(crate) fn deny(&self, why: &str) {
        if let Some((Incoming { flow, .. }, _)) = self.take() {
            refuse(flow, Reason::Denied, why);
        }
    }

    /// There is no room for it.
    pub(crate) fn refuse(&self) {
        if let Some((Incoming { flow, .. }, _)) = self.take() {
            refuse(flow, Reason::Exhausted, "there is no room for another connection");
        }
    }
}

/// Says no to a flow that came in.
pub(crate) fn refuse(flow: Flow, reason: Reason, words: &str) {
    flow.refuse(reason, words.to_owned());
}

impl From<driver::TunnelStatus> for TunnelStatus {
    fn from(status: driver::TunnelStatus) -> Self {
        let micros = |span: Span| span.as_nanos() as f64 / 1e3;
        let seen = status.tunnel;
        let number = |get: fn(&ekiden_tunnel::core::Snapshot) -> u64| seen.as_ref().map_or(0, get);
        Self {
            relay: status.name,
            up: seen.is_some(),
            joined: status.joined,
            address: status
                .over_tcp
                .or_else(|| seen.as_ref().and_then(|seen| seen.address))
                .map(|at: SocketAddr| at.to_string()),
            over_tcp: status.over_tcp.is_some(),
            last_error: status.last_error,
            allotted: number(|seen| seen.allotted.as_bits_per_second()),
            receives: number(|seen| seen.receive.as_bits_per_second()),
            rate: number(|seen| seen.rate.as_bits_per_second()),
            line: seen.as_ref().and_then(|seen| seen.line).map(|line| line.as_bits_per_second()),
            rtt_us: seen.as_ref().map_or(0.0, |seen| micros(seen.rtt)),
            queue_us: seen.as_ref().map_or(0.0, |seen| micros(seen.queue_delay)),
            path_loss: seen.as_ref().map_or(0.0, |seen| seen.path_loss),
            contended: seen.as_ref().is_some_and(|seen| seen.contended),
            restrained: seen.as_ref().and_then(|seen| seen.breaker).map(|why| why.to_string()),
            packets: number(|seen| seen.packets),
            packets_lost: number(|seen| seen.lost),
            bytes_on_the_wire: number(|seen| seen.wire_bytes),
            in_flight: number(|seen| seen.in_flight),
            waiting: number(|seen| seen.waiting),
            held: number(|seen| seen.held),
            bytes_sent: number(|seen| seen.sent),
            bytes_received: number(|seen| seen.received),
            copies: number(|seen| seen.copies),
            bytes_copied: number(|seen| seen.copied_bytes),
            bytes_twice: number(|seen| seen.twice_bytes),
            flows: number(|seen| seen.flows as u64),
            mtu: number(|seen| seen.mtu.into()),
            pacing_error_p50_us: status.pacing.percentile(50).map(micros),
            pacing_error_p99_us: status.pacing.percentile(99).map(micros),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_goes_through_eight_tunnels_and_no_more() {
        let more = |hops| one_more(hops).map_err(|failure| failure.kind);
        assert_eq!((more(0), more(7)), (Ok(1), Ok(8)));
        assert_eq!((more(8), more(255)), (Err(Kind::Loop), Err(Kind::Loop)));
    }

    #[test]
    fn what_went_wrong_there_is_told_here() {
        for kind in [Kind::NoName, Kind::Refused, Kind::Unreachable, Kind::TimedOut, Kind::Closed] {
            assert_eq!(refused("far", reason(kind), "words").kind, kind);
        }
        let failure = refused("far", reason(Kind::Denied), "a rule refuses x:1");
        assert_eq!(
            (failure.status(), failure.text.as_str()),
            (502, "relay «far»: a rule refuses x:1")
        );
        assert_eq!(refused("far", Reason::TimedOut, "").status(), 504);
    }
}
