use super::*;
use proptest::prelude::*;

/// All payloads in these parts, and whether they end between two capsules.
fn read(parts: &[&[u8]]) -> (Vec<Vec<u8>>, Result<bool, BadCapsule>) {
    let (mut reader, mut payloads) = (CapsuleReader::default(), Vec::new());
    for part in parts {
        let mut input = *part;
        loop {
            match reader.read(&mut input, |_| true) {
                Ok(Some(UdpPayload::Whole(payload))) => payloads.push(payload.to_vec()),
                Ok(Some(UdpPayload::NoRoom)) => panic!("there is room"),
                Ok(None) => break,
                Err(bad) => return (payloads, Err(bad)),
            }
        }
        assert!(input.is_empty());
    }
    (payloads, Ok(!reader.is_within_capsule()))
}

fn written(payload: &[u8]) -> Vec<u8> {
    let mut capsule = Vec::new();
    write_head(&mut capsule, payload.len());
    assert!(capsule.len() <= HEAD);
    capsule.extend(payload);
    capsule
}

fn refused(bytes: &[u8]) -> BadCapsule {
    read(&[bytes]).1.unwrap_err()
}

#[test]
fn reads_the_example_of_the_rfc() {
    // RFC 9298 §5, in the capsule of RFC 9297 §3.5
    assert_eq!(read(&[b"\x00\x06\x00hello"]), (vec![b"hello".to_vec()], Ok(true)));
    assert_eq!(written(b"hello"), b"\x00\x06\x00hello");
    // the same integers in their longer forms (RFC 9000 §16)
    let long = b"\x40\x00\x80\x00\x00\x0d\xc0\x00\x00\x00\x00\x00\x00\x00hello";
    assert_eq!(read(&[long]), (vec![b"hello".to_vec()], Ok(true)));
}

#[test]
fn lengths_are_written_in_their_shortest_form() {
    for (length, head) in [
        (0, &[0, 1, 0][..]),
        (62, &[0, 0x3f, 0]),
        (63, &[0, 0x40, 0x40, 0]),
        (16_382, &[0, 0x7f, 0xff, 0]),
        (16_383, &[0, 0x80, 0, 0x40, 0, 0]),
        (MOST_PAYLOAD, &[0, 0x80, 0, 0xff, 0xf8, 0]),
    ] {
        let capsule = written(&vec![7; length]);
        assert_eq!(&capsule[..head.len()], head, "{length}");
        assert_eq!(read(&[&capsule]), (vec![vec![7; length]], Ok(true)), "{length}");
    }
}

#[test]
fn unknown_capsules_and_contexts_are_skipped() {
    let other_type = b"\x17\x05other";
    let other_context = b"\x00\x06\x02other";
    let bytes =
        [&other_type[..], &written(b"1"), other_context, &written(b"2"), other_type].concat();
    assert_eq!(read(&[&bytes]), (vec![b"1".to_vec(), b"2".to_vec()], Ok(true)));
    // a payload between them begins the bound anew
    let half = [&b"\x17\x80\x02\x00\x00"[..], &vec![0; 0x2_0000]].concat();
    let bytes = [&half[..], &written(b"1"), &half].concat();
    assert_eq!(read(&[&bytes]), (vec![b"1".to_vec()], Ok(true)));
    assert_eq!(refused(&[&half[..], &half].concat()), BadCapsule::TooMuchSkipped);
    // neither a length alone nor endless empty capsules
    assert_eq!(refused(b"\x17\xff\xff\xff\xff\xff\xff\xff\xff"), BadCapsule::TooMuchSkipped);
    assert_eq!(refused(&b"\x17\x00".repeat(200_000)), BadCapsule::TooMuchSkipped);
}

#[test]
fn malformed_datagrams_are_refused() {
    assert_eq!(refused(b"\x00\x00"), BadCapsule::NoContext);
    assert_eq!(refused(b"\x00\x01\x40"), BadCapsule::NoContext);
    assert_eq!(refused(b"\x00\x07\xc0\x00"), BadCapsule::NoContext);
    let too_long = [&b"\x00\x80\x00\xff\xf9\x00"[..], &vec![0; MOST_PAYLOAD + 1]].concat();
    assert_eq!(refused(&too_long), BadCapsule::TooLong(65_528));
    // by its head alone
    assert_eq!(refused(&too_long[..6]), BadCapsule::TooLong(65_528));
    // of another context it is none of ours
    let mut other = too_long;
    other[5] = 2;
    assert_eq!(read(&[&other]), (vec![], Ok(true)));
}

#[test]
fn a_payload_without_room_is_skipped_and_the_next_one_is_read() {
    let bytes = [written(&[1; 100]), written(b"next")].concat();
    let mut reader = CapsuleReader::default();
    let mut first = &bytes[..50];
    assert_eq!(reader.read(&mut first, |length| length != 100), Ok(Some(UdpPayload::NoRoom)));
    assert_eq!(reader.read(&mut first, |_| true), Ok(None));
    assert!(!reader.is_holding() && reader.is_within_capsule());
    let mut rest = &bytes[50..];
    assert_eq!(reader.read(&mut rest, |_| true), Ok(Some(UdpPayload::Whole(b"next"))));
    // what comes in one part needs no room
    let mut whole = &bytes[..];
    let read = reader.read(&mut whole, |_| false).unwrap();
    assert_eq!(read, Some(UdpPayload::Whole(&[1; 100])));
}

#[test]
fn a_cut_within_a_capsule_is_seen() {
    let bytes = written(b"hello");
    for cut in 1..bytes.len() {
        assert_eq!(read(&[&bytes[..cut]]).1, Ok(false), "cut at {cut}");
    }
}

/// Capsules of all kinds, now and then malformed.
fn capsules() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop_oneof![9 => 0_usize..200, 1 => 60_000..=MOST_PAYLOAD];
    let one = prop_oneof![
        6 => payload.prop_map(|length| written(&vec![length as u8; length])),
        2 => (1_u8..64, 0_u8..64).prop_map(|(kind, length)| {
            [&[kind, length][..], &vec![9; length.into()]].concat()
        }),
        1 => (1_u8..64, 1_u8..64).prop_map(|(context, length)| {
            [&[0, length, context][..], &vec![9; usize::from(length) - 1]].concat()
        }),
        1 => prop::collection::vec(any::<u8>(), 0..12),
    ];
    prop::collection::vec(one, 0..12).prop_map(|all| all.concat())
}

proptest! {
    #[test]
    fn any_split_gives_the_same_payloads(
        bytes in capsules(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let parts: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
        prop_assert_eq!(read(&parts), read(&[&bytes]));
    }

    #[test]
    fn any_bytes_one_by_one_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let parts: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(read(&parts), read(&[&bytes]));
    }

    #[test]
    fn payloads_that_are_written_are_read(payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8)) {
        let bytes = payloads.iter().map(|payload| written(payload)).collect::<Vec<_>>().concat();
        prop_assert_eq!(read(&[&bytes]), (payloads, Ok(true)));
    }
}
