//! Packets: from a sender over links to a receiver, and what that sets off.

use super::{END, Event, Feed, Simulator};
use crate::network::carrier::Carrier;
use crate::network::flow::Source;
use crate::network::packet::{Body, Content, Packet};
use crate::network::topology::LinkDirection;
use crate::observer::{Departure, Loss, Observer, Passing, Trouble};
use ekiden_model::network::link::{self, LossCause, Verdict};
use ekiden_model::network::tcp::{Acknowledgement, Block, Segment};
use ekiden_model::units::Time;

impl<O: Observer> Simulator<O> {
    /// Lets a flow's sender send what it may, and asks when it wants to be called again.
    pub(super) fn send(&mut self, now: Time, number: u32) {
        if let Some(flow) = self.flows.get_mut(number as usize)
            && matches!(flow.config.source, Source::Filled)
            && flow.sender.writable() > 0
        {
            let room = flow.sender.writable();
            flow.sender.on_write(now, room);
        }
        while let Some(flow) = self.flows.get_mut(number as usize) {
            let before = flow.sender.sent();
            let Some(segment) = flow.sender.poll(now) else { break };
            let end = segment.end();
            let kind = if let Source::Endless { kind } = flow.config.source {
                if end > before {
                    flow.writes.push(now, (end - before) as u32, kind);
                }
                kind
            } else {
                flow.writes.kind_at(segment.start).unwrap_or_default()
            };
            flow.writes.on_sent(now, end);
            let departure =
                Departure { at: now, flow: number, segment, kind, sender: &flow.sender };
            self.observer.departed(&departure);
            let mss = flow.config.sender.mss.max(1);
            let segments = if segment.len <= mss { 1 } else { segment.len.div_ceil(mss) };
            let bytes = segment.len + segments * flow.config.header;
            let content = Content::Data(segment);
            let packet = Packet {
                segments: segments as u16,
                class: kind,
                ecn_capable: flow.config.ecn,
                ..Packet::new(content, number, flow.epoch, bytes, flow.data_route, now)
            };
            self.launch(now, packet);
        }
        self.arm_sender(now, number);
    }

    fn arm_sender(&mut self, now: Time, number: u32) {
        let Some(flow) = self.flows.get_mut(number as usize) else { return };
        let due = flow.sender.deadline().max(now);
        if due < flow.sender_event {
            flow.sender_event = due;
            self.events.push(due, Event::Sender(number));
        }
    }

    pub(super) fn on_sender_event(&mut self, now: Time, number: u32) {
        let Some(flow) = self.flows.get_mut(number as usize) else { return };
        if flow.sender_event != now {
            return;
        }
        flow.sender_event = Time::NEVER;
        if flow.sender.deadline() > now {
            self.arm_sender(now, number);
            return;
        }
        let before = flow.sender.troubles();
        flow.sender.on_deadline(now);
        self.tell_troubles(now, number, before);
        self.send(now, number);
    }

    /// Tells of recoveries and timeouts that were not there `before`.
    fn tell_troubles(&mut self, now: Time, number: u32, before: [u64; 2]) {
        let Some(flow) = self.flows.get(number as usize) else { return };
        let after = flow.sender.troubles();
        if after == before {
            return;
        }
        let kind = flow.writes.kind_at(flow.sender.acknowledged()).unwrap_or_default();
        let [recoveries, _] = before;
        let trouble = if after[0] > recoveries { Trouble::Duplicates } else { Trouble::Timeout };
        self.observer.troubled(now, number, kind, trouble, &flow.sender);
    }

    pub(super) fn on_receiver_event(&mut self, now: Time, number: u32) {
        let Some(flow) = self.flows.get_mut(number as usize) else { return };
        if flow.receiver_event != now {
            return;
        }
        flow.receiver_event = Time::NEVER;
        flow.receiver.on_deadline(now);
        self.answer(now, number);
    }

    /// Sends the acknowledgement that is due, if one is.
    pub(super) fn answer(&mut self, now: Time, number: u32) {
        let Some(flow) = self.flows.get_mut(number as usize) else { return };
        if let Some(ack) = flow.receiver.poll() {
            if !ack.blocks.as_slice().is_empty() {
                self.packets.keep_blocks(ack.blocks);
            }
            let (content, bytes) = (Content::ack(&ack), flow.ack_bytes(&ack));
            let packet = Packet::new(content, number, flow.epoch, bytes, flow.ack_route, now);
            let packet = Packet { class: flow.config.ack_class, ..packet };
            self.launch(now, packet);
            return;
        }
        let due = flow.receiver.deadline().max(now);
        if due < flow.receiver_event {
            flow.receiver_event = due;
            self.events.push(due, Event::Receiver(number));
        }
    }

