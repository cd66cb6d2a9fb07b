use super::*;
use proptest::prelude::*;

fn headers(segment: &SegmentView<'_>) -> (Vec<u8>, u16) {
    let mut headers = vec![0xff; 7];
    let length = segment.write(&mut headers).unwrap();
    (headers, length)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// The one's complement sum of RFC 1071 as written there: 0xffff over what carries a right checksum.
fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u16;
    for pair in bytes.chunks(2) {
        let value = u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]);
        let (added, carry) = sum.overflowing_add(value);
        sum = added + u16::from(carry);
    }
    sum
}

/// The options' kinds and lengths, NOPs left out; panics when they do not end where the header does.
fn options(tcp: &[u8]) -> Vec<(u8, usize)> {
    let mut rest = &tcp[20..];
    let mut found = Vec::new();
    while let [kind, after @ ..] = rest {
        if *kind == 1 {
            rest = after;
        } else {
            found.push((*kind, rest[1] as usize));
            rest = &rest[rest[1] as usize..];
        }
    }
    found
}

fn any_segment() -> impl Strategy<Value = SegmentView<'static>> {
    const BLOCKS: [(u64, u64); 6] =
        [(9, 11), (u64::MAX - 1, u64::MAX), (1 << 33, 1 << 34), (0, 1), (5, 6), (7, 8)];
    let ends = (0..HOSTS, 0..HOSTS, any::<u32>(), any::<bool>());
    let numbers = (any::<u64>(), any::<Option<u64>>(), 0_u32..65_000, any::<u64>());
    let flags = any::<[bool; 4]>();
    let options = (any::<Option<u16>>(), proptest::option::of(0_u8..=14), 0_usize..=6);
    (ends, numbers, flags, options, any::<Option<(u32, u32)>>()).prop_map(
        |(ends, numbers, flags, options, timestamps)| {
            let (from, to, flow, up) = ends;
            let (sequence, acknowledged, payload, window) = numbers;
            let [syn, fin, reset, sack_permitted] = flags;
            let (mss, scale, blocks) = options;
            let direction = if up { Direction::ToServer } else { Direction::ToClient };
            let sack = &BLOCKS[..blocks];
            SegmentView {
                from,
                to,
                flow,
                direction,
                sequence,
                acknowledged,
                payload,
                window,
                syn,
                fin,
                reset,
                mss,
                scale,
                sack_permitted,
                sack,
                timestamps,
            }
        },
    )
}

proptest! {
    #[test]
    fn every_segment_is_a_whole_packet_with_right_checksums(segment in any_segment()) {
        let (headers, length) = headers(&segment);
        let (ip, tcp) = headers.split_at(20);
        prop_assert_eq!(u32::from(length), headers.len() as u32 + segment.payload);
        prop_assert_eq!(word(ip, 0), 0x4500_0000 | u32::from(length));
        prop_assert_eq!(sum(ip), 0xffff);
        prop_assert_eq!(usize::from(tcp[12] >> 4) * 4, tcp.len());
        let mut covered = ip[12..].to_vec();
        covered.extend([0, 6]);
        covered.extend((length - 20).to_be_bytes());
        covered.extend(tcp);
        covered.resize(covered.len() + segment.payload as usize, 0);
        prop_assert_eq!(sum(&covered), 0xffff);

        let times = if segment.timestamps.is_some() { 1 } else { 0 };
        let blocks = segment.sack.len();
        let mut expected = Vec::new();
        if segment.syn {
            expected.extend(segment.mss.map(|_| (2, 4)));
            expected.extend(segment.scale.map(|_| (3, 3)));
            expected.extend(segment.sack_permitted.then_some((4, 2)));
        } else {
            // RFC 2018 §3
            let fit = blocks.min(4 - times);
            if fit > 0 {
                expected.push((5, 2 + 8 * fit));
            }
        }
        expected.extend(segment.timestamps.map(|_| (8, 10)));
        let mut found = options(tcp);
        found.retain(|(kind, _)| *kind != 5 || !segment.syn);
        expected.sort_unstable();
        found.sort_unstable();
        prop_assert_eq!(found, expected);
    }

    /// Whoever reads both sides' numbers finds that they speak of the same bytes.
    #[test]
    fn an_acknowledgement_names_the_byte_that_comes_next(flow: u32, offset: u64, payload in 0_u32..1_460) {
        let data = SegmentView { flow, sequence: offset, payload, ..SegmentView::default() };
        let next = offset.wrapping_add(payload.into());
        let sack = [(offset, next)];
        let answer = SegmentView {
            flow,
            direction: Direction::ToClient,
            acknowledged: Some(next),
            sack: &sack,
            ..SegmentView::default()
        };
        let (data, (answer, _)) = (headers(&data).0, headers(&answer));
        prop_assert_eq!(word(&answer, 28), word(&data, 24).wrapping_add(payload));
        prop_assert_eq!(word(&answer, 44), word(&data, 24));
        prop_assert_eq!(word(&answer, 48), word(&answer, 28));
        prop_assert_eq!(&data[20..22], &answer[22..24]);
        prop_assert_eq!(&data[22..24], &answer[20..22]);
    }
}

