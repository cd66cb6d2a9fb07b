#![allow(clippy::unwrap_used)]

use super::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

/// Recorded on Linux 6.18, x86-64, loopback, BBR: 100,000 bytes sent and 5,000 received.
const RECORDED: &str = "010000000007aa00e01c0300409c000000ba00008813000000000000000000000000000000000000000000\
000c000000000000000c0000000c000000ffff000082a20100220000000b000000ffffff7f0d000000cbff00000300000000000000d7ff0000\
0000000049f8556806000000ffffffffffffffffa186010000000000881300000000000006000000040000000000000015000000010000000300\
000078f8f2a6000000000000000000000000000000000000000000000000000000000400000000000000a0860100000000000000000000000000\
0000000000000000000000000000000074010000a401000000000000000000000000000000000000000000000000000000000000000000000000\
000000000000";

fn recorded() -> Vec<u8> {
    (0..RECORDED.len() / 2)
        .map(|i| u8::from_str_radix(&RECORDED[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

#[test]
#[cfg(target_endian = "little")]
fn decodes_a_recorded_answer() {
    let bytes = recorded();
    assert_eq!(bytes.len(), LONGEST);
    let info = TcpInfo::decode(&bytes).unwrap();
    assert_eq!(info.state.to_string(), "ESTABLISHED");
    assert_eq!((info.rcv_wscale, info.has(TcpInfo::OPT_TIMESTAMPS)), (10, true));
    assert_eq!((info.rto, info.rtt, info.rttvar), (204_000, 34, 11));
    assert_eq!((info.snd_mss, info.pmtu, info.advmss, info.snd_cwnd), (47_616, 65_535, 65_483, 13));
    assert_eq!(info.bytes_acked, Some(100_001));
    assert_eq!((info.bytes_received, info.bytes_sent), (Some(5_000), Some(100_000)));
    assert_eq!(info.min_rtt_us(), Some(21));
    assert_eq!(info.pacing(), Some(Rate::from_bits_per_second(1_750_464_585 * 8 + 8 * (6 << 32))));
    assert_eq!(info.total_rto, Some(0));
}

#[test]
#[cfg(target_endian = "little")]
fn bit_fields_do_not_leak_into_each_other() {
    let mut bytes = recorded();
    bytes[6] = 0x2e;
    assert_eq!(TcpInfo::decode(&bytes).unwrap().rcv_wscale, 2);
}

#[test]
fn every_shorter_answer_is_understood() {
    let bytes = recorded();
    let whole = TcpInfo::decode(&bytes).unwrap().later();
    for length in 0..=bytes.len() {
        let Some(info) = TcpInfo::decode(&bytes[..length]) else {
            assert!(length < SHORTEST, "refused at {length}");
            continue;
        };
        for (i, (name, _, end)) in TcpInfo::LATER.iter().enumerate() {
            let expected = if *end <= length { whole[i] } else { None };
            assert_eq!(info.later()[i], expected, "{name} of {length} bytes");
        }
    }
}

#[test]
fn a_longer_answer_of_a_newer_kernel_is_cut() {
    let mut bytes = recorded();
    let whole = TcpInfo::decode(&bytes);
    bytes.extend([0xff; 64]);
    assert_eq!(TcpInfo::decode(&bytes), whole);
}

#[test]
fn fields_are_aligned_and_do_not_overlap() {
    let mut before = SHORTEST;
    for (name, at, end) in TcpInfo::LATER {
        assert!(*at >= before, "{name} begins at {at}, the one before ends at {before}");
        assert!(at.is_multiple_of(end - at), "{name} at {at}");
        before = *end;
    }
    assert!(before <= LONGEST);
}

#[test]
fn reads_a_live_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(&[7; 1000]).unwrap();
    server.read_exact(&mut [0; 1000]).unwrap();
    server.write_all(&[7; 10]).unwrap();
    client.read_exact(&mut [0; 10]).unwrap();
    let info = TcpInfo::read(client.as_fd()).unwrap();
    assert_eq!(info.state, TcpState::Established);
    assert!(info.rtt > 0 && info.snd_mss > 500 && info.snd_cwnd > 0, "{info:?}");
    assert_eq!(info.bytes_sent.unwrap_or(1000), 1000);
    assert_eq!(info.bytes_received.unwrap_or(10), 10);
    assert_eq!(TcpInfo::read(listener.as_fd()).unwrap().state, TcpState::Listen);
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(TcpInfo::read(file.as_fd()).is_err());
}
