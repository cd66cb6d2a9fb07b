//! What the proxy of [`crate::applications::proxy`] does to the network: connections come and go,
//! and numbers are reused.

use super::{Event, Simulator};
use crate::applications::proxy::{Proxy, ProxyResult};
use crate::network::connection::{Connection, ConnectionConfig};
use crate::network::flow::{Flow, FlowConfig};
use crate::network::packet::{Content, Packet};
use crate::network::topology::Node;
use crate::observer::Observer;
use ekiden_model::network::tcp::{Handshake, SenderSnapshot};
use ekiden_model::units::{Bytes, Time};

impl<O: Observer> Simulator<O> {
    /// What has come of the proxy so far; `None` where there is none.
    pub fn proxy_result(&self) -> Option<ProxyResult> {
        self.proxy.as_ref().map(|proxy| proxy.result())
    }

    /// Room for connections, open or closed: the most at a time.
    pub fn places(&self) -> usize {
        self.connections.len()
    }

    #[cfg(test)]
    pub(crate) fn proxy_of(&self) -> Option<&Proxy> {
        self.proxy.as_deref()
    }

    pub(crate) fn put_proxy(&mut self, proxy: Proxy) {
        self.proxy = Some(Box::new(proxy));
    }

    /// Routes between two nodes, there and back, once for all their connections.
    pub(crate) fn routes(&mut self, from: Node, to: Node) -> Result<[u32; 2], super::BuildError> {
        Ok([self.add_route(from, to)?, self.add_route(to, from)?])
    }

    pub(crate) fn vacant(&self) -> u32 {
        self.closed.last().copied().unwrap_or(self.connections.len() as u32)
    }

    /// Opens a connection from now on, with a flow in both directions, and says its number and theirs.
    pub(crate) fn begin(
        &mut self,
        now: Time,
        config: ConnectionConfig,
        routes: [u32; 2],
        flows: [FlowConfig; 2],
    ) -> (u32, [u32; 2]) {
        let [there, back] = routes;
        let opening = Handshake::new(config.opening, now);
        let mut connection = Connection::new(config, there, back);
        let due = opening.deadline();
        connection.opening = Some(opening);
        connection.proxied = true;
        let number = self.vacant();
        let [up, down] = flows;
        let mut flows = [
            Flow::new(up, now, number, [there, back]),
            Flow::new(down, now, number, [back, there]),
        ];
        flows.iter_mut().for_each(|flow| flow.proxied = true);
        let places = self.closed.pop().and_then(|at| self.connections.get_mut(at as usize));
        let numbers = if let Some(place) = places {
            // what was sent after the end is nobody's either
            connection.epoch = place.epoch.wrapping_add(1);
            connection.flows = place.flows;
            let numbers = place.flows.map(Option::unwrap_or_default);
            *place = connection;
            for (mut flow, at) in flows.into_iter().zip(numbers) {
                if let Some(place) = self.flows.get_mut(at as usize) {
                    flow.epoch = place.epoch.wrapping_add(1);
                    *place = flow;
                }
            }
            numbers
        } else {
            let first = self.flows.len() as u32;
            connection.flows = [Some(first), Some(first + 1)];
            self.flows.extend(flows);
            self.connections.push(connection);
            [first, first + 1]
        };
        self.events.push(due, Event::Open(number));
        self.launch_bare(now, number, Content::Syn);
        (number, numbers)
    }

    /// Closes a connection, both ends at once; its number is free. (FINs are not sent; the caller
    /// notifies the other end.)
    pub(crate) fn end(&mut self, now: Time, number: u32) {
        let Some(connection) = self.connections.get_mut(number as usize) else { return };
        connection.epoch = connection.epoch.wrapping_add(1);
        connection.proxied = false;
        if let Some(opening) = &mut connection.opening {
            // its timer is for nothing from now on
            let _no_sample = opening.on_answer(now);
        }
        for at in connection.flows.into_iter().flatten() {
            if let Some(flow) = self.flows.get_mut(at as usize) {
                flow.epoch = flow.epoch.wrapping_add(1);
                flow.proxied = false;
                // timers that are still to come find nothing
                (flow.sender_event, flow.receiver_event) = (Time::NEVER, Time::NEVER);
            }
        }
        self.closed.push(number);
    }

    pub(crate) fn call_proxy_at(&mut self, at: Time, number: u32) {
        self.events.push(at.max(self.events.now()), Event::Proxy(number));
    }

    pub(crate) fn put(&mut self, now: Time, flow: u32, bytes: u64) {
        self.write(now, flow, bytes);
    }

    pub(crate) fn take(&mut self, now: Time, number: u32, bytes: u64) {
        let Some(flow) = self.flows.get_mut(number as usize) else { return };
        flow.unread -= bytes.min(flow.unread);
        flow.receiver.on_read(bytes);
        self.answer(now, number);
    }

