//! Handshakes.

use super::{Event, Simulator};
use crate::network::packet::{Content, Packet};
use crate::observer::Observer;
use ekiden_model::network::tcp::{Attempt, Handshake};
use ekiden_model::units::Time;

impl<O: Observer> Simulator<O> {
    pub(super) fn on_open_event(&mut self, now: Time, number: u32) {
        let Some(connection) = self.connections.get_mut(number as usize) else { return };
        let attempt = match &mut connection.opening {
            None => {
                connection.opening = Some(Handshake::new(connection.config.opening, now));
                Attempt::Send
            }
            Some(opening) if opening.deadline() <= now => opening.on_deadline(now),
            Some(_) => return,
        };
        let due = connection.opening.as_ref().map_or(Time::NEVER, Handshake::deadline);
        if attempt == Attempt::GiveUp {
            return;
        }
        self.events.push(due, Event::Open(number));
        self.launch_bare(now, number, Content::Syn);
    }

    pub(super) fn launch_bare(&mut self, now: Time, owner: u32, content: Content) {
        let Some(connection) = self.connections.get(owner as usize) else { return };
        let bytes = connection.config.handshake_bytes;
        let next =
            if matches!(content, Content::SynAck) { connection.back } else { connection.there };
        let packet = Packet::new(content, owner, connection.epoch, bytes, next, now);
        self.launch(now, packet);
    }

    pub(super) fn on_syn(&mut self, now: Time, number: u32) {
        if !self.is_answered(now, number) {
            return;
        }
        let Some(connection) = self.connections.get_mut(number as usize) else { return };
        let before = connection.answered.map_or(0, |(_, times)| times);
        connection.answered = Some((now, before + 1));
        self.launch_bare(now, number, Content::SynAck);
    }

    pub(super) fn on_syn_ack(&mut self, now: Time, number: u32) {
        let Some(connection) = self.connections.get_mut(number as usize) else { return };
        let opening = connection.opening.as_mut().filter(|_| !connection.open[0]);
        let Some(opening) = opening else { return };
        let sample = opening.on_answer(now);
        let repeated = opening.sent() > 1;
        connection.open[0] = true;
        let [from, _] = connection.flows;
        if connection.config.three_way {
            self.launch_bare(now, number, Content::Established);
        }
        let sent = sample.map(|rtt| Time::from_nanos(now.as_nanos() - rtt.as_nanos()));
        if let Some(flow) = from {
            self.open_flow(now, flow, sent, repeated);
        }
        self.on_connected(now, number);
        self.tell_proxy_of_connection(now, number);
    }

    /// The opener's answer to the answer, or payload in its place.
    pub(super) fn on_established(&mut self, now: Time, number: u32) {
        let Some(connection) = self.connections.get_mut(number as usize) else { return };
        let answered = connection.answered.filter(|_| !connection.open[1]);
        let Some((sent, times)) = answered else { return };
        connection.open[1] = true;
        let [_, to] = connection.flows;
        if let Some(flow) = to {
            self.open_flow(now, flow, (times == 1).then_some(sent), times > 1);
        }
    }

    /// Payload came: it answers the answer as well.
    pub(super) fn on_first_data(&mut self, now: Time, number: u32) {
        let Some(flow) = self.flows.get_mut(number as usize) else { return };
        flow.established = true;
        let connection = flow.connection;
        self.on_established(now, connection);
    }

    fn open_flow(&mut self, now: Time, number: u32, sent: Option<Time>, repeated: bool) {
        let Some(flow) = self.flows.get_mut(number as usize) else { return };
        let window = flow.config.first_window();
        flow.sender.on_open(now, window, sent, repeated);
        self.send(now, number);
    }
}