    pub(super) fn launch(&mut self, now: Time, packet: Packet) {
        self.totals.packets += 1;
        let number = self.packets.insert(packet);
        if O::PACKETS {
            self.tell_passing(now, number, &packet, false);
        }
        self.go_on(now, number, false);
    }

    /// Takes a packet over its next links as far as is known now, or delivers it. `gathered`: it
    /// was waited for at a link that is asked late.
    pub(super) fn go_on(&mut self, now: Time, number: u32, gathered: bool) {
        let Some(packet) = self.packets.get(number) else { return };
        let meta = link::Packet {
            id: number.into(),
            bytes: packet.bytes,
            class: packet.class,
            flow: packet.owner.into(),
            segments: packet.segments,
            ecn_capable: packet.ecn_capable,
        };
        let (mut at, mut ahead) = (now, false);
        let (way, fate) = loop {
            let hop = self.hops.get(packet.next as usize).copied().unwrap_or(END);
            if ahead && hop.feed != Feed::AtOnce {
                return self.come_later(at, number, hop, gathered);
            }
            match self.carriers.get_mut(hop.way as usize) {
                Some(Carrier::Steady(fifo)) => match fifo.offer(at, &meta) {
                    Verdict::Arrives { departed, due } => {
                        packet.spend(departed.since(at), hop.in_router);
                        (at, ahead) = (due, true);
                    }
                    Verdict::Dropped => break (hop.way, LossCause::Dropped),
                    Verdict::Lost { .. } => break (hop.way, LossCause::Lost),
                },
                Some(Carrier::Waking { link, .. }) => {
                    let _told_by_gone = link.offer(at, meta);
                    return self.ask(at, LinkDirection(hop.way));
                }
                // no link follows: it is for the host here
                None => return self.deliver(at, number),
            }
        };
        self.lose(at, LinkDirection(way), number, fate);
    }

    pub(super) fn deliver(&mut self, now: Time, number: u32) {
        let Some(packet) = self.packets.get(number) else { return };
        let packet = *packet;
        self.packets.free(number);
        self.receive(now, number, &packet);
    }

    pub(super) fn wake(&mut self, now: Time, way: u32) {
        match self.carriers.get_mut(way as usize) {
            Some(Carrier::Waking { event, .. }) if *event == now => *event = Time::NEVER,
            _ => return,
        }
        while let Some(Carrier::Waking { link, .. }) = self.carriers.get_mut(way as usize) {
            let Some(delivered) = link.poll(now) else { break };
            let number = delivered.packet.id as u32;
            if let Some(packet) = self.packets.get(number) {
                let hop = self.hops.get(packet.next as usize).copied().unwrap_or(END);
                packet.spend(delivered.departed.since(delivered.offered), hop.in_router);
                packet.marked |= delivered.marked;
            }
            self.go_on(now, number, false);
        }
        self.ask(now, LinkDirection(way));
    }

    /// Takes note of what a link has lost, and asks when it wants to be called again.
    fn ask(&mut self, now: Time, way: LinkDirection) {
        let carrier = self.carriers.get_mut(way.0 as usize);
        let Some(Carrier::Waking { link, event }) = carrier else { return };
        let mut gone = Vec::new();
        link.gone(|id, fate| gone.push((id as u32, fate)));
        let due = link.next().max(now);
        if due < *event {
            *event = due;
            self.events.push(due, Event::Wake(way.0));
        }
        for (number, fate) in gone {
            self.lose(now, way, number, fate);
        }
    }

    fn lose(&mut self, now: Time, way: LinkDirection, number: u32, fate: LossCause) {
        let Some(packet) = self.packets.remove(number) else { return };
        let dropped = fate == LossCause::Dropped;
        let count = if dropped { &mut self.totals.dropped } else { &mut self.totals.lost };
        *count += 1;
        let segment = packet.segment();
        let (bytes, owner, kind) = (packet.bytes, packet.owner, packet.class);
        let waiting = self.waiting(now);
        let what = u64::from(owner) << 2 | u64::from(segment.is_some()) << 1 | u64::from(dropped);
        self.results.add([now.as_nanos(), 1 << 63 | what]);
        let loss = Loss { at: now, way, bytes, owner, segment, kind, dropped, waiting };
        self.observer.lost(&loss);
    }

