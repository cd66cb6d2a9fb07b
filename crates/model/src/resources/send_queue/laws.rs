//! Laws of what waits to be sent: in bounded memory, and no writer for ever.

use super::*;
use crate::testing::*;

/// Bytes of a packet.
const PACKET: u64 = 1_400;

/// A flow, and whoever writes to it.
#[derive(Debug, Clone, Default)]
struct Writer {
    pieces: VecDeque<u64>,
    /// The peer takes nothing of it.
    stalled: bool,
    /// It found too little room, and was not woken since.
    waits: bool,
    /// When it writes next, where it does not wait.
    at: u64,
    written: u64,
    sent: u64,
}

impl Writer {
    fn queue(&self) -> SendQueue {
        SendQueue { bytes: self.pieces.iter().sum(), pieces: self.pieces.len() as u64 }
    }
}

#[derive(Debug)]
struct Flows {
    budget: u64,
    writers: Vec<Writer>,
    turn: usize,
}

impl Flows {
    fn held(&self) -> u64 {
        self.writers.iter().map(|writer| writer.queue().memory()).sum()
    }

    fn shared(&self) -> u64 {
        self.writers.iter().map(|writer| writer.queue().shared()).sum()
    }

    fn room(&self, nth: usize) -> u64 {
        self.writers[nth].queue().room(self.budget.saturating_sub(self.shared()))
    }

    /// Writes once: at most so many bytes.
    fn write(&mut self, nth: usize, most: u64) {
        let room = self.room(nth);
        let writer = &mut self.writers[nth];
        if !writer.queue().is_worthwhile(room) {
            writer.waits = true;
            return;
        }
        writer.pieces.push_back(room.min(most));
        writer.written += room.min(most);
    }

    /// Sends a packet of the next flow of which the peer takes something.
    fn send(&mut self) {
        let all = self.writers.len();
        let may = |nth: &usize| {
            let writer = &self.writers[*nth];
            !writer.stalled && !writer.pieces.is_empty()
        };
        let Some(nth) = (0..all).map(|step| (self.turn + step) % all).find(may) else { return };
        self.turn = nth + 1;
        let mut left = PACKET;
        let writer = &mut self.writers[nth];
        while let Some(first) = writer.pieces.front_mut() {
            let some = left.min(*first);
            *first -= some;
            left -= some;
            writer.sent += some;
            if *first > 0 {
                break;
            }
            writer.pieces.pop_front();
        }
        let room = self.room(nth);
        let writer = &mut self.writers[nth];
        writer.waits = writer.waits && !writer.queue().wakes(room);
    }
}

proptest! {
    /// Of which flows the peer takes something changes. What waits stays within the budget and what each may always
    /// hold, and no writer waits for others: each flow of which the peer takes something is sent.
    #[test]
    fn no_writer_waits_for_other_flows(
        budget in prop_oneof![0_u64..64_000, 0_u64..8_000_000],
        flows in prop::collection::vec((any::<bool>(), 1_u64..400_000, 1_u64..50), 1..60),
        turns in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..6), 1..6),
    ) {
        let writers = flows.iter().map(|(stalled, _, _)| Writer { stalled: *stalled, ..Writer::default() });
        let mut flows_of = Flows { budget, writers: writers.collect(), turn: 0 };
        let all = flows.len() as u64;
        let mut now = 0;
        for changes in turns {
            for nth in changes {
                let nth = usize::from(nth) % flows.len();
                flows_of.writers[nth].stalled ^= true;
            }
            let before: Vec<u64> = flows_of.writers.iter().map(|writer| writer.sent).collect();
            // each gets some turns, with a pause of its writer between two writes
            for _ in 0..all * 100 {
                now += 1;
                for (nth, (_, most, pause)) in flows.iter().enumerate() {
                    if !flows_of.writers[nth].waits && flows_of.writers[nth].at <= now {
                        flows_of.write(nth, *most);
                        flows_of.writers[nth].at = now + *pause;
                    }
                }
                let held = flows_of.held();
                prop_assert!(held <= budget + all * LEAST, "{held}");
                prop_assert!(flows_of.shared() <= budget);
                for writer in &flows_of.writers {
                    prop_assert!(!writer.waits || !writer.pieces.is_empty());
                    prop_assert!(writer.queue().bytes <= MOST);
                }
                flows_of.send();
            }
            for (writer, before) in flows_of.writers.iter().zip(before) {
                prop_assert!(writer.stalled || writer.sent > before, "{writer:?}");
            }
        }
    }

    /// Woken, a writer finds room that is worth a write, and an empty queue always has some.
    #[test]
    fn a_woken_writer_finds_room(bytes in 0_u64..300_000, pieces in 1_u64..5_000, free in 0_u64..4_000_000) {
        let queue = if bytes == 0 { SendQueue::default() } else { SendQueue { bytes, pieces } };
        let room = queue.room(free);
        prop_assert!(!queue.wakes(room) || queue.is_worthwhile(room));
        prop_assert!(!queue.is_short(free) || !queue.is_worthwhile(room) && free < 4 * MOST);
        prop_assert!(bytes > 0 || queue.wakes(room) && room == (LEAST + free / 2).min(MOST + PIECE) - PIECE);
    }
}

/// As much as each had before there was a budget, with the default one of 64 MiB.
#[test]
fn some_flows_have_all_that_a_flow_may_have() {
    let mut flows = Flows { budget: 64 << 20, writers: vec![Writer::default(); 4_000], turn: 0 };
    for nth in 0..4_000 {
        flows.write(nth, MOST);
    }
    let full = flows.writers.iter().filter(|writer| writer.queue().bytes == MOST).count();
    assert_eq!(full, 258);
    let least = flows.writers.iter().map(|writer| writer.written).min();
    assert_eq!(least, Some(LEAST - PIECE));
    assert!(flows.held() <= (64 << 20) + 4_000 * LEAST);
}

#[test]
fn a_packet_goes_where_none_waits() {
    let packet = |pieces, length, free| {
        SendQueue { bytes: 1_400 * pieces, pieces }.takes_packet(length, free)
    };
    assert!(packet(0, 16_376, 0) && packet(1, 1_400, 0));
    assert!(!packet(2, 1_400, 0) && packet(2, 1_400, 10_000));
}
