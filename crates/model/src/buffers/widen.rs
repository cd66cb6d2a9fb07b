//! Where the kernel's auto-tuning comes to its end and the path wants more: a buffer that stands in the
//! way is doubled, one that was doubled in vain is given back.
//!
//! The equation is not asked. It says what a Reno-like sender would reach at the loss there is, and where
//! nothing is lost that is far less than CUBIC or BBR do reach; here the counters of the kernel say
//! outright what the buffer stopped. Sizes are whatever the driver counts in, its kernel's bytes.
//!
//! The path's own round trip decides, without the queues on it. A short path with a queue stops at its
//! buffer, too, whatever that is; more would only stand in the queue, or be lost there.

use super::Side;
use crate::units::{Bytes, Span, Time};

/// The part of its busy time for which a sender is stopped by its buffer before that may grow: a
/// twentieth (ALGORITHMS §A.5).
const STOPPED: u64 = 20;
/// A buffer stands in the way from half of it on, being what moves within the path's own round trip:
/// looks are seldom, and memory is only taken once it is filled. Below half, more than half of what is
/// under way stands in queues already.
const FILLED: u64 = 2;
/// The kernel's send buffer holds half its size in payload.
const OVERHEAD: u64 = 2;
/// Where a rate is held, what is lost is sent again and what follows it waits in the buffer: of what is lost again and
/// again, as many round trips' worth. At 10 % of 1,000 packets one is lost three times in each of them.
const REPAIRS: u64 = 4;
/// Less than such a part used: doubled in vain. A quarter, so as not to undo what was just doubled, and
/// half of that again.
const LITTLE: u64 = 8;
/// After so many looks in a row of little use a buffer is given back: half a minute of looks each second.
const PATIENCE: u8 = 30;

/// One look at both buffers of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Looked {
    /// The send buffer's size.
    pub send_size: u64,
    /// What stands in it.
    pub send_used: u64,
    /// Time with data outstanding, since the start (`tcpi_busy_time`).
    pub busy: Span,
    /// Of that, stopped by the send buffer (`tcpi_sndbuf_limited`); zero where it is not told.
    pub limited: Span,
    /// Payload bytes that have arrived since the start (`tcpi_bytes_acked`).
    pub sent: u64,
    /// The rate that its congestion control holds, payload bytes a second; zero where that holds none.
    pub held: u64,
    /// The receive buffer's size.
    pub receive_size: u64,
    /// What stands in it unread.
    pub receive_used: u64,
    /// The window advertised, payload bytes (`tcpi_rcv_wnd`), or half of the size where it is not told.
    pub window: u64,
    /// Payload bytes received since the start.
    pub received: u64,
    /// The round-trip time as the receiver sees it, queues included; zero before there is one.
    pub rtt: Span,
    /// The path's own: the shortest lately (`tcpi_min_rtt`); zero where it is not told, and then `rtt`
    /// stands for it.
    pub path: Span,
}

/// What is to be done with a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Widen {
    /// It is to have so many bytes.
    To(Bytes),
    /// The kernel may have it back.
    Back,
}

/// One connection's two buffers. Told of looks, each second or so, while the kernel tunes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Widening {
    last: Option<(Time, Looked)>,
    widened: [bool; 2],
    little: [u8; 2],
}

impl Widening {
    /// Whether this buffer is wider than the kernel would make it.
    #[must_use]
    pub const fn is_widened(&self, side: Side) -> bool {
        self.widened[side as usize]
    }

    /// What was answered was done: this buffer has been made wider. Where it was not, for want of memory or
    /// of the privilege, the kernel has it still, and the same may be answered at the next look.
    pub const fn on_widened(&mut self, side: Side) {
        self.widened[side as usize] = true;
    }

    /// The kernel, or somebody else, has both buffers again.
    pub fn on_given_back(&mut self) {
        *self = Self::default();
    }

