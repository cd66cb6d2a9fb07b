//! The proxy's places, buffers and idle connections: carries out `model`'s decisions in the order
//! of [`ekiden_model::resources::buffers`].

use super::client::Client;
use super::leg::{Leg, Origin, Peer, Stand};
use super::{Key, Knowledge, Proxy, ProxyResult, Waiting};
use crate::observer::Observer;
use crate::simulator::Simulator as Net;
use ekiden_model::resources::buffers::{Change, ConnectionFacts, Grant, NewConnection, RENO, Side};
use ekiden_model::resources::idle::Pool;
use ekiden_model::resources::overload::{AdmissionVerdict, Resource};
use ekiden_model::units::{Span, Time};

/// The number by which the proxy itself is called; clients have theirs.
const OWN: u32 = u32::MAX;
/// Between two looks at connections whose paths are estimated (algorithms/buffers A.5).
const LOOK: Span = Span::from_millis(100);

impl Proxy {
    /// Clients are woken, and the first tick is waited for.
    pub(super) fn begin<O: Observer>(&mut self, net: &mut Net<O>) {
        for (number, client) in (0..).zip(&self.clients) {
            net.call_proxy_at(client.due, number);
        }
        if self.config.knowledge == Knowledge::Estimated {
            self.look = Time::ZERO + LOOK;
        }
        self.count();
        self.arm(net);
    }

    /// A time that was asked for.
    pub(crate) fn on_event<O: Observer>(&mut self, net: &mut Net<O>, now: Time, number: u32) {
        if number != OWN {
            self.on_client(net, now, number);
        } else if self.wake <= now {
            self.wake = Time::NEVER;
            self.on_deadlines(net, now);
        }
        self.arm(net);
    }

    fn arm<O: Observer>(&mut self, net: &mut Net<O>) {
        let due = self.allocator.deadline().min(self.register.deadline());
        let due = due.min(self.admission.deadline()).min(self.look);
        if due < self.wake {
            self.wake = due;
            net.call_proxy_at(due, OWN);
        }
    }

    fn on_deadlines<O: Observer>(&mut self, net: &mut Net<O>, now: Time) {
        while let Some(due) = self.register.due(now) {
            self.close(net, now, due.payload);
        }
        while let Some(who) = self.admission.on_deadline(now) {
            self.refuse(net, now, who);
        }
        if self.look <= now {
            self.look = now + LOOK;
            self.look_at_all(net, now);
        }
        let tick = self.allocator.deadline() <= now;
        while tick && self.config.scheme.admission().evict && self.pressure.low() {
            // `when full` closes one at most: newcomers have their own decision
            let Some(idle) = self.register.evict() else { break };
            self.close(net, now, idle.payload);
        }
        let allocator = &mut self.allocator;
        self.register.shrink(now, |_, number| allocator.on_shrink(u64::from(*number)));
        if tick {
            if self.config.knowledge == Knowledge::Perfect {
                self.look_at_all(net, now);
            }
            let changes = self.allocator.on_deadline(now);
            self.apply(net, now, &changes);
            let report = self.allocator.snapshot();
            self.result.ticks += 1;
            self.result.most_granted = self.result.most_granted.max(report.granted);
            self.result.demanded += report.demand.as_u64();
        }
        self.serve(net, now);
    }

    /// Those who wait come in as long as there is room.
    pub(super) fn serve<O: Observer>(&mut self, net: &mut Net<O>, now: Time) {
        while let Some((who, verdict)) = self.admission.next(&self.pressure, self.register.len()) {
            self.let_in(net, now, who, verdict);
        }
        self.arm(net);
    }

    /// One has a place, after so many idle ones are closed.
    pub(super) fn let_in<O: Observer>(
        &mut self,
        net: &mut Net<O>,
        now: Time,
        who: Waiting,
        verdict: AdmissionVerdict,
    ) {
        if let AdmissionVerdict::Evict(many) = verdict {
            for _ in 0..many {
                let Some(idle) = self.register.evict() else { break };
                self.close(net, now, idle.payload);
            }
        }
        match who {
            Waiting::Client(number) => {
                let waited = self.leg_mut(number).is_some_and(|leg| {
                    let waited = leg.stand == Stand::Waiting;
                    leg.stand = Stand::Busy;
                    waited
                });
                let changes = self.take_place(now, number);
                self.apply(net, now, &changes);
                if waited {
                    net.answer_syn(now, number);
                }
            }
            Waiting::Server(client) => self.open_server(net, now, client),
        }
    }

