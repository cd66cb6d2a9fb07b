//! The examples of RFC 9001 and RFC 9369, and ClientHellos in pieces.

use super::*;
use proptest::prelude::*;
use rustls::pki_types::ServerName;
use rustls::quic::ClientConnection;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;

/// The client's connection id in both RFCs' appendix A.
const ID: [u8; 8] = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];

/// The CRYPTO frame of RFC 9001 A.2 and RFC 9369 A.2.
const FRAME: &str = "060040f1010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e868\
    04fe3a47f06a2b69484c00000413011302010000c000000010000e00000b6578\
    616d706c652e636f6dff01000100000a00080006001d00170018001000070005\
    04616c706e000500050100000000003300260024001d00209370b2c9caa47fba\
    baf4559fedba753de171fa71f50f1ce15d43e994ec74d748002b000302030400\
    0d0010000e0403050306030203080408050806002d00020101001c0002400100\
    3900320408ffffffffffffffff05048000ffff07048000ffff08011001048000\
    75300901100f088394c8f03e51570806048000ffff";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|two| two[0] << 4 | two[1]).collect()
}

fn number(value: usize) -> [u8; 2] {
    assert!(value < 1 << 14);
    (0x4000 | value as u16).to_be_bytes()
}

fn protect(version: Version, id: &[u8], nth: u32, frames: &[u8]) -> Vec<u8> {
    super::protect(matches!(version, Version::V2), id, nth, frames).unwrap()
}

fn padded(mut frames: Vec<u8>, length: usize) -> Vec<u8> {
    frames.resize(frames.len().max(length), 0);
    frames
}

fn crypto(offset: usize, bytes: &[u8]) -> Vec<u8> {
    [&[6][..], &number(offset), &number(bytes.len()), bytes].concat()
}

fn hello(name: &str) -> Vec<u8> {
    let provider = rustls::crypto::ring::default_provider();
    let mut config = ClientConfig::builder_with_provider(provider.into())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    // long ones, as of browsers
    config.alpn_protocols = (0..30).map(|nth| format!("{nth:0>60}").into_bytes()).collect();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client =
        ClientConnection::new(Arc::new(config), Version::V1, name, vec![1; 40]).unwrap();
    let mut bytes = Vec::new();
    assert!(client.write_hs(&mut bytes).is_none());
    bytes
}

#[test]
fn reads_the_examples_of_both_versions() {
    for (version, begins, ends) in [
        (
            Version::V1,
            "c000000001088394c8f03e5157080000449e7b9aec34d1b1c98dd7689fb8ec11d242b123dc9b",
            "7e78bfe706ca4cf5e9c5453e9f7cfd2b8b4c8d169a44e55c88d4a9a7f9474241e221af44860018ab0856972e194cd934",
        ),
        (
            Version::V2,
            "d76b3343cf088394c8f03e5157080000449ea0c95e82ffe67b6abcdb4298b485dd04de806071",
            "6f4c4938ae79324dc402894b44faf8afbab35282ab659d13c93f70412e85cb199a37ddec600545473cfb5a05e08d0b209973b2172b4d21fb69745a262ccde96ba18b2faa745b6fe189cf772a9f84cbfc",
        ),
    ] {
        let packet = protect(version, &ID, 2, &padded(hex(FRAME), 1_162));
        assert_eq!(packet.len(), 1_200);
        assert!(packet.starts_with(&hex(begins)) && packet.ends_with(&hex(ends)), "{version:?}");
        assert!(is_initial(&packet));
        let words = InitialReader::default().read(&packet);
        assert_eq!(words, InitialWords::Name("example.com".to_owned()), "{version:?}");
    }
}

#[test]
fn reads_a_hello_in_several_packets_and_frames() {
    let hello = hello("www.example.org");
    assert!(hello.len() > 1_800, "{}", hello.len());
    let (one, two) = hello.split_at(1_000);
    // the second half first, in frames that go backwards, with PING, ACK and PADDING between
    let frames = [
        crypto(1_400, &two[400..]),
        vec![1, 0, 0],
        crypto(1_000, &two[..400]),
        vec![2, 7, 0, 0, 0, 3, 7, 0, 1, 0, 0, 0, 1, 2, 3],
    ];
    let second = protect(Version::V1, &ID, 1, &padded(frames.concat(), 1_162));
    let first = protect(Version::V1, &ID, 0, &padded(crypto(0, one), 1_162));
    let mut reader = InitialReader::default();
    assert_eq!(reader.read(&second), InitialWords::Partial);
    assert_eq!(reader.read(&second), InitialWords::Partial);
    assert_eq!(reader.read(&first), InitialWords::Name("www.example.org".to_owned()));
    // both in one datagram
    let both = [first.clone(), second.clone()].concat();
    assert_eq!(
        InitialReader::default().read(&both),
        InitialWords::Name("www.example.org".to_owned())
    );
    // after a Retry: another id, and the keys that follow from it
    let again = protect(Version::V1, b"retried-id", 2, &padded(crypto(0, one), 1_162));
    let mut reader = InitialReader::default();
    assert_eq!(reader.read(&second), InitialWords::Partial);
    assert_eq!(reader.read(&again), InitialWords::Name("www.example.org".to_owned()));
}

