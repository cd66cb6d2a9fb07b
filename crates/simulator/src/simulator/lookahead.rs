//! Packets without events of their own. What a link does shows only after its delay, so that it may
//! be asked that much later, about all that has come to it meanwhile (conservative lookahead: Chandy
//! and Misra 1979). A flow that shares nothing but such links then needs no event at its ends either.
//!
//! Whatever happens at a time of the queue brings packets to links at that time or later. An event to
//! gather is due at the first packet's time and the link's delay. So at that event all is known that
//! comes to the link by then, and all that leaves it arrives later.

use super::{END, Event, Hop, Simulator};
use crate::network::carrier::Carrier;
use crate::network::packet::Content;
use crate::network::topology::LinkDirection;
use crate::observer::Observer;
use ekiden_model::units::{Span, Time};
use std::collections::VecDeque;

/// How a packet comes to its next link from the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Feed {
    /// By an event at its time.
    Event,
    /// At once: all the link's packets come from one other link, in that link's order.
    AtOnce,
    /// It waits in the link's inbox until the link is asked.
    Inbox,
}

/// What has come to a link that is asked late.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// In the order of time, equal times in that of coming.
    packets: VecDeque<(Time, u32)>,
    /// When the link is asked next, and how long after a packet's time at most.
    event: Option<Time>,
    delay: Span,
}

/// So many packets may be overtaken on the way into an inbox. What overtakes more has an event.
const OVERTAKEN: usize = 64;

impl Inbox {
    /// Puts a packet in its place; not if that is far from the end.
    #[inline]
    fn insert(&mut self, at: Time, number: u32) -> bool {
        let last = self.packets.back().is_none_or(|(last, _)| *last <= at);
        if last {
            self.packets.push_back((at, number));
        }
        last || self.overtake(at, number)
    }

    fn overtake(&mut self, at: Time, number: u32) -> bool {
        let later = self.packets.iter().rev().take(OVERTAKEN);
        let later = later.take_while(|(other, _)| *other > at).count();
        if later < OVERTAKEN {
            self.packets.insert(self.packets.len() - later, (at, number));
        }
        later < OVERTAKEN
    }
}

impl<O: Observer> Simulator<O> {
    /// Finds out which links and flows need no events.
    pub(super) fn plan(&mut self) {
        // by way: the one it always comes from; None: not seen yet; Some(None): several, or a host
        let mut before: Vec<Option<Option<LinkDirection>>> = vec![None; self.carriers.len()];
        // by way: in how many places of routes, and whether one of them is the first
        let mut used = vec![(0_u32, false); self.carriers.len()];
        let mut previous = None;
        for hop in &self.hops {
            if let Some(known) = before.get_mut(hop.way as usize) {
                let same = known.is_none_or(|known| known == previous);
                *known = Some(if same { previous } else { None });
            }
            if let Some((places, first)) = used.get_mut(hop.way as usize) {
                *places += 1;
                *first |= previous.is_none();
            }
            previous = (*hop != END).then_some(LinkDirection(hop.way));
        }
        let late = !O::ORDERED && !O::PACKETS && self.observer.watched().is_none();
        if late {
            self.inboxes.resize_with(self.carriers.len(), Inbox::default);
        }
        let steady =
            |way: LinkDirection| self.carriers.get(way.0 as usize).is_some_and(Carrier::is_steady);
        for hop in &mut self.hops {
            let at = hop.way as usize;
            let from = before.get(at).copied().flatten().flatten();
            let first = used.get(at).is_none_or(|(_, first)| *first);
            let delay = self.topology.ways.get(at).map_or(Span::ZERO, |way| way.config.delay);
            hop.feed = Feed::Event;
            if !steady(LinkDirection(hop.way)) {
                continue;
            } else if from.is_some_and(steady) {
                hop.feed = Feed::AtOnce;
            } else if late && !first && delay > Span::ZERO {
                hop.feed = Feed::Inbox;
                if let Some(inbox) = self.inboxes.get_mut(at) {
                    inbox.delay = delay;
                }
            }
        }
        let own = |route: u32| {
            let way = self.hops.get(route as usize).map_or(END.way, |hop| hop.way);
            steady(LinkDirection(way)) && used.get(way as usize) == Some(&(1, true))
        };
        for flow in &mut self.flows {
            let connection = self.connections.get(flow.connection as usize);
            let single = connection.is_some_and(|one| one.flows.iter().flatten().count() == 1);
            let served = flow.chain.is_some() || flow.proxied;
            let apart = own(flow.data_route) && own(flow.ack_route);
            flow.alone = late && single && !served && apart;
        }
    }

