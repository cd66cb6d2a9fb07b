//! The status of one connection.

use super::slowest::{Around, TunnelShare, slowest};
use super::{ConnectionEntry, ConnectionState, PROTOCOLS, STATES};
use crate::observe::leg_stats::LegStats;
use crate::observe::status::{
    ConnectionStatus, Explanation, GrantStatus, LegExplanation, TunnelStatus,
};
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::control::classifier::Class;
use ekiden_model::units::Time;
use std::sync::Weak;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

impl ConnectionEntry {
    /// What its figures and those around it say. `connection` is its status.
    pub(crate) fn explain(
        &self,
        connection: ConnectionStatus,
        around: &Around<'_>,
        buffers: impl Fn(u64) -> Vec<GrantStatus>,
    ) -> Explanation {
        let class = match connection.class.as_str() {
            "interactive" => "interactive: its bursts are at most 64 KiB",
            "bulk" => "bulk: its last burst exceeded 64 KiB",
            _ => "unknown: nothing has moved yet",
        };
        let way = match connection.through.as_slice() {
            [] => "direct".to_owned(),
            hops => format!("through {}", hops.join(" > ")),
        };
        let route = match &locked(&self.detail).route {
            Some(why) => format!("{way}: {why}"),
            None => "none yet: no request has been read".to_owned(),
        };
        let idle = if self.silent.load(Relaxed) {
            "a silent tunnel, which may be closed to make room"
        } else if connection.state == STATES[ConnectionState::Idle as usize] {
            "between two requests, and may be closed to make room"
        } else {
            "in use, and never closed to make room"
        };
        let limits = match (&connection.account, &connection.waits) {
            (None, _) => "no account claims it, and nothing limits it".to_owned(),
            (Some(name), None) => format!("\"{name}\": it does not wait"),
            (Some(name), Some(waits)) => format!("\"{name}\": {waits}"),
        };
        let [client, upstream] = self.leg_numbers();
        let legs = connection.legs.iter().map(|leg| LegExplanation {
            side: leg.side.clone(),
            buffers: buffers(if leg.side == "client" { client } else { upstream }),
        });
        let legs = legs.collect();
        let (class, idle) = (class.to_owned(), idle.to_owned());
        let slowest = slowest(&connection, around);
        Explanation { connection, class, route, idle, limits, slowest, legs }
    }

    /// Its account's name, where it has one.
    pub(crate) fn account_name(&self) -> Option<String> {
        let known = locked(&self.detail).account.as_ref().map(|account| account.name.clone());
        let share = || locked(&self.share).as_ref().and_then(Weak::upgrade);
        known.or_else(|| Some(share()?.account().to_owned()))
    }

    /// Whether a leg of it goes through the tunnel to this peer: the client's, the upstream's.
    pub(crate) fn is_carried_by(&self, peer: &str) -> bool {
        let detail = locked(&self.detail);
        let mut legs = [&detail.client, &detail.upstream].into_iter().flatten();
        legs.any(|leg| leg.tunnel().is_some_and(|tunnel| *tunnel.peer == *peer))
    }

    /// What it takes of the tunnel that carries it; the client's leg counts before the upstream's.
    pub(super) fn tunnel_share(&self, now: Time) -> Option<TunnelShare> {
        let (tunnel, from_client, [up, down]) = {
            let detail = locked(&self.detail);
            let of = |leg: &Option<LegStats>| leg.as_ref().and_then(|leg| leg.tunnel().cloned());
            let (client, upstream) = (of(&detail.client), of(&detail.upstream));
            let from_client = client.is_some();
            let rates = detail.rates.each_ref().map(|meter| meter.rate(now).as_bits_per_second());
            (client.or(upstream)?, from_client, rates)
        };
        let (into, receives) = if from_client { (down, up) } else { (up, down) };
        let waits = || tunnel.flow.status().is_some_and(|flow| flow.queued > 0);
        let name = self.account_name().unwrap_or_else(|| match from_client {
            true => format!("peer {}", tunnel.peer),
            false => self.client.ip().to_canonical().to_string(),
        });
        Some(TunnelShare { sends: into > 0 || waits(), receives, name, peer: tunnel.peer })
    }

    pub(crate) fn status(&self, tunnels: &[TunnelStatus]) -> ConnectionStatus {
        let now = clock::now();
        let name = |names: &[&str], index: &AtomicU8| {
            names
                .get(usize::from(index.load(Relaxed)))
                .map_or_else(String::new, ToString::to_string)
        };
        let seconds = |since: Time| now.since(since).as_micros() as f64 / 1e6;
        let share = locked(&self.share).as_ref().and_then(Weak::upgrade);
        let mut detail = locked(&self.detail);
        detail.check();
        let [rate_up, rate_down] =
            detail.rates.each_ref().map(|meter| meter.rate(now).as_bits_per_second());
        let legs = [("client", &detail.client), ("upstream", &detail.upstream)];
        ConnectionStatus {
            id: self.id,
            protocol: name(&PROTOCOLS, &self.protocol),
            state: name(&STATES, &self.state),
            class: match detail.bursts.class() {
                Class::Unknown => "unknown",
                Class::Interactive => "interactive",
                Class::Bulk => "bulk",
            }
            .to_owned(),
            client: self.client,
            account: detail
                .account
                .as_ref()
                .map(|account| account.name.clone())
                .or_else(|| share.as_ref().map(|share| share.account().to_owned())),
            waits: share.as_ref().and_then(|share| share.waits()).or_else(|| self.carrier_waits()),
            destination: detail.destination.clone(),
            through: detail.through.to_vec(),
            age_seconds: seconds(self.since),
            idle_seconds: seconds(detail.last),
            requests: self.requests.load(Relaxed),
            bytes_up: self.bytes_up.load(Relaxed),
            bytes_down: self.bytes_down.load(Relaxed),
            bytes_spliced: self.bytes_spliced.load(Relaxed),
            rate_up,
            rate_down,
            legs: legs
                .into_iter()
                .filter_map(|(side, leg)| leg.as_ref().and_then(|leg| leg.status(side, tunnels)))
                .collect(),
        }
    }
}
