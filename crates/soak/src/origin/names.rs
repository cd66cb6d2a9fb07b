//! A name server: every name below `test` is one address (RFC 1035). It can be told to answer nobody.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use tokio::net::UdpSocket;

/// Flags of an answer: QR, AA, RD, RA, and no error.
const ANSWER: [u8; 2] = [0x85, 0x80];
/// TYPE A, CLASS IN, one second.
const RECORD: [u8; 10] = [0, 1, 0, 1, 0, 0, 0, 1, 0, 4];
const HEADER: usize = 12;

/// Its switch, and what it was asked.
#[derive(Debug, Default)]
pub(crate) struct Names {
    dead: AtomicBool,
    asked: AtomicU64,
}

impl Names {
    /// Answers at port 53 of this address until the runtime ends. Errors: the port is taken.
    pub(crate) async fn start(address: Ipv4Addr) -> io::Result<Arc<Self>> {
        let socket = UdpSocket::bind((address, 53)).await?;
        let names = Arc::new(Self::default());
        let this = Arc::clone(&names);
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            loop {
                let Ok((length, from)) = socket.recv_from(&mut buffer).await else { continue };
                this.asked.fetch_add(1, Relaxed);
                let question = buffer.get(..length).unwrap_or_default();
                if let Some(answer) = answer(question, address).filter(|_| !this.is_dead()) {
                    // an answer that is lost is asked for again
                    let _lost = socket.send_to(&answer, from).await;
                }
            }
        });
        Ok(names)
    }

    /// From now on it answers nobody, or everybody.
    pub(crate) fn set_dead(&self, dead: bool) {
        self.dead.store(dead, Relaxed);
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Relaxed)
    }

    /// Questions so far.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Relaxed)
    }
}

/// The answer to a message with one question: the address for type A, nothing for other types.
fn answer(question: &[u8], address: Ipv4Addr) -> Option<Vec<u8>> {
    let header = question.get(..HEADER)?;
    (header.get(2)? & 0x80 == 0 && header.get(4..6)? == [0, 1]).then_some(())?;
    let mut at = HEADER;
    while let length @ 1.. = usize::from(*question.get(at)?) {
        at += length + 1;
    }
    let name = question.get(HEADER..=at)?;
    let kind = question.get(at + 1..at + 5)?;
    let records = u8::from(kind == [0, 1, 0, 1]);
    let mut answer = header[..2].to_vec();
    answer.extend(ANSWER);
    answer.extend([0, 1, 0, records, 0, 0, 0, 0]);
    answer.extend(name);
    answer.extend(kind);
    if records == 1 {
        // the question's name
        answer.extend([0xc0, HEADER as u8]);
        answer.extend(RECORD);
        answer.extend(address.octets());
    }
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(kind: u8) -> Vec<u8> {
        let mut question = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        question.extend(b"\x01a\x04test\0");
        question.extend([0, kind, 0, 1]);
        question
    }

    #[test]
    fn names_have_one_address_of_version_4() {
        let address = Ipv4Addr::new(192, 0, 2, 1);
        let a = answer(&question(1), address).unwrap();
        assert_eq!(a[..8], [7, 9, 0x85, 0x80, 0, 1, 0, 1]);
        assert!(a.ends_with(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 192, 0, 2, 1]));
        let aaaa = answer(&question(28), address).unwrap();
        assert_eq!(aaaa[6..8], [0, 0]);
        assert!(aaaa.ends_with(&[0, 28, 0, 1]));
    }

    #[test]
    fn messages_without_a_question_have_no_answer() {
        let whole = question(1);
        for length in 0..whole.len() {
            assert_eq!(answer(&whole[..length], Ipv4Addr::LOCALHOST), None, "{length}");
        }
        let mut response = whole;
        response[2] |= 0x80;
        assert_eq!(answer(&response, Ipv4Addr::LOCALHOST), None);
    }
}