    /// A connection of this number takes a place; answers its first buffers.
    pub(super) fn take_place(&mut self, now: Time, number: u32) -> Vec<Change> {
        self.open += 1;
        self.result.opened += 1;
        self.result.most_open = self.result.most_open.max(self.open);
        self.count();
        let Some(leg) = self.leg(number) else { return Vec::new() };
        let peer = leg.peer;
        let (send, receive) = (matches!(peer, Peer::Client(_)), matches!(peer, Peer::Server(_)));
        let mss = u64::from(self.flow.sender.mss);
        let id = u64::from(number);
        let changes =
            self.allocator.on_open(now, id, NewConnection { gamma: RENO, mss, send, receive });
        if self.config.knowledge == Knowledge::Perfect
            && let Some(far) = self.far(peer)
        {
            let side = if send { Side::Send } else { Side::Receive };
            self.allocator.on_known(id, side, Some(far.rate));
        }
        changes
    }

    /// An idle connection is closed; its peer hears of it half a round trip later.
    pub(super) fn close<O: Observer>(&mut self, net: &mut Net<O>, now: Time, number: u32) {
        let Some(leg) = self.legs.get_mut(number as usize).and_then(Option::take) else { return };
        self.allocator.on_close(number.into());
        self.open -= 1;
        self.count();
        net.end(now, number);
        if let Peer::Client(client) = leg.peer
            && !leg.abandoned
        {
            self.on_closed(net, now, client);
        }
    }

    pub(super) fn refuse<O: Observer>(&mut self, net: &mut Net<O>, now: Time, who: Waiting) {
        match who {
            Waiting::Client(number) => {
                let leg = self.legs.get_mut(number as usize).and_then(Option::take);
                let Some(leg) = leg else { return };
                net.end(now, number);
                if let Peer::Client(client) = leg.peer {
                    self.on_refused(net, now, client);
                }
            }
            Waiting::Server(number) => self.answer_refusal(net, now, number),
        }
    }

    pub(super) fn count(&mut self) {
        let most = Some(self.config.most_connections);
        self.pressure.on_level(Resource::Connections, self.open, most);
    }

    /// A connection becomes idle.
    pub(super) fn rest<O: Observer>(&mut self, net: &Net<O>, now: Time, number: u32) {
        let Some(leg) = self.leg(number) else { return };
        let (key, facts) = (key(leg.peer, number), self.facts(net, leg));
        // the last look says that nothing stands in its buffers
        if let Some(facts) = facts {
            self.allocator.on_facts(now, number.into(), &facts);
        }
        let handle = self.register.insert(now, key, number);
        self.allocator.on_idle(number.into());
        if let Some(leg) = self.leg_mut(number) {
            leg.stand = Stand::Idle(handle);
        }
    }

    /// The idle connection of this key is used again, if there is one.
    pub(super) fn reuse<O: Observer>(
        &mut self,
        net: &mut Net<O>,
        now: Time,
        key: Key,
    ) -> Option<u32> {
        let number = self.register.reuse(&key)?.payload;
        let changes = self.allocator.on_active(now, number.into());
        self.apply(net, now, &changes);
        self.leg_mut(number)?.stand = Stand::Busy;
        self.arm(net);
        Some(number)
    }

    pub(super) fn apply<O: Observer>(&mut self, net: &mut Net<O>, now: Time, changes: &[Change]) {
        for change in changes {
            let number = change.id as u32;
            let size = match change.grant {
                Grant::Bytes(size) => size,
                // no scheme leaves a buffer to a kernel
                Grant::Automatic => continue,
            };
            let Some(leg) = self.leg(number) else { continue };
            let down = leg.down;
            match change.side {
                Side::Send => {
                    net.set_send_buffer(down, size);
                    self.on_room(net, now, down);
                }
                Side::Receive => net.set_receive_buffer(now, down, size),
            }
        }
    }

