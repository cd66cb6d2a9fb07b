//! The law over questions for names: they and their replies are what an account uses, and a quota ends to the byte. A few
//! of an account that is cut are answered for nothing, which is not tried here.

use super::{MUCH, free_port};
use crate::accounts_limits::{of, quota, relay_with};
use crate::common::wire::{PATIENCE, Relay};
use crate::common::{connect, wait_until};
use ekiden_proxy::settings::ExceededAction;
use ekiden_testkit::names::question;
use proptest::prelude::*;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};

/// A client of `[dns] listen`.
enum Client {
    Datagrams(UdpSocket),
    Stream(TcpStream),
}

impl Client {
    fn new(at: SocketAddr, is_stream: bool) -> Self {
        if is_stream {
            return Self::Stream(connect(at));
        }
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.connect(at).unwrap();
        Self::Datagrams(socket)
    }

    /// How many bytes a message takes.
    fn send(&mut self, message: &[u8]) -> u64 {
        match self {
            Self::Datagrams(socket) => socket.send(message).unwrap() as u64,
            Self::Stream(stream) => {
                let length = (message.len() as u16).to_be_bytes();
                let framed = [&length[..], message].concat();
                stream.write_all(&framed).unwrap();
                framed.len() as u64
            }
        }
    }

    fn receive(&mut self) -> u64 {
        match self {
            Self::Datagrams(socket) => socket.recv(&mut [0; 1_500]).unwrap() as u64,
            Self::Stream(stream) => {
                let mut length = [0; 2];
                stream.read_exact(&mut length).unwrap();
                let length = u16::from_be_bytes(length);
                stream.read_exact(&mut vec![0; length.into()]).unwrap();
                2 + u64::from(length)
            }
        }
    }
}

/// A relay whose account may use so many bytes, and where it is asked for names.
fn answering(bytes: u64) -> (Relay, SocketAddr) {
    let at = free_port();
    let relay = relay_with(quota(bytes, ExceededAction::Cut), |settings| {
        settings.dns.listen = vec![at];
        // these names need no server
        settings.dns.servers = vec![SocketAddr::from(([127, 0, 0, 1], 9)).into()];
        settings.dns.rate = 100_000;
    });
    (relay, at)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 16, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_of_questions_for_names_counts(
        labels in prop::collection::vec(1_usize..60, 1..30),
        rest in 0_usize..200,
        part in 0.0..1.0,
    ) {
        let name = |label: &usize| format!("{}.invalid", "x".repeat(*label));
        let questions: Vec<Vec<u8>> =
            (0..).zip(&labels).map(|(id, label)| question(id, &name(label))).collect();
        for is_stream in [false, true] {
            let (relay, at) = answering(MUCH);
            let mut client = Client::new(at, is_stream);
            let moved: Vec<(u64, u64)> =
                questions.iter().map(|asked| (client.send(asked), client.receive())).collect();
            let down = moved.iter().map(|(_, down)| down).sum::<u64>();
            let mut up = moved.iter().map(|(up, _)| up).sum::<u64>();
            let total = up + down;
            if let Client::Stream(stream) = &mut client {
                // a part of a message
                let rest = [&[1, 0][..], &vec![7; rest]].concat();
                stream.write_all(&rest).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                up += rest.len() as u64;
            }
            let is_all = || of(&relay) == (down, up);
            wait_until(is_all, || format!("{:?}, and {down} and {up} moved", of(&relay)));

            let most = 1 + ((total - 2) as f64 * part) as u64;
            let (relay, at) = answering(most);
            let mut client = Client::new(at, is_stream);
            let mut sum = 0;
            for (asked, (up, down)) in questions.iter().zip(&moved) {
                client.send(asked);
                sum += up + down;
                let used = || of(&relay).0 + of(&relay).1;
                let due = sum.min(most);
                wait_until(|| used() == due, || format!("{:?}, and {due} are due", of(&relay)));
                if sum >= most {
                    break;
                }
            }
            prop_assert!(sum >= most);
        }
    }
}
