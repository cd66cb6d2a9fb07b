//! Datagrams: each is compared and answered by one of the same number.
//!
//! ```text
//! seed u64 · number u64 · bytes of the pattern of seed + number; of an answer, of its complement
//! ```

use super::{Service, port};
use crate::laws::Door;
use crate::ledger::Ledger;
use ekiden_testbed::load::pattern::Pattern;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use tokio::net::UdpSocket;

/// Bytes before the pattern.
const HEAD: usize = 16;

/// A datagram of this number, with so many bytes of pattern.
pub(crate) fn datagram(seed: u64, number: u64, length: usize, is_answer: bool) -> Vec<u8> {
    let mut bytes = [seed.to_be_bytes(), number.to_be_bytes()].concat();
    let mut pattern = pattern(seed, number, is_answer);
    while bytes.len() < HEAD + length {
        let left = HEAD + length - bytes.len();
        bytes.extend(pattern.next(left));
    }
    bytes
}

/// The seed and the number of a datagram that is as it was sent; `None` of any other.
pub(crate) fn compared(bytes: &[u8], is_answer: bool) -> Option<(u64, u64)> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let (numbers, _) = head.as_chunks::<8>();
    let [seed, number] =
        [numbers.first()?, numbers.get(1)?].map(|eight| u64::from_be_bytes(*eight));
    pattern(seed, number, is_answer).check(rest).ok()?;
    Some((seed, number))
}

fn pattern(seed: u64, number: u64, is_answer: bool) -> Pattern {
    let of = seed.wrapping_add(number);
    Pattern::of(if is_answer { !of } else { of })
}

/// Answers datagrams until the runtime ends. Errors: the port is taken.
pub(super) async fn start(address: Ipv4Addr, door: Door, ledger: &Arc<Ledger>) -> io::Result<()> {
    let socket = UdpSocket::bind((address, port(Service::Datagrams, door))).await?;
    let ledger = Arc::clone(ledger);
    tokio::spawn(async move {
        let mut buffer = vec![0; 65_536];
        loop {
            let Ok((length, from)) = socket.recv_from(&mut buffer).await else { continue };
            let bytes = buffer.get(..length).unwrap_or_default();
            let Some((seed, number)) = compared(bytes, false) else {
                ledger.on_wrong(format!("a datagram of {length} bytes at the server"));
                continue;
            };
            ledger.up(door).on_compared(length as u64);
            let answer = datagram(seed, number, length - HEAD, true);
            ledger.down(door).on_sent(answer.len() as u64);
            // one that is not sent is lost, as the network's
            let _lost = socket.send_to(&answer, from).await;
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_cut_and_mixed_datagrams_are_found() {
        let sent = datagram(7, 9, 100, false);
        assert_eq!(compared(&sent, false), Some((7, 9)));
        assert_eq!(compared(&sent, true), None);
        assert_eq!(compared(&sent[..10], false), None);
        for at in 0..sent.len() {
            let mut changed = sent.clone();
            changed[at] ^= 1;
            assert_ne!(compared(&changed, false), Some((7, 9)), "{at}");
        }
    }
}
