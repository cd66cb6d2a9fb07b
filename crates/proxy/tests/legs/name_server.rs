//! A small name server that answers by a script and counts what it is asked.

use crate::harness::loopback;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Condvar, Mutex};

/// What a question is answered with.
#[derive(Clone)]
pub(crate) enum Say {
    /// These addresses, to be kept so many seconds; those of the other family are left out.
    Addresses(Vec<IpAddr>, u32),
    /// Response code 3.
    NoSuchName,
    /// Response code 2.
    ServerFailure,
    /// Nothing at all.
    Nothing,
    /// As the other, once [`NameServer::release`] was called.
    Held(Box<Self>),
}

/// Addresses in text, kept for a minute.
pub(crate) fn addresses(list: &[&str]) -> Say {
    Say::Addresses(list.iter().map(|text| text.parse().unwrap()).collect(), 60)
}

type Asked = (String, bool);

pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<BTreeMap<Asked, usize>>>,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

/// Names whose addresses are of this machine, its link, or a group.
pub(crate) const SPECIAL: [&str; 6] = ["loopback", "six", "mapped", "metadata", "this", "group"];

impl NameServer {
    /// One for [`SPECIAL`] below `test`.
    pub(crate) fn of_special_addresses() -> Self {
        let none = addresses(&[]);
        Self::start(&[
            ("loopback.test", addresses(&["127.0.0.1"]), none.clone()),
            ("six.test", none.clone(), addresses(&["::1"])),
            ("mapped.test", none.clone(), addresses(&["::ffff:127.0.0.1"])),
            ("metadata.test", addresses(&["169.254.169.254"]), none.clone()),
            ("this.test", addresses(&["0.0.0.0"]), none.clone()),
            ("group.test", addresses(&["224.0.0.1"]), none),
        ])
    }

    /// For each name what is said to a question for A, and to one for AAAA. Other names do not exist.
    pub(crate) fn start(names: &[(&str, Say, Say)]) -> Self {
        let socket = UdpSocket::bind(loopback(0)).unwrap();
        let address = socket.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(BTreeMap::new()));
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let mut book = BTreeMap::new();
        for (name, v4, v6) in names {
            book.insert(((*name).to_owned(), false), v4.clone());
            book.insert(((*name).to_owned(), true), v6.clone());
        }
        let server = Self { address, asked: Arc::clone(&asked), gate: Arc::clone(&gate) };
        std::thread::spawn(move || {
            let mut buffer = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let Some((key, end)) = question(&buffer[..length]) else { continue };
                *asked.lock().unwrap().entry(key.clone()).or_insert(0) += 1;
                let say = book.get(&key).cloned().unwrap_or(Say::NoSuchName);
                let query = buffer[..end].to_vec();
                let (socket, gate) = (socket.try_clone().unwrap(), Arc::clone(&gate));
                std::thread::spawn(move || {
                    if let Some(text) = answer(&query, key.1, say, &gate) {
                        let _ = socket.send_to(&text, from);
                    }
                });
            }
        });
        server
    }

    /// How often a name was asked for.
    pub(crate) fn asked(&self, name: &str, ipv6: bool) -> usize {
        self.asked.lock().unwrap().get(&(name.to_owned(), ipv6)).copied().unwrap_or(0)
    }

    /// Answers what is held.
    pub(crate) fn release(&self) {
        *self.gate.0.lock().unwrap() = true;
        self.gate.1.notify_all();
    }
}

/// The name, whether AAAA is asked for, and where the question ends (RFC 1035 §4.1).
fn question(message: &[u8]) -> Option<(Asked, usize)> {
    let mut at = 12;
    let mut labels = Vec::new();
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(message.get(at..at + length)?).to_lowercase());
        at += length;
    }
    let kind = u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]);
    matches!(kind, 1 | 28).then(|| ((labels.join("."), kind == 28), at + 4))
}

fn answer(query: &[u8], ipv6: bool, say: Say, gate: &(Mutex<bool>, Condvar)) -> Option<Vec<u8>> {
    let (code, list, ttl) = match say {
        Say::Held(then) => {
            drop(gate.1.wait_while(gate.0.lock().unwrap(), |open| !*open).unwrap());
            return answer(query, ipv6, *then, gate);
        }
        Say::Nothing => return None,
        Say::ServerFailure => (2, vec![], 0),
        Say::NoSuchName => (3, vec![], 0),
        Say::Addresses(list, ttl) => (0, list, ttl),
    };
    let list: Vec<_> = list.into_iter().filter(|address| address.is_ipv6() == ipv6).collect();
    let mut text = query[..2].to_vec();
    // a response, recursion desired and available
    text.extend_from_slice(&[0x81, 0x80 | code, 0, 1, 0, list.len() as u8, 0, 0, 0, 0]);
    text.extend_from_slice(&query[12..]);
    for address in list {
        let (kind, bytes) = match address {
            IpAddr::V4(v4) => (1, Ipv4Addr::octets(&v4).to_vec()),
            IpAddr::V6(v6) => (28, Ipv6Addr::octets(&v6).to_vec()),
        };
        text.extend_from_slice(&[0xc0, 12, 0, kind, 0, 1]);
        text.extend_from_slice(&ttl.to_be_bytes());
        text.extend_from_slice(&[0, bytes.len() as u8]);
        text.extend_from_slice(&bytes);
    }
    Some(text)
}
