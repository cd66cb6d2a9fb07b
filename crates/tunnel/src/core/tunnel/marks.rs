//! The marks (DSCP) of lanes. A path may drop packets by their mark, in one direction or both.
//!
//! The other lane works then, and the tunnel is up. The lane whose packets are dropped would end it after 120 s, and again
//! after each reconnection. Each end judges its own packets: where none of a lane was ever acknowledged, for 5 s in which
//! packets of the other lane were, the lane goes on unmarked for as long as the tunnel lasts.

use super::super::Event;
use super::super::lane::Lane;
use super::Tunnel;
use super::probes::PROBES;
use ekiden_model::units::{Span, Time};

/// Three round trips of a satellite and two losses in a row. QUIC sends a lost first packet again 1, 3 and 7 s after it, so
/// the third one goes unmarked.
const PATIENCE: Span = Span::from_secs(5);

/// The marks of both lanes.
#[derive(Debug)]
pub(super) struct Marks([Mark; 2]);

#[derive(Debug, Clone, Copy)]
struct Mark {
    /// The lane has one.
    configured: bool,
    /// It was given up.
    given_up: bool,
    /// When the lane began.
    since: Option<Time>,
    /// When a packet of the lane was first acknowledged.
    acknowledged: Option<Time>,
}

impl Default for Marks {
    fn default() -> Self {
        let mark = Mark { configured: true, given_up: false, since: None, acknowledged: None };
        Self([mark; 2])
    }
}

impl Marks {
    /// The lane whose mark the next packets of a lane get; `None`: they go unmarked.
    pub(super) const fn of(&self, lane: usize) -> Option<u8> {
        let mark = self.0[lane];
        if mark.configured && !mark.given_up { Some(lane as u8) } else { None }
    }

    pub(super) fn on_acknowledged(&mut self, now: Time, lane: usize) {
        self.0[lane].acknowledged.get_or_insert(now);
    }

    /// The lane whose mark was given up.
    pub(super) fn unmarked(&self) -> Option<u8> {
        self.0.iter().position(|mark| mark.given_up).map(|lane| lane as u8)
    }

    /// When a lane is to give its mark up, if it is one's turn.
    fn due(&self, lane: usize) -> Option<Time> {
        let (own, other) = (self.0[lane], self.0[1 - lane]);
        let waits = own.configured && !own.given_up && own.acknowledged.is_none();
        let since = own.since?.max(other.acknowledged?);
        waits.then_some(since + PATIENCE)
    }

    pub(super) fn deadline(&self) -> Time {
        (0..2).filter_map(|lane| self.due(lane)).min().unwrap_or(Time::NEVER)
    }

    fn on_deadline(&mut self, now: Time) -> Option<usize> {
        let lane = (0..2).find(|lane| self.due(*lane).is_some_and(|due| due <= now))?;
        self.0[lane].given_up = true;
        Some(lane)
    }
}

impl Tunnel {
    /// Whether each lane's packets have a mark, before there are any.
    pub(in crate::core) fn set_marked(&mut self, marked: [bool; 2]) {
        for (mark, marked) in self.marks.0.iter_mut().zip(marked) {
            mark.configured = marked;
        }
    }

    /// A lane begins.
    pub(in crate::core) fn set_lane(&mut self, now: Time, nth: usize, lane: Lane) {
        self.lanes[nth] = Some(lane);
        self.marks.0[nth].since = Some(now);
    }

    /// Gives the mark of a lane up where it may be the reason that none of its packets arrives.
    pub(in crate::core) fn unmark(&mut self, now: Time) {
        let Some(nth) = self.marks.on_deadline(now) else { return };
        // what was lost is found and sent again at once; where it is not connected QUIC repeats the handshake
        if let Some(lane) = &mut self.lanes[nth] {
            lane.probe(PROBES);
        }
        let (tunnel, peer, lane) = (self.id, self.peer, nth as u8);
        self.events.push_back(Event::Unmarked { tunnel, peer, lane });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_without_a_mark_has_none_to_give_up() {
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        for configured in [true, false] {
            let mut marks = Marks::default();
            marks.0[1].configured = configured;
            marks.0.iter_mut().for_each(|mark| mark.since = Some(at(1)));
            assert_eq!(marks.deadline(), Time::NEVER, "nothing is acknowledged");
            marks.on_acknowledged(at(2), 0);
            assert_eq!(marks.deadline(), if configured { at(7) } else { Time::NEVER });
            assert_eq!((marks.on_deadline(at(6)), marks.unmarked()), (None, None));
            assert_eq!(marks.on_deadline(at(7)), configured.then_some(1));
            assert_eq!((marks.unmarked(), marks.of(1)), (configured.then_some(1), None));
            assert_eq!((marks.deadline(), marks.of(0)), (Time::NEVER, Some(0)));
        }
    }
}