    pub(crate) fn writable(&self, flow: u32) -> u64 {
        self.flows.get(flow as usize).map_or(0, |flow| flow.sender.writable())
    }

    /// Bytes that are written and not acknowledged.
    pub fn queued(&self, flow: u32) -> u64 {
        self.flows.get(flow as usize).map_or(0, |flow| flow.sender.queued())
    }

    pub(crate) fn unread(&self, flow: u32) -> u64 {
        self.flows.get(flow as usize).map_or(0, |flow| flow.unread)
    }

    /// All below this has come in order.
    pub(crate) fn come(&self, flow: u32) -> u64 {
        self.flows.get(flow as usize).map_or(0, |flow| flow.receiver.next())
    }

    /// All below this is acknowledged.
    pub(crate) fn acknowledged(&self, flow: u32) -> u64 {
        self.flows.get(flow as usize).map_or(0, |flow| flow.sender.acknowledged())
    }

    /// A flow's sender as it is now.
    pub fn look(&self, flow: u32) -> SenderSnapshot {
        let found = self.flows.get(flow as usize);
        found.map_or_else(SenderSnapshot::default, |flow| flow.sender.snapshot())
    }

    pub(crate) fn set_send_buffer(&mut self, flow: u32, size: Bytes) {
        if let Some(flow) = self.flows.get_mut(flow as usize) {
            flow.sender.set_buffer(size.as_u64());
        }
    }

    pub(crate) fn set_receive_buffer(&mut self, now: Time, number: u32, size: Bytes) {
        if let Some(flow) = self.flows.get_mut(number as usize) {
            flow.receiver.set_buffer(size.as_u64());
            self.answer(now, number);
        }
    }

    /// Changes the send buffer of a flow that is always full, and fills it again.
    pub fn refill(&mut self, now: Time, flow: u32, size: Bytes) {
        self.set_send_buffer(flow, size);
        self.send(now, flow);
    }

    pub(crate) fn connection_of(&self, flow: u32) -> Option<u32> {
        self.flows.get(flow as usize).map(|flow| flow.connection)
    }

    /// Whether a packet is for a connection that is closed.
    pub(super) fn is_late(&self, packet: &Packet) -> bool {
        let at = packet.owner as usize;
        let epoch = match packet.content {
            Content::Data(_) | Content::Ack { .. } => self.flows.get(at).map(|flow| flow.epoch),
            Content::Syn | Content::SynAck | Content::Established => {
                self.connections.get(at).map(|connection| connection.epoch)
            }
            // nobody's
            Content::Plain => return false,
        };
        epoch != Some(packet.epoch)
    }

    /// Whether a SYN is answered: the proxy may let it wait.
    pub(super) fn is_answered(&mut self, now: Time, number: u32) -> bool {
        let proxied = self.connections.get(number as usize).is_some_and(|one| one.proxied);
        if !proxied {
            return true;
        }
        self.with_proxy(|proxy, net| proxy.on_syn(net, now, number)).unwrap_or(true)
    }

    /// The proxy lets one in whose SYN has waited.
    pub(crate) fn answer_syn(&mut self, now: Time, number: u32) {
        let Some(connection) = self.connections.get_mut(number as usize) else { return };
        connection.answered = Some((now, 1));
        self.launch_bare(now, number, Content::SynAck);
    }

    pub(super) fn tell_proxy_of_connection(&mut self, now: Time, number: u32) {
        if self.connections.get(number as usize).is_some_and(|one| one.proxied) {
            self.with_proxy(|proxy, net| proxy.on_connected(net, now, number));
        }
    }

    pub(super) fn tell_proxy_of_bytes(&mut self, now: Time, number: u32) {
        if self.proxy.is_some() && self.flows.get(number as usize).is_some_and(|flow| flow.proxied)
        {
            self.with_proxy(|proxy, net| proxy.on_bytes(net, now, number));
        }
    }

    pub(super) fn tell_proxy_of_room(&mut self, now: Time, number: u32) {
        if self.proxy.is_some() && self.flows.get(number as usize).is_some_and(|flow| flow.proxied)
        {
            self.with_proxy(|proxy, net| proxy.on_room(net, now, number));
        }
    }

    pub(super) fn on_proxy_event(&mut self, now: Time, number: u32) {
        self.with_proxy(|proxy, net| proxy.on_event(net, now, number));
    }

    /// Calls the proxy beside the network. Nothing that it does calls it again: packets take time.
    fn with_proxy<T>(&mut self, call: impl FnOnce(&mut Proxy, &mut Self) -> T) -> Option<T> {
        let mut proxy = self.proxy.take()?;
        let answer = call(&mut proxy, self);
        self.proxy = Some(proxy);
        Some(answer)
    }
}
