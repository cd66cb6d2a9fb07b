use super::number::{get, length, put};
use super::*;
use bytes::BytesMut;
use ekiden_model::control::repair::Window;
use ekiden_model::control::repair::packets::{PacketRepair, Part};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..=0x40, 0x3f00_u64..0x4100, 0x3fff_ff00_u64..0x4000_0100, 0..=MOST]
}

fn words() -> impl Strategy<Value = String> {
    "[a-z ``äé€]{0,120}"
}

fn target_strategy() -> impl Strategy<Value = Target> {
    let host = prop_oneof![
        any::<[u8; 4]>().prop_map(|octets| Host::Address(Ipv4Addr::from(octets).into())),
        any::<[u8; 16]>().prop_map(|octets| Host::Address(Ipv6Addr::from(octets).into())),
        "[a-z0-9.-]{1,255}".prop_map(Host::Name),
    ];
    (host, 1..=u16::MAX).prop_map(|(host, port)| Target { host, port })
}

fn bytes(range: std::ops::Range<usize>) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), range).prop_map(Bytes::from)
}

fn reason_strategy() -> impl Strategy<Value = Reason> {
    number().prop_map(Reason::from_code)
}

fn frame() -> impl Strategy<Value = Frame> {
    prop_oneof![
        (
            number(),
            0_u8..2,
            number(),
            number(),
            number(),
            number(),
            bytes(0..65),
            any::<[bool; 2]>()
        )
            .prop_map(
                |(version, lane, session, receive, window, total, secret, [repairs, coded])| {
                    let receive = Rate::from_bits_per_second(receive);
                    Frame::Hello(Hello {
                        version,
                        lane,
                        session,
                        receive,
                        window,
                        total,
                        secret,
                        repairs,
                        coded,
                    })
                }
            ),
        (0..MOST / 2, 1_u32..1_500, 0_u64..1_000, 1_u64..150_000, any::<u8>()).prop_filter_map(
            "windows in range",
            |(base, size, first, length, nth)| {
                let window = Window { base, size, first, length, nth }.checked()?;
                let symbol = Bytes::from(vec![nth; window.width()]);
                Some(Frame::Repair { window, symbol })
            }
        ),
        (
            (number(), bytes(0..513), any::<u8>(), target_strategy()),
            prop::option::of(0_u8..64),
            prop_oneof![Just(Carries::Stream), Just(Carries::Packets), Just(Carries::Coded)],
        )
            .prop_map(|((flow, account, hops, target), dscp, carries)| {
                Frame::Open(Open {
                    flow,
                    opening: Opening { account, hops, target, dscp, carries },
                })
            }),
        bytes(0..9000).prop_map(Frame::Packet),
        (number(), 0_u8..192, 0_u8..4, bytes(0..1500)).prop_map(|(number, back, part, packet)| {
            Frame::Numbered { number, back, part: Part::from_bits(part), packet }
        }),
        (number(), 1_u8..=192, any::<u8>(), bytes(2..1500)).prop_map(
            |(first, count, nth, symbol)| {
                Frame::PacketRepair(PacketRepair { first, count, nth, symbol })
            }
        ),
        number().prop_map(Frame::Attach),
        (0..MOST / 2, bytes(1..9000)).prop_map(|(offset, bytes)| Frame::Data { offset, bytes }),
        number().prop_map(Frame::Fin),
        (number(), reason_strategy(), words()).prop_map(|(offset, reason, words)| Frame::Reset {
            offset,
            reason,
            words
        }),
        Just(Frame::Opened),
        (reason_strategy(), words()).prop_map(|(reason, words)| Frame::Refused { reason, words }),
        (number(), number()).prop_map(|(flow, limit)| Frame::Credit { flow, limit }),
        number().prop_map(Frame::Total),
    ]
}

proptest! {
    #[test]
    fn written_frames_parse_back(frames in prop::collection::vec(frame(), 0..6), cut in 1_usize..400) {
        let mut stream = BytesMut::new();
        frames.iter().for_each(|frame| frame.write(&mut stream));
        let mut read_back = Vec::new();
        let mut held = BytesMut::new();
        // in pieces, as from a stream
        for piece in stream.chunks(cut) {
            held.extend_from_slice(piece);
            while let Some(frame) = read(&mut held).unwrap() {
                read_back.push(frame);
            }
        }
        prop_assert!(held.is_empty());
        prop_assert_eq!(&read_back, &frames);
        prop_assert_eq!(read_all(stream.freeze()), Ok(frames));
    }

    #[test]
    fn anything_is_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut held = BytesMut::from(&bytes[..]);
        while let Ok(Some(_)) = read(&mut held) {}
    }

    #[test]
    fn numbers_take_as_few_bytes_as_they_can(n in number()) {
        let mut bytes = BytesMut::new();
        put(&mut bytes, n);
        prop_assert_eq!(bytes.len(), length(n));
        prop_assert_eq!(get(&mut bytes), Some(n));
    }
}

