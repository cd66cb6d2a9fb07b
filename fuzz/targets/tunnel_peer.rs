//! A peer that has joined: well-formed frames with hostile values in any order, while this end answers, reads, writes
//! and gives up. The tunnel ends with a reason, or holds no more than its limits.
#![no_main]

use bytes::Bytes;
use ekiden_model::control::repair::Window;
use ekiden_model::control::repair::packets::{PacketRepair, Part};
use ekiden_model::units::{self, Rate, Span};
use ekiden_tunnel::core::heard::HeardTunnel;
use ekiden_tunnel::core::{Fingerprint, Limits, Read};
use ekiden_tunnel::frame::reason::Reason;
use ekiden_tunnel::frame::{Carries, Frame, Hello, MOST, Open, Opening, VERSION};
use ekiden_tunnel::trust::Credentials;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

static PEER: OnceLock<Fingerprint> = OnceLock::new();
/// Small, so that a peer reaches them.
const LIMITS: Limits =
    Limits { memory: units::Bytes::mib(1), flows: 12, datagram: 1_472, tunnels: 1 };
/// Bytes of flows are cut from here.
static BYTES: [u8; 16 * 1024] = [7; 16 * 1024];

/// Values from the input, 0 at its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Small, around powers of two, or at the largest: where arithmetic goes wrong.
    fn number(&mut self) -> u64 {
        let (kind, value) = (self.byte(), u64::from(self.byte()));
        match kind % 8 {
            0..=2 => value,
            3 => value << 8 | u64::from(self.byte()),
            4 => ((1 << (value % 62)) + u64::from(self.byte() % 5)).saturating_sub(2).min(MOST),
            5 => MOST - value,
            _ => value * 1_024,
        }
    }

    fn flow(&mut self) -> u64 {
        match self.byte() {
            byte @ 0..=239 => u64::from(byte % 32),
            _ => self.number(),
        }
    }

    fn bytes(&mut self) -> Bytes {
        let length = match self.byte() {
            byte @ 0..=127 => usize::from(byte),
            byte => usize::from(byte - 127) * 120,
        };
        Bytes::from_static(&BYTES[..length])
    }

    fn words(&mut self) -> String {
        "x".repeat(usize::from(self.byte()))
    }

    fn opening(&mut self) -> Opening {
        let carries = match self.byte() % 5 {
            0 => Carries::Packets,
            1 => Carries::Coded,
            _ => Carries::Stream,
        };
        // an owner, or one of a few behind it
        let number = self.byte();
        let account =
            [&[number % 5; 8][..], &[number; 4][..usize::from(number % 3)]].concat().into();
        Opening { carries, account, hops: self.byte(), ..Opening::named("example.org", 80) }
    }

    fn frame(&mut self) -> Frame {
        match self.byte() % 18 {
            0 => Frame::Hello(Hello {
                version: VERSION,
                lane: self.byte() % 2,
                session: if self.byte() < 250 { HeardTunnel::SESSION } else { self.number() },
                receive: Rate::from_bits_per_second(self.number()),
                window: self.number(),
                total: self.number(),
                secret: Bytes::new(),
                repairs: self.byte().is_multiple_of(2),
                coded: self.byte().is_multiple_of(2),
            }),
            1 | 2 => Frame::Open(Open { flow: self.flow(), opening: self.opening() }),
            3 => Frame::Attach(self.flow()),
            4..=6 => {
                let bytes = self.bytes();
                // what a reader of frames lets through
                Frame::Data { offset: self.number().min(MOST - bytes.len() as u64), bytes }
            }
            7 => Frame::Fin(self.number()),
            8 => {
                Frame::Reset { offset: self.number(), reason: Reason::Closed, words: self.words() }
            }
            9 => Frame::Opened,
            10 => Frame::Refused { reason: Reason::Denied, words: self.words() },
            11 => Frame::Packet(self.bytes()),
            12 => Frame::Credit { flow: self.flow(), limit: self.number() },
            13 => Frame::Total(self.number()),
            14 => {
                let (base, size) = (self.number(), 1 + u32::from(self.byte()) * 6);
                let (first, length, nth) = (self.number(), u64::from(self.byte()), self.byte());
                let window = Window { base, size, first, length, nth };
                match window.checked() {
                    Some(window) => {
                        let width = window.width().min(BYTES.len());
                        Frame::Repair { window, symbol: Bytes::from_static(&BYTES[..width]) }
                    }
                    None => Frame::Unknown(0x2f),
                }
            }
            15 => {
                let (number, back) = (self.number(), self.byte() % 192);
                let part = Part::from_bits(self.byte());
                Frame::Numbered { number, back, part, packet: self.bytes() }
            }
            16 => {
                let (first, count, nth) = (self.number(), 1 + self.byte() % 192, self.byte());
                let symbol = Bytes::from([&[0; 2][..], &self.bytes()].concat());
                Frame::PacketRepair(PacketRepair { first, count, nth, symbol })
            }
            _ => Frame::Unknown(0x2f),
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let peer = *PEER.get_or_init(|| match Credentials::generate() {
        Ok(credentials) => credentials.fingerprint(),
        Err(error) => panic!("{error}"),
    });
    let (mut input, mut tunnel) = (Input(bytes), HeardTunnel::new(peer, LIMITS));
    while !input.0.is_empty() && tunnel.broken().is_none() {
        let lane = usize::from(input.byte() % 2);
        match input.byte() % 16 {
            0 => {
                let frames = (0..input.byte() % 6).map(|_| input.frame()).collect();
                tunnel.on_datagram(lane, frames);
            }
            1 => tunnel.wait(Span::from_millis(input.number().min(20_000))),
            2 => _ = tunnel.open(input.opening()),
            action @ 3..=9 => {
                let flows = tunnel.flows();
                if flows.is_empty() {
                    continue;
                }
                let flow = flows[usize::from(input.byte()) % flows.len()];
                match action {
                    3 => tunnel.accept(flow),
                    4 => tunnel.refuse(flow),
                    5 => {
                        while let Read::Bytes(bytes) = tunnel.read(flow) {
                            assert!(!bytes.is_empty(), "a reader would go on for ever");
                        }
                    }
                    6 => tunnel.write(flow, input.bytes()),
                    7 => tunnel.finish(flow),
                    8 => tunnel.abort(flow),
                    _ => _ = tunnel.packet(flow),
                }
            }
            _ => {
                let stream = u64::from(input.byte() % 8);
                tunnel.on_stream(lane, stream, input.frame());
            }
        }
        tunnel.assert_bounded();
    }
});
