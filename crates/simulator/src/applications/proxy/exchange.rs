//! Requests and answers: from a client to the proxy, from there to a server or the cache, and back.

use super::leg::{Leg, Origin, Peer, Stand};
use super::{Proxy, Waiting};
use crate::observer::Observer;
use crate::simulator::Simulator as Net;
use ekiden_model::resources::buffers::Grant;
use ekiden_model::resources::idle::Pool;
use ekiden_model::resources::overload::AdmissionVerdict::{Evict, Proceed, Refuse, Wait};
use ekiden_model::units::{Bytes, Time};

/// A request, bytes. The proxy-pressure study does not say.
const REQUEST: u64 = 300;
/// An answer that says that there is no place, bytes.
const REFUSAL: u64 = 200;

impl Proxy {
    /// A client's own time has come: it asks, or asks again.
    pub(super) fn on_client<O: Observer>(&mut self, net: &mut Net<O>, now: Time, number: u32) {
        let (surge, servers, hits) =
            (self.config.surge, self.servers.len() as u32, self.config.hits);
        let due = self.client_mut(number).filter(|client| client.due == now);
        let Some(client) = due else { return };
        client.due = Time::NEVER;
        if client.wish.is_none() {
            client.next_wish(now, &surge, servers, hits);
            self.result.asked += 1;
        }
        self.ask(net, now, number);
    }

    /// A client sends what it wishes, over the connection that it has or a new one.
    fn ask<O: Observer>(&mut self, net: &mut Net<O>, now: Time, number: u32) {
        let Some(client) = self.client_mut(number) else { return };
        if let Some(connection) = client.connection {
            self.send_request(net, now, connection);
            return;
        }
        let (far, hears) = (client.far, client.hears);
        if now < hears {
            // what it sent over the old connection it will send again when it hears of its end
            client.due = hears;
            self.result.repeated += 1;
            net.call_proxy_at(hears, number);
            return;
        }
        let host = self.host;
        let config = self.connection(far.node, host);
        let (connection, flows) = net.begin(now, config, far.routes, self.flows(None));
        self.put_leg(connection, Leg::new(Peer::Client(number), Stand::Coming, flows));
        if let Some(client) = self.client_mut(number) {
            client.connection = Some(connection);
        }
    }

    fn send_request<O: Observer>(&mut self, net: &mut Net<O>, now: Time, number: u32) {
        let Some(leg) = self.leg_mut(number) else { return };
        leg.asked += REQUEST;
        let up = leg.up;
        net.put(now, up, REQUEST);
    }

    /// A client's SYN has come, or one that was sent again. Whether it is answered now.
    pub(crate) fn on_syn<O: Observer>(&mut self, net: &mut Net<O>, now: Time, number: u32) -> bool {
        let Some(leg) = self.leg(number) else { return false };
        match (leg.peer, leg.stand) {
            (Peer::Client(_), Stand::Coming) => {}
            (_, Stand::Waiting) => return false,
            _ => return true,
        }
        let who = Waiting::Client(number);
        let verdict = self.admission.ask(now, who, &self.pressure, self.register.len());
        match verdict {
            Proceed | Evict(_) => self.let_in(net, now, who, verdict),
            Wait(_) => {
                if let Some(leg) = self.leg_mut(number) {
                    leg.stand = Stand::Waiting;
                }
            }
            Refuse { .. } => self.refuse(net, now, who),
        }
        self.serve(net, now);
        matches!(verdict, Proceed | Evict(_))
    }

    /// A connection stands: what it was opened for goes out.
    pub(crate) fn on_connected<O: Observer>(&mut self, net: &mut Net<O>, now: Time, number: u32) {
        let Some(leg) = self.leg(number) else { return };
        let used = match leg.peer {
            Peer::Client(client) => {
                self.clients.get(client as usize).is_some_and(|client| client.wish.is_some())
            }
            Peer::Server(_) => leg.works_for.is_some(),
        };
        if used && leg.asked == 0 {
            self.send_request(net, now, number);
        }
    }

    /// Bytes have come in order.
    pub(crate) fn on_bytes<O: Observer>(&mut self, net: &mut Net<O>, now: Time, flow: u32) {
        let Some(number) = net.connection_of(flow) else { return };
        let Some(leg) = self.leg(number) else { return };
        let come = net.come(flow);
        if flow == leg.up {
            if leg.taken < leg.asked && come >= leg.asked {
                match leg.peer {
                    Peer::Client(client) => self.on_request(net, now, number, client),
                    Peer::Server(_) => self.on_server_request(net, now, number),
                }
            }
            return;
        }
        match leg.peer {
            Peer::Client(client) => self.on_answer(net, now, number, client, come),
            Peer::Server(_) => self.pump(net, now, number),
        }
    }