    /// Packets that wait now at the link that the observer watches.
    fn waiting(&mut self, now: Time) -> u64 {
        let Some(way) = self.observer.watched() else { return 0 };
        self.carriers.get_mut(way.0 as usize).map_or(0, |link| link.snapshot(now).queued)
    }

    fn tell_passing(&mut self, now: Time, number: u32, packet: &Packet, arrives: bool) {
        let body = self.packets.body(number, packet);
        let waiting = self.waiting(now);
        let flow = |number: u32| self.flows.get(number as usize);
        let connection = match body {
            Body::Data(_) | Body::Ack(_) => flow(packet.owner).map(|flow| flow.connection),
            Body::Syn | Body::SynAck | Body::Established => Some(packet.owner),
            Body::Plain => None,
        };
        let Some(number) = connection else { return };
        let Some(connection) = self.connections.get(number as usize) else { return };
        let of_opener = connection.flows[0] == Some(packet.owner);
        self.observer.passed(&Passing {
            at: now,
            arrives,
            sent: packet.sent,
            host: packet.host,
            router: packet.router,
            body,
            kind: packet.class,
            from_opener: match body {
                Body::Data(_) => of_opener,
                Body::Ack(_) => !of_opener,
                Body::Syn | Body::Established => true,
                Body::SynAck | Body::Plain => false,
            },
            connection: number,
            ends: [connection.config.opener, connection.config.acceptor],
            flows: connection.flows.map(|of| of.and_then(|of| Some((of, &flow(of)?.config)))),
            waiting,
        });
    }

    fn receive(&mut self, now: Time, number: u32, packet: &Packet) {
        if self.is_late(packet) {
            return;
        }
        if O::PACKETS {
            self.tell_passing(now, number, packet, true);
        }
        match packet.content {
            Content::Data(segment) => self.on_data(now, packet, &segment),
            Content::Ack { .. } => {
                if let Body::Ack(ack) = self.packets.body(number, packet) {
                    self.on_ack(now, packet.owner, &ack);
                }
            }
            Content::Syn => self.on_syn(now, packet.owner),
            Content::SynAck => self.on_syn_ack(now, packet.owner),
            Content::Established => self.on_established(now, packet.owner),
            Content::Plain => {}
        }
    }

    fn on_data(&mut self, now: Time, packet: &Packet, segment: &Segment) {
        let number = packet.owner;
        if self.flows.get(number as usize).is_some_and(|flow| !flow.established) {
            self.on_first_data(now, number);
        }
        let Some(flow) = self.flows.get_mut(number as usize) else { return };
        let block = Block { start: segment.start, end: segment.end() };
        let stamp = flow.timestamp(packet.sent);
        let received = flow.receiver.on_segment(now, block, stamp, packet.marked, segment.reduced);
        if !received.duplicate {
            let times = [packet.host, packet.router];
            flow.writes.on_arrived(now, block.start, block.end, times, segment.reason);
            let (observer, results) = (&mut self.observer, &mut self.results);
            flow.writes.on_delivered(now, received.to, |mut delivery| {
                delivery.flow = number;
                results.add([now.as_nanos(), u64::from(number) << 32 | u64::from(delivery.bytes)]);
                observer.delivered(&delivery);
            });
            let come = received.to - received.from;
            // an application's writes are not followed one by one; what of them is in order is
            if come > 0 && matches!(flow.config.source, Source::Application | Source::Filled) {
                results.add([now.as_nanos(), 1 << 62 | u64::from(number) << 32 | come]);
            }
            flow.unread += come;
            self.on_in_order(now, number);
            self.tell_proxy_of_bytes(now, number);
        }
        self.answer(now, number);
    }

    fn on_ack(&mut self, now: Time, number: u32, ack: &Acknowledgement) {
        let Some(flow) = self.flows.get_mut(number as usize) else { return };
        let before = flow.sender.troubles();
        flow.sender.on_ack(now, ack);
        self.tell_troubles(now, number, before);
        let Some(flow) = self.flows.get_mut(number as usize) else { return };
        flow.writes.on_acknowledged(flow.sender.acknowledged());
        self.observer.acknowledged(now, number, &flow.sender);
        self.send(now, number);
        self.on_room(now, number);
        self.tell_proxy_of_room(now, number);
    }
}