    /// A packet will be at its next link, or at its host, at a later time.
    pub(super) fn come_later(&mut self, at: Time, number: u32, hop: Hop, gathered: bool) {
        if hop.feed == Feed::Inbox {
            self.put_in(at, number, hop.way);
        } else if hop != END {
            self.events.push(at, Event::Arrive(number));
        } else if gathered && self.is_next(at, number) {
            self.reached = self.reached.max(at);
            self.deliver(at, number);
        } else {
            self.queue_for_host(at, number);
        }
    }

    fn put_in(&mut self, at: Time, number: u32, way: u32) {
        let Some(inbox) = self.inboxes.get_mut(way as usize) else { return };
        if !inbox.insert(at, number) {
            self.events.push(at, Event::Arrive(number));
            return;
        }
        let due = at + inbox.delay;
        if inbox.event.is_none_or(|event| due < event) {
            inbox.event = Some(due);
            self.events.push(due, Event::Gather(way));
        }
    }

    /// Whether nothing happens to a packet's end of its flow before the packet comes.
    fn is_next(&mut self, at: Time, number: u32) -> bool {
        let now = self.events.now();
        let Some(packet) = self.packets.get(number).filter(|_| at <= self.until) else {
            return false;
        };
        let Some(flow) = self.flows.get(packet.owner as usize) else { return false };
        let [to_receiver, to_sender] = flow.queued_until;
        match packet.content {
            Content::Data(_) => {
                let due = flow.receiver.deadline();
                flow.alone && flow.established && to_receiver < now && at < due
            }
            Content::Ack { .. } => {
                let due = flow.sender.deadline().min(flow.next_write());
                flow.alone && to_sender < now && at < due
            }
            // to connections
            Content::Syn | Content::SynAck | Content::Established | Content::Plain => false,
        }
    }

    fn queue_for_host(&mut self, at: Time, number: u32) {
        self.events.push(at, Event::Arrive(number));
        let Some(packet) = self.packets.get(number) else { return };
        let (ends, flows) = match packet.content {
            Content::Data(_) => ([true, false], [Some(packet.owner), None]),
            Content::Ack { .. } => ([false, true], [Some(packet.owner), None]),
            Content::Plain => return,
            Content::Syn | Content::SynAck | Content::Established => {
                let connection = self.connections.get(packet.owner as usize);
                ([true, true], connection.map_or([None; 2], |connection| connection.flows))
            }
        };
        for flow in flows.into_iter().flatten() {
            let Some(flow) = self.flows.get_mut(flow as usize) else { continue };
            for (until, _) in flow.queued_until.iter_mut().zip(ends).filter(|(_, end)| *end) {
                *until = at.max(*until);
            }
        }
    }

    /// A packet comes by an event: after all that came before it.
    pub(super) fn arrive(&mut self, now: Time, number: u32) {
        let Some(packet) = self.packets.get(number) else { return };
        let hop = self.hops.get(packet.next as usize).copied().unwrap_or(END);
        let late = hop.feed == Feed::Inbox;
        if late {
            self.gather(now, hop.way);
        }
        self.go_on(now, number, late);
    }

    pub(super) fn on_gather_event(&mut self, now: Time, way: u32) {
        if self.inboxes.get(way as usize).is_none_or(|inbox| inbox.event != Some(now)) {
            return;
        }
        self.gather(now, way);
        let Some(inbox) = self.inboxes.get_mut(way as usize) else { return };
        inbox.event = inbox.packets.front().map(|(first, _)| *first + inbox.delay);
        if let Some(due) = inbox.event {
            self.events.push(due, Event::Gather(way));
        }
    }

    /// A link takes what has come to it by `until`.
    fn gather(&mut self, until: Time, way: u32) {
        while let Some(inbox) = self.inboxes.get_mut(way as usize)
            && let Some((at, number)) = inbox.packets.pop_front_if(|(at, _)| *at <= until)
        {
            self.reached = self.reached.max(at);
            self.go_on(at, number, true);
        }
    }

    /// At the end of a run: what is still to come does so by events, whatever is planned then.
    pub(super) fn catch_up(&mut self, until: Time) {
        for way in 0..self.inboxes.len() as u32 {
            self.gather(until, way);
        }
        self.events.advance_to(self.reached);
        for inbox in &mut self.inboxes {
            inbox.event = None;
            for (at, number) in inbox.packets.drain(..) {
                self.events.push(at, Event::Arrive(number));
            }
        }
    }
}
