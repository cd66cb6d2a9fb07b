//! Beyond the kernel's auto-tuning: a buffer that limits its connection is doubled, one that was
//! doubled in vain is released.
//!
//! The equation is not used: without loss a Reno-like rate is far below CUBIC's or BBR's. Sizes are
//! the kernel's bytes. The path's own round trip decides, without queues, because a short path with
//! a queue stops at any buffer.

use super::Side;
use crate::units::{Bytes, Span, Time};

/// A sender's buffer may grow once it stops it a twentieth of its busy time (algorithms/buffers
/// A.5).
const STOPPED: u64 = 20;
/// A buffer limits its connection if at least half of it moves within the path's own round trip;
/// below that more than half of the data in flight is queued already.
const FILLED: u64 = 2;
/// The kernel's send buffer holds half its size in payload.
const OVERHEAD: u64 = 2;
/// Where a rate is held, data behind a loss waits for so many round trips of retransmission: at 10
/// % of 1,000 packets one is lost three times in each.
const REPAIRS: u64 = 4;
/// Less than this share used: doubled in vain. Half of the quarter that undoing a doubling would
/// leave.
const LITTLE: u64 = 8;
/// After so many looks in a row of little use a buffer is given back: half a minute of looks each second.
const PATIENCE: u8 = 30;

/// One look at both buffers of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BufferSample {
    /// The send buffer's size.
    pub send_size: u64,
    /// Bytes in it.
    pub send_used: u64,
    /// Time with data outstanding, since the start (`tcpi_busy_time`).
    pub busy: Span,
    /// Of that, stopped by the send buffer (`tcpi_sndbuf_limited`); zero where unknown.
    pub limited: Span,
    /// Payload bytes that have arrived since the start (`tcpi_bytes_acked`).
    pub sent: u64,
    /// The rate that its congestion control holds, payload bytes a second; zero where that holds none.
    pub held: u64,
    /// The receive buffer's size.
    pub receive_size: u64,
    /// Unread bytes in it.
    pub receive_used: u64,
    /// The advertised window, payload bytes (`tcpi_rcv_wnd`), or half of the size where unknown.
    pub window: u64,
    /// Payload bytes received since the start.
    pub received: u64,
    /// The round-trip time as the receiver sees it, queues included; zero before there is one.
    pub rtt: Span,
    /// The path's shortest recent one (`tcpi_min_rtt`); zero where unknown, then `rtt` replaces it.
    pub path: Span,
}

/// The change of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Widen {
    /// It is to have so many bytes.
    To(Bytes),
    /// The kernel may have it back.
    Back,
}

/// One connection's two buffers. It takes looks, about once a second, while the kernel tunes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Widening {
    last: Option<(Time, BufferSample)>,
    widened: [bool; 2],
    little: [u8; 2],
}

impl Widening {
    /// Whether this buffer is wider than the kernel would make it.
    pub const fn is_widened(&self, side: Side) -> bool {
        self.widened[side as usize]
    }

    /// The buffer was widened. Without this call the kernel still tunes it, and the next look may
    /// repeat.
    pub const fn on_widened(&mut self, side: Side) {
        self.widened[side as usize] = true;
    }

    /// The kernel, or another policy, has both buffers again.
    pub fn on_given_back(&mut self) {
        *self = Self::default();
    }

