//! Relays: see [`crate::applications::chain`].

use super::{BuildError, Event, Simulator};
use crate::applications::chain::{Chain, ChainConfig, ChainResult};
use crate::observer::Observer;
use ekiden_model::units::Time;

impl<O: Observer> Simulator<O> {
    /// Adds a download over relays. Fails where a connection is missing or has only one direction.
    pub fn chain(&mut self, config: ChainConfig) -> Result<u32, BuildError> {
        let number = self.chains.len() as u32;
        let (mut up, mut down) = (Vec::new(), Vec::new());
        for at in &config.connections {
            let missing = BuildError::NoPlace(*at);
            let connection = self.connections.get_mut(*at as usize);
            let Some(connection) = connection else { return Err(missing) };
            let [Some(from), Some(to)] = connection.flows else { return Err(missing) };
            connection.chain = Some(number);
            up.push(from);
            down.push(to);
            for flow in [from, to] {
                if let Some(flow) = self.flows.get_mut(flow as usize) {
                    flow.chain = Some(number);
                }
            }
        }
        let count = config.connections.len();
        self.chains.push(Chain {
            config,
            up,
            down,
            asked: vec![false; count],
            held: vec![0; count],
            seats: vec![None; count],
            result: ChainResult::default(),
        });
        Ok(number)
    }

    /// What has come of a chain so far.
    pub fn result(&self, chain: u32) -> Option<ChainResult> {
        self.chains.get(chain as usize).map(|chain| chain.result)
    }

    /// A connection stands: the request goes out.
    pub(super) fn on_connected(&mut self, now: Time, number: u32) {
        let Some(connection) = self.connections.get(number as usize) else { return };
        let ([Some(up), _], Some(chain)) = (connection.flows, connection.chain) else { return };
        let Some(request) = self.chains.get(chain as usize).map(|chain| chain.config.request)
        else {
            return;
        };
        self.write(now, up, request.into());
    }

    /// Bytes of a flow have come in order.
    pub(super) fn on_in_order(&mut self, now: Time, number: u32) {
        let Some(flow) = self.flows.get(number as usize) else { return };
        let chain = flow.chain.and_then(|chain| self.chains.get_mut(chain as usize));
        let Some(chain) = chain else { return };
        let come = flow.receiver.next();
        if let Some(at) = chain.up.iter().position(|up| *up == number) {
            let whole = come >= u64::from(chain.config.request);
            let asked =
                chain.asked.get_mut(at).is_some_and(|asked| !std::mem::replace(asked, whole));
            if whole && asked {
                self.on_request(now, number, at);
            }
        } else if chain.down.first() == Some(&number) {
            chain.result.bytes = come;
            chain.result.first_byte.get_or_insert(now);
            if come >= chain.config.response {
                chain.result.finished.get_or_insert(now);
            }
        } else if let Some(at) = chain.down.iter().position(|down| *down == number) {
            self.pump(now, number, at);
        }
    }

    fn on_request(&mut self, now: Time, flow: u32, at: usize) {
        let chain = self.flows.get(flow as usize).and_then(|flow| flow.chain);
        let Some(chain) = chain.and_then(|chain| self.chains.get(chain as usize)) else { return };
        if let Some(next) = chain.config.connections.get(at + 1) {
            self.events.push(now, Event::Open(*next));
        } else if let Some(down) = chain.down.last().copied() {
            let response = chain.config.response;
            self.write(now, down, response);
        }
    }

    /// A sender has room again: a relay that waits for it goes on.
    pub(super) fn on_room(&mut self, now: Time, number: u32) {
        let Some(flow) = self.flows.get(number as usize) else { return };
        let chain = flow.chain.and_then(|chain| self.chains.get(chain as usize));
        let Some(chain) = chain else { return };
        let at = chain.down.iter().position(|down| *down == number);
        if let Some(at) = at.map(|at| at + 1)
            && let Some(behind) = chain.down.get(at).copied()
        {
            self.pump(now, behind, at);
        }
    }

    /// The relay at the near end of connection `at` reads what it can hold and hands it on.
    fn pump(&mut self, now: Time, behind: u32, at: usize) {
        self.hand_on(now, behind, at);
        if self.limited.is_some() {
            self.call_ready(now);
        }
    }

    pub(super) fn hand_on(&mut self, now: Time, behind: u32, at: usize) {
        let number = self.flows.get(behind as usize).and_then(|flow| flow.chain);
        let Some(number) = number else { return };
        let Some(chain) = self.chains.get(number as usize) else { return };
        let most = chain.config.held;
        let (held, ahead) = (chain.held.get(at).copied(), chain.down.get(at - 1).copied());
        let (Some(held), Some(ahead)) = (held, ahead) else { return };
        let seat = chain.seats.get(at).copied().flatten();
        let writable = self.flows.get(ahead as usize).map_or(0, |flow| flow.sender.writable());
        let unread = self.flows.get(behind as usize).map_or(0, |flow| flow.unread);
        // what the next socket takes at once needs no room of the relay's own
        let mut read = unread.min(most.saturating_sub(held).saturating_add(writable));
        if let Some(seat) = seat {
            let (want, mut may) = (read, 0);
            while may < want {
                match self.may_read(now, seat, want - may) {
                    0 => break,
                    more => may += more,
                }
            }
            if want == 0 {
                self.may_read(now, seat, 0);
            }
            read = may;
        }
        let chain = self.chains.get_mut(number as usize);
        let Some(held) = chain.and_then(|chain| chain.held.get_mut(at)) else { return };
        let Some(flow) = self.flows.get_mut(behind as usize) else { return };
        flow.unread -= read;
        flow.receiver.on_read(read);
        let write = (*held + read).min(writable);
        *held = *held + read - write;
        if read > 0 {
            self.answer(now, behind);
        }
        if write > 0 {
            self.write(now, ahead, write);
        }
    }

    pub(super) fn write(&mut self, now: Time, number: u32, bytes: u64) {
        if let Some(flow) = self.flows.get_mut(number as usize) {
            flow.sender.on_write(now, bytes);
            self.send(now, number);
        }
    }
}