#[test]
fn the_checksum_is_that_of_rfc_1071() {
    // its example in §3
    let example = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(checksum(&[&example]), [0x22, 0x0d]);
    assert_eq!(checksum(&[&example[..4], &example[4..]]), [0x22, 0x0d]);
    // a carry that carries
    assert_eq!(checksum(&[&[0xff, 0xff, 0xff, 0xff, 0x00, 0x01]]), [0xff, 0xfe]);
}

#[test]
fn a_syn_takes_a_number_and_its_window_is_not_scaled() {
    let view = SegmentView { flow: 3, window: 100_000, scale: Some(7), ..SegmentView::default() };
    let (syn, _) = headers(&SegmentView { syn: true, ..view });
    let (first, _) = headers(&view);
    assert_eq!(word(&first, 24), word(&syn, 24).wrapping_add(1));
    assert_eq!(syn[34..36], 65_535_u16.to_be_bytes());
    assert_eq!(first[34..36], 781_u16.to_be_bytes());
    assert_eq!((syn[33], first[33]), (SYN, 0));
}

#[test]
fn addresses_follow_the_hosts() {
    let at = |from, to| {
        let (headers, _) = headers(&SegmentView { from, to, ..SegmentView::default() });
        [word(&headers, 12), word(&headers, 16)].map(|address| address.to_be_bytes())
    };
    assert_eq!(at(0, 255), [[10, 0, 0, 1], [10, 0, 1, 0]]);
    assert_eq!(at(HOSTS - 1, 1), [[10, 255, 255, 254], [10, 0, 0, 2]]);
}

#[test]
fn flows_have_ports_of_their_own() {
    let mut seen = std::collections::BTreeSet::new();
    // 16,384 × 9,152 pairs come before the first again; the ends and a stretch in between
    let all = 16_384 * 9_152;
    for flow in (0..50_000).chain(all / 2..all / 2 + 50_000).chain(all - 50_000..all) {
        let [client, server] = ports(flow, Direction::ToServer);
        assert_eq!(ports(flow, Direction::ToClient), [server, client]);
        assert!(client >= CLIENT_PORTS && (SERVER_PORTS..CLIENT_PORTS).contains(&server));
        assert!(seen.insert((client, server)), "{flow}");
    }
    assert_eq!(ports(all, Direction::ToServer), ports(0, Direction::ToServer));
}

#[test]
fn refuses_values_that_no_packet_can_carry() {
    let mut capture = Capture::new(Vec::new(), "").unwrap();
    let interface = capture.interface("server").unwrap();
    let mut refusal = |segment: SegmentView<'_>| {
        let error = capture.packet(Time::ZERO, interface, &segment).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        error.to_string()
    };
    let view = SegmentView::default();
    let told = refusal(SegmentView { payload: 65_496, ..view });
    assert_eq!(told, "65496 bytes do not fit into one packet");
    let told = refusal(SegmentView { payload: u32::MAX, ..view });
    assert_eq!(told, "4294967295 bytes do not fit into one packet");
    let told = refusal(SegmentView { to: HOSTS, ..view });
    assert_eq!(told, "host 16777214 has no address in 10.0.0.0/8");
    let told = refusal(SegmentView { scale: Some(15), ..view });
    assert_eq!(told, "a window is shifted by at most 14 bits, not by 15");
    assert!(headers(&SegmentView { payload: 65_495, ..view }).1 == u16::MAX);
}
