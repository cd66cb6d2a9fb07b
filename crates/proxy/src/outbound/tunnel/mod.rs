//! Tunnels to peers.

pub(crate) mod measure;
mod owner;
mod unresolved;

pub(crate) use owner::{FlowOwner, asker_behind};

use crate::destination::{Destination, Host};
use crate::error::{Failure, FailureKind, LateFailure};
use crate::observe::leg_stats::TunnelLeg;
use crate::observe::status::TunnelStatus;
use crate::settings::Settings;
use crate::transfer::end::End;
use ekiden_model::units::Span;
use ekiden_tunnel::core::Limits;
use ekiden_tunnel::driver::{self, Ended, Flow, Incoming, Peers};
use ekiden_tunnel::frame::reason::Reason;
use ekiden_tunnel::frame::{self, Carries, Opening, Target};
use ekiden_tunnel::trust::Store;
use std::hash::RandomState;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::sync::mpsc;
use unresolved::Unresolved;

/// The most tunnels that a request may pass; more indicate a loop. Intended chains have two or three.
const MOST_HOPS: u8 = 8;
/// Received flows that wait to be served.
const WAITING: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Tunnels {
    peers: Peers,
    /// Numbers owners of flows for peers, which can tell them apart but not identify them.
    accounts: RandomState,
    unresolved: Arc<Unresolved>,
}

#[derive(Debug)]
pub(crate) struct TunnelStream {
    pub(crate) stream: End,
    pub(crate) answer: Arc<LateFailure>,
    pub(crate) leg: TunnelLeg,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct FlowRequest<'a> {
    pub(crate) to: &'a Destination,
    pub(crate) client: IpAddr,
    pub(crate) owner: FlowOwner<'a>,
    pub(crate) hops: u8,
    /// The DSCP of the client's packets, if known.
    pub(crate) dscp: Option<u8>,
}

impl Tunnels {
    /// Listens for peers and connects to them; the receiver yields their flows. Errors are in
    /// words.
    pub(crate) fn start(
        settings: &Settings,
    ) -> Result<(Self, mpsc::Receiver<Incoming>), Box<dyn std::error::Error + Send + Sync>> {
        let tunnel = &settings.tunnel;
        let directory = tunnel
            .state
            .clone()
            .ok_or("there is no directory for the keys of peers; set `state` in [tunnel]")?;
        let (sender, incoming) = mpsc::channel(WAITING);
        let settings = driver::Settings {
            store: Store::new(directory),
            listen: tunnel.listen.clone(),
            carrier: tunnel.carrier,
            dscp: [tunnel.interactive_dscp, tunnel.bulk_dscp],
            limits: Limits { memory: tunnel.memory, ..Limits::default() },
            // strangers can keep them busy: the other half is for what they have no hand in
            threads: std::thread::available_parallelism().map_or(1, usize::from).div_ceil(2),
        };
        let peers = Peers::start(settings, sender)?;
        let unresolved = Arc::default();
        Ok((Self { peers, accounts: RandomState::new(), unresolved }, incoming))
    }

    pub(crate) fn is_up(&self, peer: &str) -> bool {
        self.peers.is_up(peer)
    }

    /// Opens a flow to `to` through the tunnel to `peer`, which is waited for as long as `patience`.
    /// With `answer` the destination has answered when this returns, which is waited for so long and no longer: the peer
    /// decides when it answers. Without, a refusal becomes a reset, and [`LateFailure`] has its text.
    pub(crate) async fn open(
        &self,
        peer: &str,
        asked: FlowRequest<'_>,
        patience: Span,
        answer: Option<Span>,
    ) -> Result<TunnelStream, Failure> {
        let name = match &asked.to.host {
            Host::Name(name) => Some(name.clone()),
            Host::Address(_) => None,
        };
        let flow = self.begin(peer, asked, patience, Carries::Stream).await?;
        if let Some(limit) = answer {
            let answered = tokio::time::timeout(limit.into(), flow.answered()).await;
            let answered = answered.map_err(|_| {
                let text = format!("peer \"{peer}\" did not answer within {limit}");
                Failure::new(FailureKind::TimedOut, text)
            })?;
            answered.map_err(|(reason, words)| {
                if let (Reason::NoName, Some(name)) = (reason, &name) {
                    self.unresolved.insert(peer, name);
                }
                refused(peer, reason, &words)
            })?;
        }
        let answer = Arc::new(LateFailure::default());
        let late = Arc::clone(&answer);
        let leg = TunnelLeg { peer: peer.into(), flow: flow.view() };
        let (peer, unresolved) = (peer.to_owned(), Arc::clone(&self.unresolved));
        let stream = flow.into_stream(move |reason, words, was_refused| {
            if let (Reason::NoName, Some(name)) = (reason, &name) {
                unresolved.insert(&peer, name);
            }
            late.set(refused(&peer, reason, words), was_refused);
        });
        Ok(TunnelStream { stream: End::Flow(Arc::new(stream)), answer, leg })
    }