    /// Takes a look and returns the change, send buffer first, for
    /// [`on_widened`](Self::on_widened). `tuned`: auto-tuning's limits; `ceiling`: the limit here.
    pub fn on_look(
        &mut self,
        now: Time,
        looked: BufferSample,
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
    use crate::testing::*;

    const MIB: u64 = 1 << 20;
    const TUNED: [u64; 2] = [4 * MIB, 6 * MIB];

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    /// A receiver of 200 Mbit/s × 600 ms whose window is half of its buffer.
    fn receiving(second: u64, size: u64) -> BufferSample {
        let rate = (size / 2 * 10 / 6).min(25_000_000);
        BufferSample {
            receive_size: size,
            window: size / 2,
            received: second * rate,
            rtt: ms(600),
            ..BufferSample::default()
        }
    }

    #[test]
    fn doubles_a_limiting_window_on_a_long_path() {
        let mut widening = Widening::default();
        let mut size = 6 * MIB;
        let mut received = 0;
        for second in 0..20 {
            let look = BufferSample { received, ..receiving(second, size) };
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
    fn waits_for_kernel_tuning_first() {
        let mut widening = Widening::default();
        for second in 0..10 {
            let look = receiving(second, 3 * MIB);
            assert_eq!(widening.on_look(at(second), look, TUNED, 64 * MIB), [None; 2]);
        }
    }

    #[test]
    fn widens_only_for_buffer_limited_senders() {
        for (limited_ms, wider) in [(60, true), (40, false)] {
            let mut widening = Widening::default();
            let look = |second: u64| BufferSample {
                send_size: 4 * MIB,
                sent: second * 4 * MIB,
                path: ms(300),
                busy: Span::from_secs(second),
                limited: ms(second * limited_ms),
                ..BufferSample::default()
            };
            widening.on_look(at(1), look(1), TUNED, 64 * MIB);
            let [send, _] = widening.on_look(at(2), look(2), TUNED, 64 * MIB);
            assert_eq!(send, wider.then_some(Widen::To(Bytes::mib(8))), "{limited_ms} ms a second");
        }
    }

    /// 20 Mbit/s over 600 ms of which 12 arrive: 4 MiB are full of what waits for repairs.
    #[test]
    fn held_rate_has_room_for_unacknowledged_data() {
        for (held, most) in [(0, 4 * MIB), (2_500_000, 32 * MIB)] {
            let mut widening = Widening::default();
            let mut size = 4 * MIB;
            for second in 0..20 {
                let look = BufferSample {
                    send_size: size,
                    send_used: size,
                    sent: second * 1_500_000,
                    held,
                    path: ms(600),
                    busy: Span::from_secs(second),
                    limited: ms(second * 200),
                    ..BufferSample::default()
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
    fn does_not_widen_for_a_queue() {
        // 100 Mbit/s over 0.25 ms: a window of 64 KiB stands in the queue, 5 ms of it, and fills the link
        let mut widening = Widening::default();
        let tuned = [128 << 10; 2];
        for (second, path) in [(0, 250), (1, 250), (2, 5_000)] {
            let look = BufferSample {
                send_size: 128 << 10,
                sent: second * 12_000_000,
                busy: Span::from_secs(second),
                limited: ms(second * 900),
                receive_size: 128 << 10,
                window: 64 << 10,
                received: second * 12_000_000,
                rtt: Span::from_micros(5_000),
                path: Span::from_micros(path),
                ..BufferSample::default()
            };
            let wider = widening.on_look(at(second), look, tuned, 64 * MIB);
            assert_eq!(wider.map(|step| step.is_some()), [path == 5_000; 2], "{path} us");
        }
    }

    #[test]
    fn stalled_reader_gets_no_more_memory() {
        let mut widening = Widening::default();
        for second in 0..5 {
            let look = BufferSample { receive_used: 5 * MIB, ..receiving(second, 6 * MIB) };
            assert_eq!(widening.on_look(at(second), look, TUNED, 64 * MIB), [None; 2]);
        }
    }

    #[test]
    fn buffers_little_used_for_30_s_are_released() {
        let mut widening = Widening::default();
        widening.on_look(at(0), receiving(0, 6 * MIB), TUNED, 64 * MIB);
        let [_, wider] = widening.on_look(at(1), receiving(1, 6 * MIB), TUNED, 64 * MIB);
        assert_eq!(wider, Some(Widen::To(Bytes::mib(12))));
        assert!(!widening.is_widened(Side::Receive), "asked for, and not done yet");
        widening.on_widened(Side::Receive);
        let quiet =
            BufferSample { received: receiving(1, 6 * MIB).received, ..receiving(0, 12 * MIB) };
        let back = (2..100).find(|second| {
            widening.on_look(at(*second), quiet, TUNED, 64 * MIB) == [None, Some(Widen::Back)]
        });
        assert_eq!(back, Some(1 + u64::from(PATIENCE)));
        assert!(!widening.is_widened(Side::Receive));
    }

    #[test]
    fn failed_widening_is_retried_and_never_released() {
        let mut widening = Widening::default();
        for second in 0..4 {
            let [_, step] =
                widening.on_look(at(second), receiving(second, 6 * MIB), TUNED, 64 * MIB);
            assert_eq!(step, (second > 0).then_some(Widen::To(Bytes::mib(12))));
        }
        let quiet =
            BufferSample { received: receiving(3, 6 * MIB).received, ..receiving(0, 6 * MIB) };
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
                let look = BufferSample {
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
