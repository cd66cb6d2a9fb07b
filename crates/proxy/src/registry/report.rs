//! What there is to see of one connection.

use super::{Entry, PROTOCOLS, STATES, State, locked};
use crate::resources::Resources;
use crate::status::{ConnectionStatus, Explanation, LegExplanation};
use ekiden_linux::clock;
use ekiden_model::traffic::Class;
use ekiden_model::units::Time;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

impl Entry {
    /// Everything there is to say about it.
    pub(crate) fn explain(&self, resources: &Resources) -> Explanation {
        let connection = self.status();
        let class = match connection.class.as_str() {
            "interactive" => "interactive: its bursts are of 64 KiB at most",
            "bulk" => "bulk: its last burst was of more than 64 KiB",
            _ => "not known: nothing has moved yet",
        };
        let way = match connection.through.as_slice() {
            [] => "direct".to_owned(),
            hops => format!("through {}", hops.join(" > ")),
        };
        let route = match &locked(&self.detail).route {
            Some(why) => format!("{way}: {why}"),
            None => "none yet: no request was read".to_owned(),
        };
        let idle = if self.silent.load(Relaxed) {
            "a silent tunnel, which may be closed to make room"
        } else if connection.state == STATES[State::Idle as usize] {
            "between two requests, and may be closed to make room"
        } else {
            "in use, and never closed to make room"
        };
        let household = match (&connection.household, &connection.waits) {
            (None, _) => "none claims it, and nothing limits it".to_owned(),
            (Some(name), None) => format!("«{name}»: it does not wait for its turn"),
            (Some(name), Some(waits)) => format!("«{name}»: {waits}"),
        };
        let [client, upstream] = self.leg_numbers();
        let legs = connection.legs.iter().map(|leg| LegExplanation {
            side: leg.side.clone(),
            buffers: resources.explain(if leg.side == "client" { client } else { upstream }),
        });
        let legs = legs.collect();
        let (class, idle) = (class.to_owned(), idle.to_owned());
        Explanation { connection, class, route, idle, household, legs }
    }

    pub(crate) fn status(&self) -> ConnectionStatus {
        let now = clock::now();
        let name = |names: &[&str], index: &AtomicU8| {
            names
                .get(usize::from(index.load(Relaxed)))
                .map_or_else(String::new, ToString::to_string)
        };
        let seconds = |since: Time| now.since(since).as_micros() as f64 / 1e6;
        let share = locked(&self.share).upgrade();
        let mut detail = locked(&self.detail);
        detail.look();
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
            household: share.as_ref().map(|share| share.household().to_owned()),
            waits: share.as_ref().and_then(|share| share.why()),
            account: detail.member.as_ref().map(|member| member.name.clone()),
            destination: detail.destination.clone(),
            through: detail.through.to_vec(),
            age_seconds: seconds(self.since),
            idle_seconds: seconds(detail.last),
            requests: self.requests.load(Relaxed),
            bytes_up: self.bytes_up.load(Relaxed),
            bytes_down: self.bytes_down.load(Relaxed),
            bytes_spliced: self.bytes_spliced.load(Relaxed),
            legs: legs
                .into_iter()
                .filter_map(|(side, leg)| leg.as_ref().and_then(|leg| leg.status(side)))
                .collect(),
        }
    }
}
