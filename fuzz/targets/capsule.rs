//! Capsules with UDP payloads, cut at random: the same payloads, none of them too large, and the same verdict. What is
//! written is read back.
//!
//! The first bytes of the input say where to cut: a count, then so many lengths.
#![no_main]

use ekiden_proxy::wire::http::capsule::{
    BadCapsule, CapsuleReader, HEAD, MOST_PAYLOAD, UdpPayload, write_head,
};
use libfuzzer_sys::fuzz_target;

fn read(mut input: &[u8], cuts: &[u8]) -> (Vec<Vec<u8>>, Result<bool, BadCapsule>) {
    let (mut reader, mut payloads, mut cuts) = (CapsuleReader::default(), Vec::new(), cuts.iter());
    while !input.is_empty() {
        let length = cuts.next().map_or(usize::MAX, |n| usize::from(*n).max(1));
        let (mut part, rest) = input.split_at(length.min(input.len()));
        input = rest;
        loop {
            match reader.read(&mut part, |length| length <= MOST_PAYLOAD) {
                Ok(Some(UdpPayload::Whole(payload))) => payloads.push(payload.to_vec()),
                Ok(Some(UdpPayload::NoRoom)) => panic!("a payload above the most"),
                Ok(None) => break,
                Err(bad) => return (payloads, Err(bad)),
            }
        }
        assert!(part.is_empty());
    }
    (payloads, Ok(reader.is_within_capsule()))
}

fuzz_target!(|input: &[u8]| {
    let Some((&count, rest)) = input.split_first() else { return };
    let (cuts, bytes) = rest.split_at(usize::from(count).min(rest.len()));
    let whole = read(bytes, &[]);
    assert_eq!(read(bytes, cuts), whole);
    let mut written = Vec::new();
    for payload in &whole.0 {
        assert!(payload.len() <= MOST_PAYLOAD);
        let before = written.len();
        write_head(&mut written, payload.len());
        assert!(written.len() - before <= HEAD);
        written.extend(payload);
    }
    assert_eq!(read(&written, cuts), (whole.0, Ok(false)));
});
