//! A hundred thin clients (the thin-client study) behind one tunnel.

use crate::long_link::tunnel_pair::{Asked, FAR, NEAR, Pair};
use crate::thin_client::delays::{AFTER, Delays};
use crate::thin_client::sim;
use ekiden_lab::cell::Cell;
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_model::network::workload::thin_client::{Trace, Write};
use ekiden_model::units::{Span, Time};
use ekiden_tunnel::core::FlowId;
use std::time::Duration;

/// All flows stand before the first write is due.
const OPENING: Span = Span::from_secs(3);

struct Screen {
    writes: Vec<Write>,
    near: FlowId,
    far: Option<FlowId>,
    /// Writes whose bytes were all handed over, and bytes of the next that were.
    written: usize,
    part: u64,
    /// Bytes that came, and those of the writes that came whole.
    came: u64,
    whole: u64,
    took: Vec<Duration>,
}

impl Screen {
    fn due(&self, begin: Time) -> Time {
        self.writes.get(self.written).map_or(Time::NEVER, |one| at(begin, one))
    }

    /// Writes what is due, as far as there is room.
    fn write(&mut self, pair: &mut Pair, begin: Time) {
        let Some(far) = self.far else { return };
        while let Some(one) = self.writes.get(self.written)
            && at(begin, one) <= pair.now
        {
            let left = u64::from(one.bytes) - self.part;
            // a write of the study is a few hundred kilobytes at most
            let piece = (pair.room(FAR, far) as u64).min(left).min(32 << 10);
            if piece == 0 {
                return;
            }
            pair.write(FAR, far, piece as usize);
            self.part += piece;
            if piece == left {
                self.part = 0;
                self.written += 1;
            }
        }
    }

    fn read(&mut self, pair: &mut Pair, begin: Time) {
        self.came += pair.read(NEAR, self.near);
        while let Some(one) = self.writes.get(self.took.len())
            && self.whole + u64::from(one.bytes) <= self.came
        {
            self.whole += u64::from(one.bytes);
            let took = pair.now.since(at(begin, one));
            self.took.push(took.into());
        }
    }
}

fn at(begin: Time, one: &Write) -> Time {
    begin + one.at.since(Time::ZERO)
}

pub(crate) fn run(cell: &Cell, seed: u64) -> Result<Outcome, EngineError> {
    let (workload, traces) = sim::traces(cell, seed)?;
    let mut pair = Pair::up(cell, seed)?;
    let mut screens = Vec::with_capacity(traces.len());
    for (number, Trace { writes, .. }) in traces.into_iter().enumerate() {
        let near = pair.open(Asked::Script(number))?;
        let (took, written) = (Vec::with_capacity(writes.len()), 0);
        let fresh = Screen { writes, near, far: None, written, part: 0, came: 0, whole: 0, took };
        screens.push(fresh);
    }
    let begin = pair.now + OPENING;
    while pair.now < begin {
        pair.step(begin)?;
    }
    let scripts = pair.scripts();
    for (number, screen) in screens.iter_mut().enumerate() {
        let far = scripts.get(&number).copied();
        screen.far = Some(far.ok_or_else(|| EngineError(format!("screen {number} did not open")))?);
    }
    let end = begin + workload.duration + Span::from_nanos(AFTER.as_nanos() as u64);
    while pair.now < end && screens.iter().any(|screen| screen.took.len() < screen.writes.len()) {
        let due = screens.iter().map(|screen| screen.due(begin)).filter(|due| *due > pair.now);
        pair.step(due.min().unwrap_or(end).min(end))?;
        for screen in &mut screens {
            screen.write(&mut pair, begin);
            screen.read(&mut pair, begin);
        }
    }
    let mut delays = Delays::default();
    screens.iter().for_each(|screen| delays.add(&screen.writes, &screen.took));
    let mut outcome = delays.outcome();
    // a tunnel has no time-outs that a connection would feel
    outcome.value = 0.0;
    Ok(outcome)
}