    /// Whether the peer reported a moment ago that it cannot resolve the name of `to`.
    pub(crate) fn is_unresolved(&self, peer: &str, to: &Destination) -> bool {
        matches!(&to.host, Host::Name(name) if self.unresolved.contains(peer, name))
    }

    /// Opens a packet flow to `to` through the tunnel to `peer`; packets may follow at once. `coded`: lost ones are
    /// repaired, and all come in their order, where the peer can do that.
    pub(crate) async fn open_packets(
        &self,
        peer: &str,
        asked: FlowRequest<'_>,
        patience: Span,
        coded: bool,
    ) -> Result<Flow, Failure> {
        let carries = if coded { Carries::Coded } else { Carries::Packets };
        self.begin(peer, asked, patience, carries).await
    }

    async fn begin(
        &self,
        peer: &str,
        asked: FlowRequest<'_>,
        patience: Span,
        carries: Carries,
    ) -> Result<Flow, Failure> {
        let hops = one_more(asked.hops)?;
        let opening = Opening {
            account: asked.owner.text(&self.accounts),
            hops,
            target: target(asked.to),
            dscp: asked.dscp,
            carries,
        };
        let flow = self.peers.open(peer, opening, patience).await;
        flow.map_err(|error| {
            let kind = match error.reason {
                Reason::Exhausted => FailureKind::Exhausted,
                _ => FailureKind::NoTunnel,
            };
            Failure { retry_after: error.retry_after, ..Failure::new(kind, error.words) }
        })
    }

    pub(crate) async fn close(&self) {
        self.peers.close().await;
    }

    /// Why a peer that joins cannot be saved.
    pub(crate) fn unsaved(&self) -> Option<String> {
        self.peers.unsaved()
    }

    pub(crate) fn status(&self) -> Vec<TunnelStatus> {
        self.peers.status().into_iter().map(TunnelStatus::from).collect()
    }
}