    fn on_request<O: Observer>(&mut self, net: &mut Net<O>, now: Time, number: u32, client: u32) {
        let wish = self.clients.get(client as usize).and_then(|client| client.wish);
        let (Some(leg), Some(wish)) = (self.leg_mut(number), wish) else { return };
        leg.taken = leg.asked;
        leg.answering = true;
        leg.refused = false;
        if matches!(leg.stand, Stand::Idle(_)) {
            self.reuse(net, now, Pool::Client(number));
        }
        if wish.hit {
            self.allocator.on_hit(number.into());
            self.answer_itself(net, now, number, wish.bytes);
            return;
        }
        self.allocator.on_miss(number.into());
        if let Some(server) = self.reuse(net, now, Pool::Server(wish.server)) {
            self.assign(number, server);
            self.send_request(net, now, server);
            return;
        }
        let who = Waiting::Server(number);
        let verdict = self.admission.ask(now, who, &self.pressure, self.register.len());
        match verdict {
            Proceed | Evict(_) => self.let_in(net, now, who, verdict),
            Wait(ticket) => {
                if let Some(leg) = self.leg_mut(number) {
                    leg.origin = Origin::Sought(ticket);
                }
            }
            Refuse { .. } => self.answer_refusal(net, now, number),
        }
        self.serve(net, now);
    }

    /// The proxy answers by itself.
    fn answer_itself<O: Observer>(&mut self, net: &mut Net<O>, now: Time, number: u32, bytes: u64) {
        let Some(leg) = self.leg_mut(number) else { return };
        leg.origin = Origin::Own;
        leg.unwritten = bytes;
        leg.end += bytes;
        self.fill(net, now, number);
    }

    /// There was no place for a connection to the server.
    pub(super) fn answer_refusal<O: Observer>(&mut self, net: &mut Net<O>, now: Time, number: u32) {
        if let Some(leg) = self.leg_mut(number) {
            leg.refused = true;
            self.answer_itself(net, now, number, REFUSAL);
        }
    }

    /// A new connection to the server that a client's request needs.
    pub(super) fn open_server<O: Observer>(&mut self, net: &mut Net<O>, now: Time, client: u32) {
        let Some(Peer::Client(person)) = self.leg(client).map(|leg| leg.peer) else { return };
        let wish = self.clients.get(person as usize).and_then(|person| person.wish);
        let Some(server) = wish.map(|wish| wish.server) else { return };
        let Some(far) = self.servers.get(server as usize).copied() else { return };
        let host = self.host;
        let number = net.vacant();
        let leg = Leg::new(Peer::Server(server), Stand::Busy, [u32::MAX; 2]);
        self.put_leg(number, leg);
        // the window of the SYN is what the buffer has
        let changes = self.take_place(now, number);
        let size = changes.iter().find_map(|change| match change.grant {
            Grant::Bytes(size) => Some(size),
            Grant::Automatic => None,
        });
        let buffer = size.unwrap_or(Bytes::ZERO).as_u64();
        let config = self.connection(host, far.node);
        let (number, [up, down]) = net.begin(now, config, far.routes, self.flows(Some(buffer)));
        if let Some(leg) = self.leg_mut(number) {
            (leg.up, leg.down) = (up, down);
        }
        self.assign(client, number);
    }

    /// A server's connection works for a client's.
    fn assign(&mut self, client: u32, server: u32) {
        let Some(Peer::Client(person)) = self.leg(client).map(|leg| leg.peer) else { return };
        let wish = self.clients.get(person as usize).and_then(|person| person.wish);
        let bytes = wish.map_or(0, |wish| wish.bytes);
        if let Some(leg) = self.leg_mut(client) {
            leg.origin = Origin::Server(server);
            leg.end += bytes;
        }
        if let Some(leg) = self.leg_mut(server) {
            leg.works_for = Some(client);
            leg.coming = bytes;
            leg.end += bytes;
        }
        self.allocator.on_pair(client.into(), server.into());
    }

    /// A request has come to a server, which answers at once.
    fn on_server_request<O: Observer>(&mut self, net: &mut Net<O>, now: Time, number: u32) {
        let Some(leg) = self.leg_mut(number) else { return };
        leg.taken = leg.asked;
        leg.unwritten = leg.coming;
        self.fill(net, now, number);
    }

    /// Whoever answers writes what its socket takes.
    fn fill<O: Observer>(&mut self, net: &mut Net<O>, now: Time, number: u32) {
        let Some(leg) = self.leg_mut(number) else { return };
        let down = leg.down;
        let write = leg.unwritten.min(net.writable(down));
        leg.unwritten -= write;
        if write > 0 {
            net.put(now, down, write);
        }
    }