    fn look_at_all<O: Observer>(&mut self, net: &Net<O>, now: Time) {
        for number in 0..self.legs.len() as u32 {
            let Some(leg) = self.leg(number) else { continue };
            let busy = leg.stand == Stand::Busy;
            let perfect = self.config.knowledge == Knowledge::Perfect;
            if matches!(leg.stand, Stand::Coming | Stand::Waiting) || !(busy || perfect) {
                continue;
            }
            if let Some(facts) = self.facts(net, leg) {
                self.allocator.on_facts(now, number.into(), &facts);
            }
        }
    }

    fn facts<O: Observer>(&self, net: &Net<O>, leg: &Leg) -> Option<ConnectionFacts> {
        let far = self.far(leg.peer)?;
        let mss = u64::from(self.flow.sender.mss);
        let is_client = matches!(leg.peer, Peer::Client(_));
        let unread = net.unread(leg.down);
        let queued = if is_client { net.queued(leg.down) } else { 0 };
        if self.config.knowledge == Knowledge::Perfect {
            return Some(ConnectionFacts {
                rtt: far.round_trip(),
                mss,
                queued,
                unread,
                ..ConnectionFacts::default()
            });
        }
        // the side of it that the proxy is the sender of
        let sender = net.look(if is_client { leg.down } else { leg.up });
        let held_back = leg.works_for.and_then(|client| self.leg(client));
        Some(ConnectionFacts {
            rtt: sender.smoothed,
            rto: sender.rto,
            mss,
            segments_sent: sender.count.sent,
            retransmitted: sender.count.retransmitted,
            bytes_received: if is_client { 0 } else { net.come(leg.down) },
            queued,
            unread,
            held_back: held_back.is_some_and(|client| net.writable(client.down) == 0),
            ..ConnectionFacts::default()
        })
    }

    fn far(&self, peer: Peer) -> Option<&super::set_up::FarHost> {
        match peer {
            Peer::Client(number) => self.clients.get(number as usize).map(|client| &client.far),
            Peer::Server(number) => self.servers.get(number as usize),
        }
    }

    pub(super) fn leg(&self, number: u32) -> Option<&Leg> {
        self.legs.get(number as usize)?.as_ref()
    }

    pub(super) fn leg_mut(&mut self, number: u32) -> Option<&mut Leg> {
        self.legs.get_mut(number as usize)?.as_mut()
    }

    pub(super) fn put_leg(&mut self, number: u32, leg: Leg) {
        let at = number as usize;
        if self.legs.len() <= at {
            self.legs.resize_with(at + 1, || None);
        }
        if let Some(place) = self.legs.get_mut(at) {
            *place = Some(leg);
        }
    }

    pub(super) fn client_mut(&mut self, number: u32) -> Option<&mut Client> {
        self.clients.get_mut(number as usize)
    }

    pub(crate) fn result(&self) -> ProxyResult {
        let outstanding = self.clients.iter().filter(|client| client.wish.is_some()).count();
        ProxyResult {
            outstanding: outstanding as u64,
            idle: Some(self.register.snapshot()),
            admission: Some(self.admission.snapshot()),
            ..self.result.clone()
        }
    }

    /// The connection whose request waits longest for a connection to this server.
    pub(super) fn waits_for(&self, server: u32) -> Option<u32> {
        let waits = |leg: &Leg| {
            let Peer::Client(client) = leg.peer else { return None };
            let wish = self.clients.get(client as usize)?.wish?;
            let sought = matches!(leg.origin, Origin::Sought(_)) && wish.server == server;
            sought.then_some(wish.since)
        };
        let numbered = (0..).zip(&self.legs);
        let waiting = numbered.filter_map(|(number, leg)| Some((waits(leg.as_ref()?)?, number)));
        waiting.min().map(|(_, number)| number)
    }
}

fn key(peer: Peer, number: u32) -> Key {
    match peer {
        Peer::Client(_) => Pool::Client(number),
        Peer::Server(server) => Pool::Server(server),
    }
}