/// The hop count after another tunnel. `hops` comes from a peer, so it is not trusted.
fn one_more(hops: u8) -> Result<u8, Failure> {
    if hops >= MOST_HOPS {
        let text = format!("the request went through {MOST_HOPS} tunnels already");
        return Err(Failure::new(FailureKind::Loop, text));
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

/// The destination of a received flow; `None` when it is invalid.
pub(crate) fn destination(target: &Target) -> Option<Destination> {
    let host = match &target.host {
        frame::Host::Address(address) => Host::from_address(*address),
        frame::Host::Name(name) => Host::from_name(name).ok()?,
    };
    Some(Destination { host, port: target.port })
}

/// Failures and the reasons that stand for them between peers. The first match counts, in both directions.
const REASONS: [(FailureKind, Reason); 10] = [
    (FailureKind::NoName, Reason::NoName),
    (FailureKind::NameTimedOut, Reason::NoName),
    (FailureKind::Refused, Reason::Refused),
    (FailureKind::Unreachable, Reason::Unreachable),
    (FailureKind::NoTunnel, Reason::TunnelLost),
    (FailureKind::TimedOut, Reason::TimedOut),
    (FailureKind::BadAnswer, Reason::BadAnswer),
    (FailureKind::Closed, Reason::Closed),
    (FailureKind::Closed, Reason::Stalled),
    (FailureKind::UpstreamRefused, Reason::UpstreamRefused),
];

pub(crate) fn reason(kind: FailureKind) -> Reason {
    match kind {
        FailureKind::Denied | FailureKind::Prohibited | FailureKind::LogIn => Reason::Denied,
        FailureKind::Loop => Reason::Loop,
        FailureKind::NotAdmitted => Reason::NotAdmitted,
        FailureKind::Malformed(_) => Reason::BadAnswer,
        FailureKind::Exhausted => Reason::Exhausted,
        _ => REASONS.iter().find(|(of, _)| *of == kind).map_or(Reason::Closed, |(_, r)| *r),
    }
}

/// A peer's refusal, for the client of this relay.
fn refused(peer: &str, reason: Reason, words: &str) -> Failure {
    let found = REASONS.iter().find(|(_, of)| *of == reason);
    // the peer's own condition: another way may succeed
    let kind = found.map_or(FailureKind::UpstreamRefused, |(kind, _)| *kind);
    let words = if words.is_empty() { reason.to_string() } else { words.to_owned() };
    Failure::new(kind, format!("peer \"{peer}\": {words}"))
}

/// The end of a packet flow: regular, or a failure.
pub(crate) fn ended(peer: &str, ended: Ended) -> Result<(), Failure> {
    match ended {
        Ended::Closed | Ended::There(Reason::Closed, _) => Ok(()),
        Ended::There(reason, words) => Err(refused(peer, reason, &words)),
    }
}

impl From<driver::TunnelStatus> for TunnelStatus {
    fn from(status: driver::TunnelStatus) -> Self {
        let micros = |span: Span| span.as_nanos() as f64 / 1e3;
        let seen = status.tunnel;
        let number = |get: fn(&ekiden_tunnel::core::Snapshot) -> u64| seen.as_ref().map_or(0, get);
        Self {
            peer: status.name,
            up: seen.is_some(),
            joined: status.joined,
            address: status
                .over_tcp
                .or_else(|| seen.as_ref().and_then(|seen| seen.address))
                .map(|at: SocketAddr| at.to_string()),
            over_tcp: status.over_tcp.is_some(),
            last_error: status.last_error,
            down_seconds: status.down_for.map(|span| span.as_secs_f64()),
            retry_in_seconds: status.retry_in.map(|span| span.as_secs_f64()),
            allotted: number(|seen| seen.allotted.as_bits_per_second()),
            receives: number(|seen| seen.receive.as_bits_per_second()),
            rate: number(|seen| seen.rate.as_bits_per_second()),
            line: seen.as_ref().and_then(|seen| seen.line).map(|line| line.as_bits_per_second()),
            rtt_us: seen.as_ref().map_or(0.0, |seen| micros(seen.rtt)),
            queue_us: seen.as_ref().map_or(0.0, |seen| micros(seen.queue_delay)),
            path_loss: seen.as_ref().map_or(0.0, |seen| seen.path_loss),
            contended: seen.as_ref().is_some_and(|seen| seen.contended),
            restrained: seen.as_ref().and_then(|seen| seen.restrained).map(|why| why.to_string()),
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
            repairs: number(|seen| seen.repairs),
            bytes_repairs: number(|seen| seen.repair_bytes),
            bytes_repaired: number(|seen| seen.repaired_bytes),
            flows: number(|seen| seen.flows as u64),
            orphans: number(|seen| seen.orphans as u64),
            orphans_reset: number(|seen| seen.orphans_reset),
            mtu: number(|seen| seen.mtu.into()),
            unmarked: seen.as_ref().and_then(|seen| seen.unmarked).map(|lane| match lane {
                0 => "interactive".to_owned(),
                _ => "bulk".to_owned(),
            }),
            pacing_error_p50_us: status.pacing.percentile(50).map(micros),
            pacing_error_p99_us: status.pacing.percentile(99).map(micros),
        }
    }
}

#[cfg(test)]
mod silent_peer;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_passes_at_most_eight_tunnels() {
        let more = |hops| one_more(hops).map_err(|failure| failure.kind);
        assert_eq!((more(0), more(7)), (Ok(1), Ok(8)));
        assert_eq!((more(8), more(255)), (Err(FailureKind::Loop), Err(FailureKind::Loop)));
    }

    #[test]
    fn reasons_round_trip_between_peers() {
        for kind in [
            FailureKind::NoName,
            FailureKind::Refused,
            FailureKind::Unreachable,
            FailureKind::NoTunnel,
            FailureKind::TimedOut,
            FailureKind::Closed,
        ] {
            assert_eq!(refused("far", reason(kind), "words").kind, kind);
        }
        let failure = refused("far", reason(FailureKind::Denied), "a rule refuses x:1");
        assert_eq!(
            (failure.status(), failure.text.as_str()),
            (502, "peer \"far\": a rule refuses x:1")
        );
        assert_eq!(refused("far", Reason::TimedOut, "").status(), 504);
    }
}