    /// A look: what is to be done, the send buffer first; [`on_widened`](Self::on_widened) says that it was. `tuned` is how far auto-tuning goes on each side,
    /// and `ceiling` how far this does.
    pub fn on_look(
        &mut self,
        now: Time,
        looked: Looked,
        tuned: [u64; 2],
        ceiling: u64,
    ) -> [Option<Widen>; 2] {
        let Some((before, last)) = self.last.replace((now, looked)) else { return [None; 2] };
        let elapsed = now.since(before).as_nanos();
        if elapsed == 0 {
            return [None; 2];
        }
        let grown = |new: Span, old: Span| new.as_nanos().saturating_sub(old.as_nanos());
        let busy = grown(looked.busy, last.busy);
        let part = |moved: u64, round_trip: Span, of: u64| {
            let bytes = u128::from(moved) * u128::from(round_trip.as_nanos()) / u128::from(of);
            u64::try_from(bytes).unwrap_or(u64::MAX)
        };
        let within = |moved: u64, round_trip: Span| part(moved, round_trip, elapsed);
        let path = if looked.path == Span::ZERO { looked.rtt } else { looked.path };
        let sent = looked.sent.saturating_sub(last.sent);
        let received = looked.received.saturating_sub(last.received);
        let second = Span::from_secs(1).as_nanos();
        let held = part(looked.held, path, second).saturating_mul(REPAIRS);
        let stopped = busy > 0
            && grown(looked.limited, last.limited).saturating_mul(STOPPED) > busy
            && within(sent, path).max(held) >= looked.send_size / OVERHEAD / FILLED;
        let round_trip = within(received, looked.rtt);
        // what is unread stands in the way itself, and a larger buffer would only fill as well
        let read = looked.receive_used < looked.receive_size / 4;
        let filled = read && looked.window > 0 && within(received, path) >= looked.window / FILLED;
        let sides = [
            (looked.send_size, stopped, looked.send_used),
            (looked.receive_size, filled, round_trip.max(looked.receive_used)),
        ];
        let mut answer = [None; 2];
        for (nth, (size, in_the_way, used)) in sides.into_iter().enumerate() {
            let widened = self.widened[nth];
            if in_the_way && (widened || size >= tuned[nth]) {
                self.little[nth] = 0;
                let wider = size.saturating_mul(2).min(ceiling);
                if wider > size {
                    answer[nth] = Some(Widen::To(Bytes::new(wider)));
                }
            } else if widened {
                self.little[nth] = if used < size / LITTLE { self.little[nth] + 1 } else { 0 };
                if self.little[nth] == PATIENCE {
                    (self.widened[nth], self.little[nth]) = (false, 0);
                    answer[nth] = Some(Widen::Back);
                }
            }
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;
    const TUNED: [u64; 2] = [4 * MIB, 6 * MIB];

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    /// A receiver of 200 Mbit/s × 600 ms whose window is half of its buffer.
    fn receiving(second: u64, size: u64) -> Looked {
        let rate = (size / 2 * 10 / 6).min(25_000_000);
        Looked {
            receive_size: size,
            window: size / 2,
            received: second * rate,
            rtt: Span::from_millis(600),
            ..Looked::default()
        }
    }

    #[test]
    fn a_window_in_the_way_of_a_long_path_is_doubled_until_it_is_not() {
        let mut widening = Widening::default();
        let mut size = 6 * MIB;
        let mut received = 0;
        for second in 0..20 {
            let look = Looked { received, ..receiving(second, size) };
            if let [None, Some(Widen::To(to))] = widening.on_look(at(second), look, TUNED, 64 * MIB)
            {
                widening.on_widened(Side::Receive);
                size = to.as_u64();
            }
            received += (size / 2 * 10 / 6).min(25_000_000);
        }
        // 15 MB in flight, less than half of the window
        assert_eq!(size, 64 * MIB);
        assert!(widening.is_widened(Side::Receive) && !widening.is_widened(Side::Send));
    }

    #[test]
    fn the_kernel_s_own_tuning_is_waited_for() {
        let mut widening = Widening::default();
        for second in 0..10 {
            let look = receiving(second, 3 * MIB);
            assert_eq!(widening.on_look(at(second), look, TUNED, 64 * MIB), [None; 2]);
        }
    }

    #[test]
    fn a_sender_stopped_by_its_buffer_has_more_and_one_stopped_by_its_path_has_not() {
        for (limited_ms, wider) in [(60, true), (40, false)] {
            let mut widening = Widening::default();
            let look = |second: u64| Looked {
                send_size: 4 * MIB,
                sent: second * 4 * MIB,
                path: Span::from_millis(300),
                busy: Span::from_secs(second),
                limited: Span::from_millis(second * limited_ms),
                ..Looked::default()
            };
            widening.on_look(at(1), look(1), TUNED, 64 * MIB);
            let [send, _] = widening.on_look(at(2), look(2), TUNED, 64 * MIB);
            assert_eq!(send, wider.then_some(Widen::To(Bytes::mib(8))), "{limited_ms} ms a second");
        }
    }

    /// 20 Mbit/s over 600 ms of which 12 arrive: 4 MiB are full of what waits for repairs.
    #[test]
    fn a_rate_that_is_held_has_room_for_what_waits_for_repairs() {
        for (held, most) in [(0, 4 * MIB), (2_500_000, 32 * MIB)] {
            let mut widening = Widening::default();
            let mut size = 4 * MIB;
            for second in 0..20 {
                let look = Looked {
                    send_size: size,
                    send_used: size,
                    sent: second * 1_500_000,
                    held,
                    path: Span::from_millis(600),
                    busy: Span::from_secs(second),
                    limited: Span::from_millis(second * 200),
                    ..Looked::default()
                };
                if let [Some(Widen::To(to)), None] =
                    widening.on_look(at(second), look, TUNED, 64 * MIB)
                {
                    size = to.as_u64();
                    widening.on_widened(Side::Send);
                }
            }
            assert_eq!(size, most, "{held}");
        }
    }

    #[test]
    fn a_short_path_with_a_queue_is_not_given_more_to_queue() {
        // 100 Mbit/s over 0.25 ms: a window of 64 KiB stands in the queue, 5 ms of it, and fills the link
        let mut widening = Widening::default();
        let tuned = [128 << 10; 2];
        for (second, path) in [(0, 250), (1, 250), (2, 5_000)] {
            let look = Looked {
                send_size: 128 << 10,
                sent: second * 12_000_000,
                busy: Span::from_secs(second),
                limited: Span::from_millis(second * 900),
                receive_size: 128 << 10,
                window: 64 << 10,
                received: second * 12_000_000,
                rtt: Span::from_micros(5_000),
                path: Span::from_micros(path),
                ..Looked::default()
            };
            let wider = widening.on_look(at(second), look, tuned, 64 * MIB);
            assert_eq!(wider.map(|step| step.is_some()), [path == 5_000; 2], "{path} us");
        }
    }

    #[test]
    fn a_reader_that_stands_still_is_not_helped_by_memory() {
        let mut widening = Widening::default();
        for second in 0..5 {
            let look = Looked { receive_used: 5 * MIB, ..receiving(second, 6 * MIB) };
            assert_eq!(widening.on_look(at(second), look, TUNED, 64 * MIB), [None; 2]);
        }
    }

    #[test]
    fn what_is_little_used_for_half_a_minute_is_given_back() {
        let mut widening = Widening::default();
        widening.on_look(at(0), receiving(0, 6 * MIB), TUNED, 64 * MIB);
        let [_, wider] = widening.on_look(at(1), receiving(1, 6 * MIB), TUNED, 64 * MIB);
        assert_eq!(wider, Some(Widen::To(Bytes::mib(12))));
        assert!(!widening.is_widened(Side::Receive), "asked for, and not done yet");
        widening.on_widened(Side::Receive);
        let quiet = Looked { received: receiving(1, 6 * MIB).received, ..receiving(0, 12 * MIB) };
        let back = (2..100).find(|second| {
            widening.on_look(at(*second), quiet, TUNED, 64 * MIB) == [None, Some(Widen::Back)]
        });
        assert_eq!(back, Some(1 + u64::from(PATIENCE)));
        assert!(!widening.is_widened(Side::Receive));
    }

    #[test]
    fn what_could_not_be_done_is_asked_for_again_and_never_given_back() {
        let mut widening = Widening::default();
        for second in 0..4 {
            let [_, step] =
                widening.on_look(at(second), receiving(second, 6 * MIB), TUNED, 64 * MIB);
            assert_eq!(step, (second > 0).then_some(Widen::To(Bytes::mib(12))));
        }
        let quiet = Looked { received: receiving(3, 6 * MIB).received, ..receiving(0, 6 * MIB) };
        for second in 4..100 {
            assert_eq!(widening.on_look(at(second), quiet, TUNED, 64 * MIB), [None; 2]);
        }
    }

    proptest! {
        #[test]
        fn never_beyond_the_ceiling_and_never_smaller(
            looks in proptest::collection::vec(any::<[u32; 11]>(), 0..60),
            ceiling in 1_u64..1 << 30,
        ) {
            let mut widening = Widening::default();
            for (second, [a, b, c, d, e, f, g, h, i, j, k]) in looks.into_iter().enumerate() {
                let look = Looked {
                    send_size: a.into(), send_used: b.into(),
                    busy: Span::from_micros(c.into()), limited: Span::from_micros(d.into()),
                    receive_size: e.into(), receive_used: f.into(),
                    window: (e / 2).into(), received: g.into(), rtt: Span::from_micros(h.into()),
                    sent: i.into(), path: Span::from_micros(j.into()), held: k.into(),
                };
                let sizes = [look.send_size, look.receive_size];
                let answer = widening.on_look(at(second as u64), look, TUNED, ceiling);
                for (size, step) in sizes.into_iter().zip(answer) {
                    if let Some(Widen::To(to)) = step {
                        prop_assert!(to.as_u64() > size && to.as_u64() <= ceiling);
                    }
                }
            }
        }
    }
}
