//! The allocator's state of one connection.

use super::demand::{DemandOrigin, Limit, Side, demand, rate, share};
use super::{ConnectionFacts, Estimator, NewConnection, ReceiveUse, SendUse};
use crate::units::{Rate, Span, Time};

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Buffer {
    pub(super) demand: u64,
    /// `None` while the kernel tunes it.
    pub(super) grant: Option<u64>,
    pub(super) queued: u64,
    pub(super) why: DemandOrigin,
    pub(super) halved: u32,
    /// Its part of the demand of all, as of the last tick.
    pub(super) wanted: u64,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Connection {
    pub(super) open: NewConnection,
    pub(super) partner: Option<u64>,
    /// Whether it sends from the cache.
    pub(super) from_cache: bool,
    pub(super) idle: bool,
    /// Nothing moves, and the driver does not look.
    pub(super) at_rest: bool,
    pub(super) send: Option<Buffer>,
    pub(super) receive: Option<Buffer>,
    pub(super) send_use: SendUse,
    pub(super) receive_use: ReceiveUse,
    estimator: Estimator,
    /// λ of sending, bytes per second, and the loss it is for; as of the last period.
    sending: Option<(f64, f64)>,
    /// The driver's λ, sending and receiving.
    known: [Option<Rate>; 2],
}

impl Connection {
    pub(super) fn new(now: Time, open: NewConnection) -> Self {
        let buffer = |wanted: bool| wanted.then(Buffer::default);
        Self {
            open,
            send: buffer(open.send),
            receive: buffer(open.receive),
            estimator: Estimator::new(now),
            ..Self::default()
        }
    }

    pub(super) const fn buffer(&self, side: Side) -> Option<&Buffer> {
        match side {
            Side::Send => self.send.as_ref(),
            Side::Receive => self.receive.as_ref(),
        }
    }

    pub(super) const fn buffer_mut(&mut self, side: Side) -> Option<&mut Buffer> {
        match side {
            Side::Send => self.send.as_mut(),
            Side::Receive => self.receive.as_mut(),
        }
    }

    pub(super) fn buffers(&self) -> impl Iterator<Item = (Side, &Buffer)> {
        let sides = Side::ALL.into_iter();
        sides.filter_map(|side| Some((side, self.buffer(side)?)))
    }

    pub(super) fn buffers_mut(&mut self) -> impl Iterator<Item = &mut Buffer> {
        [self.send.as_mut(), self.receive.as_mut()].into_iter().flatten()
    }

    pub(super) fn mss(&self) -> u64 {
        self.estimator.mss().unwrap_or(self.open.mss)
    }

    pub(super) fn rtt(&self) -> Option<Span> {
        self.estimator.rtt()
    }

    pub(super) fn on_facts(&mut self, now: Time, facts: &ConnectionFacts) {
        self.estimator.on_facts(now, facts);
        if let Some(send) = &mut self.send {
            send.queued = facts.queued;
            if let Some(size) = send.grant.filter(|_| facts.queued > 0) {
                self.send_use.on_sample(facts.queued, size);
            }
        }
        if let Some(receive) = &mut self.receive {
            receive.queued = facts.unread;
            let arriving = self.estimator.receive_rate().zip(self.estimator.rtt());
            if let (Some(size), Some((rate, rtt))) = (receive.grant, arriving) {
                // without the quarter that the estimate adds; a float that does not fit saturates
                let on_its_way = (rate / 1.25 * rtt.as_secs_f64()) as u64;
                let taken = facts.unread.saturating_add(on_its_way);
                self.receive_use.on_sample(taken, size, facts.held_back);
            }
        }
    }

    /// It moves again, not earlier than from `since` on.
    pub(super) fn on_awake(&mut self, since: Time) {
        self.at_rest = false;
        self.estimator.on_active(since);
    }

    /// Whether another tick finds what the last found, as long as nothing is told of it.
    pub(super) const fn is_settled(&self) -> bool {
        self.at_rest || self.idle
    }

    pub(super) fn on_active(&mut self, now: Time) {
        self.idle = false;
        self.at_rest = false;
        self.estimator.on_active(now);
    }

    pub(super) fn know(&mut self, side: Side, rate: Option<Rate>) {
        self.known[side as usize] = rate;
    }

    pub(super) fn on_period(&mut self) {
        self.estimator.on_period();
        let (busy, limited) = self.estimator.busy();
        self.send_use.on_period(busy, limited);
        self.receive_use.on_period();
        let mss = self.mss();
        self.sending = self.estimator.path().map(|path| (path.rate() * mss as f64, path.loss));
    }

    /// λ of one side in bytes per second, by itself, and what limits it.
    pub(super) fn rate(&self, side: Side) -> Option<(f64, Limit)> {
        if let Some(known) = self.known[side as usize] {
            return Some((known.as_bits_per_second() as f64 / 8.0, Limit::Known));
        }
        match side {
            Side::Send => self.sending.map(|(rate, loss)| (rate, Limit::Loss(share(loss)))),
            Side::Receive => self.estimator.receive_rate().map(|rate| (rate, Limit::Received)),
        }
    }

    /// A buffer's useful size and its origin; `None` while nothing is known. Observed use reaches
    /// at most `ceiling`; without a `partner` and with `by_use` the filling corrects the demand.
    pub(super) fn need(
        &self,
        side: Side,
        partner: Option<&Self>,
        ceiling: u64,
        by_use: bool,
    ) -> Option<(u64, DemandOrigin)> {
        let (mut bytes_per_second, mut limit) = self.rate(side)?;
        let (rtt, gamma) = (self.rtt()?, self.open.gamma);
        let coupled = self.partner.zip(partner).and_then(|(id, other)| {
            // what comes in at one end goes out at the other, unless that is busy with a hit
            let (apart, opposite) = match side {
                Side::Send => (self.from_cache, Side::Receive),
                Side::Receive => (other.from_cache, Side::Send),
            };
            let (rate, _) = other.rate(opposite).filter(|_| !apart)?;
            Some((rate, Limit::Partner(id)))
        });
        if let Some((slower, partner)) = coupled.filter(|(rate, _)| *rate < bytes_per_second) {
            (bytes_per_second, limit) = (slower, partner);
        }
        let mut bytes = demand(gamma, bytes_per_second, rtt);
        let mut shift = 0;
        let from_cache = side == Side::Send && self.from_cache;
        if by_use && self.partner.is_none() && !from_cache {
            // a demand beyond the ceiling would be halved for nothing
            bytes = bytes.min(ceiling);
            if side == Side::Send {
                let halved = bytes >> self.send_use.halvings();
                bytes = self.send_use.apply(bytes, self.send.as_ref().and_then(|send| send.grant));
                shift = -self.send_use.halvings();
                if bytes < halved {
                    limit = Limit::Unhindered;
                }
            } else {
                bytes = self.receive_use.apply(bytes);
                shift = self.receive_use.doublings();
            }
        }
        let rate = rate(bytes_per_second);
        Some((bytes, DemandOrigin::Rate { gamma, rate, rtt, limit, shift }))
    }
}
