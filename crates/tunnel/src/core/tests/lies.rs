//! Lies that are drawn: frames of each kind, well formed or not, where they belong and where they do not.

use super::liar::{Liar, frames, hello, open, raw};
use super::network::{FAR, pattern};
use crate::core::*;
use crate::frame::reason::Reason;
use crate::frame::{Carries, Frame, MOST};
use ekiden_model::control::repair::Window;
use ekiden_model::control::repair::packets::{HEAD, MOST_PACKETS, PacketRepair, Part};
use ekiden_model::rng::Rng;
use proptest::prelude::*;

/// Of a window within its ranges, or of another that is.
fn repair((a, b, c): (u64, u64, usize), size: u64) -> Frame {
    let (size, nth) = (1 + size as u32, b as u8);
    let length = 1 + c as u64 * u64::from(size) % 100_000;
    let wild = Window { base: a, size, first: b % 5_000, length, nth };
    let small = Window { base: a % 40, size, first: b % 9, length: 1 + length % 5_000, nth };
    let tame = Window { base: 0, size, first: 0, length: 1, nth };
    let window = wild.checked().or_else(|| small.checked()).unwrap_or(tame);
    Frame::Repair { window, symbol: pattern(a, window.width()) }
}

fn numbered((a, b, c): (u64, u64, usize), part: u64) -> Frame {
    let (back, part) = ((b % MOST_PACKETS) as u8, Part::from_bits(part as u8));
    Frame::Numbered { number: a, back, part, packet: pattern(b, c) }
}

fn packet_repair((a, b, c): (u64, u64, usize)) -> Frame {
    let count = 1 + (b % MOST_PACKETS) as u8;
    let symbol = pattern(a, HEAD + c);
    Frame::PacketRepair(PacketRepair { first: a, count, nth: b as u8, symbol })
}

impl Liar {
    /// One lie, drawn.
    fn lie(&mut self, rng: &mut Rng) {
        let mut below = |n: u64| rng.next_u64() % n;
        let number = |n: u64| [n % 40, n % 300_000, MOST - n % 3, n % (MOST + 1)][(n % 4) as usize];
        let (kind, a, b, c) =
            (below(20), number(below(1 << 40)), number(below(1 << 40)), below(2_000) as usize);
        let flow = 2 + 2 * below(80);
        // mostly what fits the flow, so that one lie does not end the tunnel before the next
        let carries = [Carries::Stream, Carries::Coded, Carries::Packets, Carries::Stream];
        let carries = carries[(if below(8) == 0 { below(4) } else { flow / 2 % 4 }) as usize];
        let data = Frame::Data { offset: a.min(MOST - 2_000), bytes: pattern(0, c + 1) };
        let known = match self.streams.len() {
            0 => None,
            length => Some(self.streams[below(length as u64) as usize]),
        };
        let said = match kind {
            0 => raw(0x20 + a % 100, c as u64, &vec![0; c]),
            1 => raw(a % 0x20, b % 30, &vec![a as u8; c]),
            2 | 3 => frames(&[open(flow, carries), data]),
            4 => frames(&[Frame::Attach(a), data]),
            5 => frames(&[Frame::Attach(flow), data, Frame::Fin(b)]),
            6 => frames(&[Frame::Attach(flow), Frame::Opened]),
            7 => frames(&[Frame::Attach(flow), Frame::Packet(pattern(0, c))]),
            8 => {
                let (reason, words) = (Reason::Closed, "a lie".repeat(c / 50));
                let reset = Frame::Reset { offset: a, reason, words: words.clone() };
                frames(&[Frame::Attach(flow), reset, Frame::Refused { reason, words }])
            }
            9 => return self.control(frames(&[Frame::Credit { flow, limit: a }])),
            10 => return self.control(frames(&[Frame::Total(a)])),
            11 => return self.control(frames(&[hello(5, 0, (a, b, c as u64))])),
            12 => frames(&[hello(5, (a % 2) as u8, (b, a, c as u64))]),
            13 | 14 => frames(&[open(flow, carries), repair((a, b, c), below(1_400))]),
            15 | 16 => frames(&[open(flow, Carries::Coded), numbered((a, b, c), below(4))]),
            17 | 18 => frames(&[open(flow, Carries::Coded), packet_repair((a, b, c))]),
            _ => frames(&[data, Frame::Fin(b)]),
        };
        match (below(4), known) {
            (0, Some(stream)) => self.on(stream, said),
            (1, _) => self.datagram(said),
            _ => _ = self.stream(said),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Any lies, in any order, while FAR answers, reads and writes.
    #[test]
    fn any_lies_leave_memory_and_others_alone(seed: u64, lies in 1_usize..120) {
        let mut liar = Liar::new();
        let mut rng = Rng::new(seed);
        for nth in 0..lies {
            liar.lie(&mut rng);
            if nth % 4 == 0 {
                liar.arrives();
                let lying = liar.lying[FAR];
                let tunnel = liar.network.ends[FAR].tunnels.get(&lying);
                let flows: Vec<FlowId> = tunnel.iter().flat_map(|it| it.flows()).collect();
                for flow in flows {
                    match rng.next_u64() % 5 {
                        0 => liar.network.ends[FAR].accept(liar.network.now, flow),
                        1 => drop((liar.network.read(FAR, flow), liar.network.ends[FAR].packet(flow))),
                        2 => drop(liar.network.fill(FAR, flow, 0)),
                        3 => liar.network.ends[FAR].abort(liar.network.now, flow, Reason::Closed, String::new()),
                        _ => {}
                    }
                }
            }
            if !liar.is_up() {
                break;
            }
        }
        liar.arrives();
        prop_assert_eq!(liar.end().is_none(), liar.is_up());
        liar.assert_others_go_on();
    }
}