#[test]
fn other_datagrams_name_nothing() {
    let whole = protect(Version::V1, &ID, 0, &padded(hex(FRAME), 1_162));
    let mut broken = whole.clone();
    broken[600] ^= 1;
    let mut short_header = whole.clone();
    short_header[0] = 0x40;
    let mut version = whole.clone();
    version[4] = 9;
    let close = protect(Version::V1, &ID, 0, &padded(vec![0x1c, 0, 0, 0], 1_162));
    let server = protect(Version::V1, &ID, 0, &padded(crypto(0, &[2, 0, 0, 1, 0]), 1_162));
    let far = protect(Version::V1, &ID, 0, &padded(crypto(16_000, &[1; 500]), 1_162));
    for bytes in [&[][..], b"quic", &short_header, &version, &whole[..600], &close, &server, &far] {
        assert_eq!(InitialReader::default().read(bytes), InitialWords::Nameless, "{bytes:.20?}");
    }
    // it may have been damaged on the way, and is sent again
    let mut reader = InitialReader::default();
    assert_eq!(reader.read(&broken), InitialWords::Partial);
    assert_eq!(reader.read(&whole), InitialWords::Name("example.com".to_owned()));
    // but not for ever
    let mut reader = InitialReader::default();
    let words: Vec<_> = (0..MOST_DATAGRAMS).map(|_| reader.read(&broken)).collect();
    assert_eq!(words.last(), Some(&InitialWords::Nameless));
}

proptest! {
    #[test]
    fn frames_in_any_order_give_the_same_name(
        cuts in proptest::collection::vec(1_usize..1_000, 1..20), seed in any::<u64>(),
    ) {
        let hello = hello("a.example");
        let mut at = 0;
        let mut frames: Vec<Vec<u8>> = Vec::new();
        for cut in cuts.iter().cycle() {
            let until = (at + cut).min(hello.len());
            frames.push(crypto(at, &hello[at..until]));
            at = until;
            if at == hello.len() || frames.len() > 50 {
                break;
            }
        }
        frames.push(crypto(at.min(hello.len() - 1), &hello[at.min(hello.len() - 1)..]));
        let n = frames.len();
        for nth in 0..n {
            frames.swap(nth, (seed.rotate_left(nth as u32 * 7) % n as u64) as usize);
        }
        let mut stream = CryptoStream::default();
        frames.iter().for_each(|frame| stream.read(frame));
        prop_assert_eq!(stream.words(), InitialWords::Name("a.example".to_owned()));
    }

    #[test]
    fn reads_anything(bytes in proptest::collection::vec(any::<u8>(), 0..1_500)) {
        let mut stream = CryptoStream::default();
        stream.read(&bytes);
        let _ = stream.words();
        let mut datagram = vec![0xc0, 0, 0, 0, 1];
        datagram.extend(&bytes);
        let _ = InitialReader::default().read(&datagram);
    }
}

/// Else each nine bytes of a datagram would take keys.
#[test]
fn few_packets_of_a_datagram_are_looked_at() {
    let whole = protect(Version::V1, &ID, 0, &padded(hex(FRAME), 1_162));
    // without a sample for its header
    let empty = [&[0xc0, 0, 0, 0, 1][..], &[0; 4]].concat();
    let name = InitialWords::Name("example.com".to_owned());
    let ping = protect(Version::V1, &ID, 1, &padded(vec![1], 30));
    for (before, expected) in [
        (vec![], &name),
        (ping.repeat(MOST_PACKETS - 1), &name),
        (ping.repeat(MOST_PACKETS), &InitialWords::Partial),
        (empty, &InitialWords::Partial),
    ] {
        let datagram = [&before[..], &whole].concat();
        assert_eq!(InitialReader::default().read(&datagram), *expected, "{}", before.len());
    }
    let long = [&whole[..], &vec![0; MOST_DATAGRAM]].concat();
    assert_eq!(InitialReader::default().read(&long), InitialWords::Nameless);
    assert_eq!(InitialReader::default().read(&ping), InitialWords::Partial);
}