    /// The proxy reads from a server what the client's socket takes.
    fn pump<O: Observer>(&mut self, net: &mut Net<O>, now: Time, server: u32) {
        let Some(leg) = self.leg(server) else { return };
        let (Some(client), behind, end) = (leg.works_for, leg.down, leg.end) else { return };
        let Some(ahead) = self.leg(client).map(|leg| leg.down) else { return };
        let bytes = net.unread(behind).min(net.writable(ahead));
        if bytes > 0 {
            net.take(now, behind, bytes);
            net.put(now, ahead, bytes);
        }
        if net.come(behind) >= end && net.unread(behind) == 0 {
            self.on_served(net, now, client, server);
        }
    }

    /// A server's connection has brought all of an answer.
    fn on_served<O: Observer>(&mut self, net: &mut Net<O>, now: Time, client: u32, server: u32) {
        if let Some(leg) = self.leg_mut(server) {
            leg.works_for = None;
        }
        if let Some(leg) = self.leg_mut(client) {
            leg.origin = Origin::Own;
        }
        self.allocator.on_unpair(client.into());
        let Some(Peer::Server(at)) = self.leg(server).map(|leg| leg.peer) else { return };
        // a request that waits for a place and needs this very server needs none
        if let Some(next) = self.waits_for(at) {
            if let Some(leg) = self.leg_mut(next)
                && let Origin::Sought(ticket) = leg.origin
            {
                self.admission.leave(ticket);
                self.assign(next, server);
                self.send_request(net, now, server);
            }
            return;
        }
        self.rest(net, now, server);
        self.serve(net, now);
    }

    /// A sender has room again.
    pub(crate) fn on_room<O: Observer>(&mut self, net: &mut Net<O>, now: Time, flow: u32) {
        let Some(number) = net.connection_of(flow) else { return };
        let Some(leg) = self.leg(number).filter(|leg| leg.down == flow) else { return };
        if let Origin::Server(server) = leg.origin {
            self.pump(net, now, server);
        } else if leg.unwritten > 0 {
            self.fill(net, now, number);
        }
        let Some(leg) = self.leg_mut(number) else { return };
        let own = matches!(leg.peer, Peer::Client(_)) && leg.origin == Origin::Own;
        if own && leg.answering && leg.unwritten == 0 && net.acknowledged(flow) >= leg.end {
            leg.answering = false;
            leg.origin = Origin::None;
            if leg.abandoned {
                self.close(net, now, number);
            } else {
                self.rest(net, now, number);
            }
            self.serve(net, now);
        }
    }

    /// Bytes of an answer have come to a client.
    fn on_answer<O: Observer>(
        &mut self,
        net: &mut Net<O>,
        now: Time,
        number: u32,
        client: u32,
        come: u64,
    ) {
        let Some(leg) = self.leg_mut(number) else { return };
        let new = come - std::mem::replace(&mut leg.seen, come);
        // more of it is still to be told where a server is still sought
        let whole =
            come >= leg.end && leg.taken > leg.report && !matches!(leg.origin, Origin::Sought(_));
        self.result.bytes += new;
        if !whole {
            return;
        }
        let Some(leg) = self.leg_mut(number) else { return };
        leg.report = leg.taken;
        let refused = leg.refused;
        let surge = self.config.surge;
        let Some(person) = self.client_mut(client) else { return };
        let Some(wish) = person.wish else { return };
        let (pause, leaves) = person.pause(&surge, refused);
        if leaves {
            person.connection = None;
        }
        person.due = now + pause;
        let due = person.due;
        net.call_proxy_at(due, client);
        if refused {
            self.result.refused += 1;
        } else {
            self.result.add(wish.bytes, now.since(wish.since));
        }
        // its FIN is taken to come with the last acknowledgement
        if let Some(leg) = self.leg_mut(number) {
            leg.abandoned = leaves;
        }
    }

    /// The proxy has closed a client's connection.
    pub(super) fn on_closed<O: Observer>(&mut self, net: &mut Net<O>, now: Time, number: u32) {
        let Some(client) = self.client_mut(number) else { return };
        client.connection = None;
        client.hears = now + client.far.delay;
        if client.wish.is_some() {
            // its request was on its way
            client.due = client.hears;
            let due = client.due;
            self.result.repeated += 1;
            net.call_proxy_at(due, number);
        }
    }

    /// A client hears, half a round trip later, that it is not let in.
    pub(super) fn on_refused<O: Observer>(&mut self, net: &mut Net<O>, now: Time, number: u32) {
        let surge = self.config.surge;
        let Some(client) = self.client_mut(number) else { return };
        client.connection = None;
        client.hears = now + client.far.delay;
        let (pause, _) = client.pause(&surge, true);
        client.due = client.hears + pause;
        let due = client.due;
        self.result.refused += 1;
        net.call_proxy_at(due, number);
    }
}