/// RFC 9000 §A.1.
#[test]
fn numbers_are_those_of_quic() {
    for (bytes, n) in [
        (&[0x25][..], 37),
        (&[0x7b, 0xbd], 15_293),
        (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
        (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
    ] {
        assert_eq!(get(&mut &bytes[..]), Some(n));
    }
}

#[test]
fn rejects_malformed_frames() {
    let bad = |bytes: &[u8]| read(&mut BytesMut::from(bytes)).unwrap_err();
    assert_eq!(bad(&[0x1f, 0]), BadFrame::UnknownKind(0x1f));
    assert_eq!(bad(&[0x03, 0x80, 0x01, 0, 0]), BadFrame::TooLong(0x1_0000));
    assert_eq!(bad(&[0x03, 2, 1, 1]), BadFrame::Length(3), "a byte left over");
    assert_eq!(bad(&[0x04, 1, 0]), BadFrame::Value(4), "no bytes");
    assert_eq!(bad(&[0x02, 7, 0, 0, 0, 4, 1, 2, 3]), BadFrame::Length(2), "a cut address");
    assert_eq!(bad(&[0x0c, 3, 1, 192, 0]), BadFrame::Value(12), "beyond the longest window");
    assert_eq!(bad(&[0x0c, 3, 1, 0, 4]), BadFrame::Value(12), "no such part");
    assert_eq!(bad(&[0x0c, 2, 1, 0]), BadFrame::Length(12), "no part");
    assert_eq!(bad(&[0x21, 5, 1, 0, 7, 0, 0]), BadFrame::Value(0x21), "a repair of nothing");
    assert_eq!(bad(&[0x02, 10, 0, 0, 0, 4, 1, 2, 3, 4, 0, 0]), BadFrame::Value(2), "port 0");
}

/// Of peers from before there were repairs of packets, and from before there were any.
#[test]
fn a_hello_without_its_last_numbers_asks_for_no_repairs() {
    let hello = Hello {
        version: 1,
        lane: 0,
        session: 7,
        receive: Rate::from_bits_per_second(1_000),
        window: 10,
        total: 20,
        secret: Bytes::new(),
        repairs: false,
        coded: false,
    };
    let whole = Frame::Hello(hello.clone()).to_bytes();
    for left_out in [1, 2] {
        let mut older = BytesMut::from(&whole[..whole.len() - left_out]);
        older[1] -= left_out as u8;
        assert_eq!(read(&mut older), Ok(Some(Frame::Hello(hello.clone()))));
    }
}

#[test]
fn skips_unknown_optional_frames() {
    let mut bytes = BytesMut::from(&[0x2f, 3, 1, 2, 3, 0x07, 0][..]);
    assert_eq!(read(&mut bytes), Ok(Some(Frame::Unknown(0x2f))));
    assert_eq!(read(&mut bytes), Ok(Some(Frame::Opened)));
}

#[test]
fn words_cannot_break_a_line() {
    let words = "no\r\nSet-Cookie: x\u{7}".to_owned();
    let mut bytes = Frame::Refused { reason: Reason::Closed, words }.to_bytes();
    let Ok(Some(Frame::Refused { words, .. })) = read(&mut bytes) else { panic!("not read") };
    assert_eq!(words, "noSet-Cookie: x");
}

#[test]
fn overhead_matches_its_constant() {
    for offset in [0, 100, 100_000, 10_000_000_000] {
        let bytes = Bytes::from(vec![7; 1200]);
        let frame = Frame::Data { offset, bytes }.to_bytes();
        assert_eq!(frame.len(), 1200 + data_overhead(offset));
    }
}

#[test]
fn padding_is_as_long_as_asked_and_is_skipped() {
    for bytes in (2..=65).chain(67..=1_500) {
        let mut padding = BytesMut::new();
        pad(&mut padding, bytes);
        assert_eq!(padding.len(), bytes);
        assert_eq!(read(&mut padding), Ok(Some(Frame::Unknown(0x22))));
        assert!(padding.is_empty());
    }
}
