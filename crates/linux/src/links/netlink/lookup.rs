//! Whether an address is this machine's own: a lookup of its route. To bind a socket tells less: with
//! `net.ipv4.ip_nonlocal_bind` every address can be bound.

use super::links::family;
use super::{Failure, Netlink};
use crate::host::clock;
use crate::host::sync::locked;
use crate::host::sysctl;
use ekiden_model::units::{Span, Time};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::Mutex;

/// What the kernel answers where no route leads to an address, or one that drops its packets.
const NO_WAY: [i32; 5] =
    [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::ENETDOWN, libc::EACCES, libc::EINVAL];

/// How long an answer holds: each connection and each datagram of a client asks.
const HOLDS: Span = Span::from_secs(1);
/// The most answers at once.
const MOST: usize = 1_024;

static ANSWERS: Mutex<Answers> = Mutex::new(Answers::new());
/// Kept open: where all descriptors are in use, addresses can still be looked up. Beside the answers, so that what is
/// known does not wait for the kernel.
static KEPT: Mutex<Option<Netlink>> = Mutex::new(None);

/// Answers, and until when each holds.
struct Answers {
    of: BTreeMap<IpAddr, (Time, bool)>,
    /// As they were put in, so by that time. Some have newer ones.
    ends: VecDeque<(Time, IpAddr)>,
}

impl Answers {
    const fn new() -> Self {
        Self { of: BTreeMap::new(), ends: VecDeque::new() }
    }

    /// The answer for an address, where one holds.
    fn get(&self, now: Time, address: IpAddr) -> Option<bool> {
        let (end, answer) = self.of.get(&address)?;
        (now < *end).then_some(*answer)
    }

    fn insert(&mut self, now: Time, address: IpAddr, answer: bool) {
        // the oldest gives way: others' answers outlast a client that sends to very many addresses
        if self.ends.len() >= MOST
            && let Some((end, oldest)) = self.ends.pop_front()
            && self.of.get(&oldest).is_some_and(|(of, _)| *of == end)
        {
            self.of.remove(&oldest);
        }
        let end = now + HOLDS;
        self.of.insert(address, (end, answer));
        self.ends.push_back((end, address));
    }
}

/// Whether packets to `address` stay on this machine: it is a device's own or its network's anycast address, or is routed
/// as `local`. An answer holds for a second. Asks in the namespace of the process's first lookup. Errors: the kernel
/// cannot be asked, as without a descriptor.
pub fn is_local(address: IpAddr) -> io::Result<bool> {
    let now = clock::now();
    let known = locked(&ANSWERS).get(now, address);
    if let Some(answer) = known {
        return Ok(answer);
    }
    let answer = look_up(address).or_else(|_| can_bind(address))?;
    locked(&ANSWERS).insert(now, address, answer);
    Ok(answer)
}

fn look_up(address: IpAddr) -> io::Result<bool> {
    ask_by(&mut locked(&KEPT), |netlink| netlink.is_local(address))
}

/// Asks by the socket that is kept, or by a new one. It stays where the question fails, too: each answer has its
/// question's number, and later there may be no descriptor for another.
fn ask_by(
    kept: &mut Option<Netlink>,
    ask: impl FnOnce(&Netlink) -> Result<bool, Failure>,
) -> io::Result<bool> {
    let netlink = match kept.take() {
        Some(netlink) => netlink,
        None => Netlink::here()?,
    };
    let found = ask(&netlink);
    *kept = Some(netlink);
    found.map_err(|failure| io::Error::from_raw_os_error(failure.errno()))
}

/// For a machine that refuses netlink, as some containers do.
fn can_bind(address: IpAddr) -> io::Result<bool> {
    match UdpSocket::bind((address, 0)) {
        Ok(_) if binds_all(address) => is_listed(address),
        Ok(_) => Ok(true),
        Err(error) => match error.raw_os_error() {
            Some(libc::EADDRNOTAVAIL | libc::EINVAL | libc::EAFNOSUPPORT) => Ok(false),
            _ => Err(error),
        },
    }
}

/// Whether every address of this family can be bound.
fn binds_all(address: IpAddr) -> bool {
    let family = if address.is_ipv4() { "ipv4" } else { "ipv6" };
    sysctl::number(&format!("net.{family}.ip_nonlocal_bind")).is_some_and(|value| value != 0)
}

/// Whether the kernel lists `address` among its own, or within a prefix of IPv4 that is routed as `local`. Errors: `/proc`
/// is not there.
fn is_listed(address: IpAddr) -> io::Result<bool> {
    let file = |name: &str| fs::read_to_string(Path::new("/proc/thread-self/net").join(name));
    Ok(match address {
        IpAddr::V4(v4) => is_in_trie(&file("fib_trie")?, v4),
        IpAddr::V6(v6) => {
            let wanted = format!("{:032x}", v6.to_bits());
            file("if_inet6")?.lines().any(|line| line.starts_with(&wanted))
        }
    })
}

/// By lines as `|-- 127.0.0.0`, each with lines as `/8 host LOCAL` below it, under the name of their table.
fn is_in_trie(trie: &str, address: Ipv4Addr) -> bool {
    let (mut start, mut is_asked) = (Ipv4Addr::UNSPECIFIED, false);
    trie.lines().any(|line| {
        // other tables are for some packets alone, such as those with the gateway's mark
        if !line.starts_with(' ') {
            is_asked = ["Main:", "Local:"].contains(&line);
        }
        let line = line.trim_start();
        if let Some(node) = line.strip_prefix("|-- ") {
            start = node.parse().unwrap_or(Ipv4Addr::UNSPECIFIED);
        }
        let length = line.strip_prefix('/').filter(|_| is_asked && line.ends_with(" LOCAL"));
        let length = length.and_then(|rest| rest.split(' ').next()?.parse::<u32>().ok());
        length.is_some_and(|length| {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(length)).unwrap_or(0);
            (address.to_bits() ^ start.to_bits()) & mask == 0
        })
    })
}

impl Netlink {
    /// Whether packets to `address` stay on this machine; no privilege is needed. Errors: the kernel's.
    pub fn is_local(&self, address: IpAddr) -> Result<bool, Failure> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(address);
        message.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
        message.attributes = vec![RouteAttribute::Destination(address.into())];
        let what = format!("a look at the route to {address}");
        match self.ask(&what, RouteNetlinkMessage::GetRoute(message), 0) {
            Ok(answers) => Ok(answers.iter().any(|answer| match answer {
                // datagrams to the anycast address of a router's network arrive at its programs (RFC 4291 §2.6.1)
                RouteNetlinkMessage::NewRoute(route) => {
                    matches!(route.header.kind, RouteType::Local | RouteType::Anycast)
                }
                _ => false,
            })),
            Err(failure) if NO_WAY.contains(&failure.errno()) => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer, and whether the kernel has to be asked, which says `local`.
    fn get(answers: &mut Answers, millis: u64, address: u32, local: bool) -> (bool, bool) {
        let now = Time::ZERO + Span::from_millis(millis);
        let address = Ipv4Addr::from_bits(address).into();
        match answers.get(now, address) {
            Some(known) => (known, false),
            None => {
                answers.insert(now, address, local);
                (local, true)
            }
        }
    }

    #[test]
    fn an_address_is_asked_for_again_after_a_second() {
        let mut answers = Answers::new();
        assert_eq!(get(&mut answers, 0, 1, false), (false, true));
        assert_eq!(get(&mut answers, 500, 2, true), (true, true));
        // it is added
        assert_eq!(get(&mut answers, 999, 1, true), (false, false));
        assert_eq!(get(&mut answers, 1_000, 1, true), (true, true));
        assert_eq!(get(&mut answers, 1_499, 2, false), (true, false));
        assert_eq!(get(&mut answers, 1_999, 1, false), (true, false));
    }

    #[test]
    fn answers_for_many_addresses_take_no_more_room() {
        let mut answers = Answers::new();
        for address in 0..5_000 {
            assert_eq!(get(&mut answers, 0, address, false), (false, true));
            assert_eq!(get(&mut answers, 0, address, true), (false, false));
            assert!(answers.of.len() <= MOST && answers.ends.len() <= MOST);
        }
    }

    #[test]
    fn the_oldest_answer_gives_way_and_no_newer_one() {
        let mut answers = Answers::new();
        let all = MOST as u32;
        for address in 0..all {
            get(&mut answers, 0, address, false);
        }
        // asked for again, so it is the newest
        assert_eq!(get(&mut answers, 1_000, 0, true), (true, true));
        for address in all..2 * all - 1 {
            assert_eq!(get(&mut answers, 1_001, address, false), (false, true));
        }
        assert_eq!(get(&mut answers, 1_001, 0, false), (true, false));
        assert_eq!(get(&mut answers, 1_001, 2 * all, false), (false, true));
        for address in all..=2 * all {
            let asked = address == 2 * all - 1;
            assert_eq!(get(&mut answers, 1_001, address, false), (false, asked), "{address}");
        }
    }

    #[test]
    fn a_question_that_fails_leaves_the_socket_to_the_next_one() {
        let mut kept = None;
        let failed = ask_by(&mut kept, |_| Err(Failure::new("a look", libc::EPERM)));
        assert_eq!(failed.unwrap_err().raw_os_error(), Some(libc::EPERM));
        assert!(kept.is_some());
        assert!(ask_by(&mut kept, |netlink| netlink.is_local(Ipv4Addr::LOCALHOST.into())).unwrap());
    }

    #[test]
    fn own_addresses_are_listed_and_no_others() {
        for (address, expected) in [("127.0.0.1", true), ("127.1.2.3", true), ("192.0.2.1", false)]
        {
            assert_eq!(is_listed(address.parse().unwrap()).unwrap(), expected, "{address}");
        }
    }

    /// The second address of a network is sent to from its first one.
    #[test]
    fn the_kernel_s_list_has_secondary_addresses_and_local_prefixes() {
        let trie = "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     \
            +-- 10.1.1.0/24 2 0 2\n        |-- 10.1.1.1\n           /32 host LOCAL\n        \
            |-- 10.1.1.2\n           /32 host LOCAL\n        |-- 10.1.1.255\n           \
            /32 link BROADCAST\n     |-- 198.51.100.0\n        /24 link UNICAST\n        \
            /25 host LOCAL\nId 25963:\n  |-- 0.0.0.0\n     /0 host LOCAL\n";
        for (address, expected) in [
            ([10, 1, 1, 1], true),
            ([10, 1, 1, 2], true),
            ([10, 1, 1, 3], false),
            ([10, 1, 1, 255], false),
            ([198, 51, 100, 127], true),
            ([198, 51, 100, 128], false),
        ] {
            assert_eq!(is_in_trie(trie, address.into()), expected, "{address:?}");
        }
    }

    #[test]
    fn loopback_is_local_and_addresses_of_examples_are_not() {
        for (address, expected) in
            [("127.0.0.1", true), ("127.1.2.3", true), ("192.0.2.1", false), ("2001:db8::1", false)]
        {
            let address = address.parse().unwrap();
            let [first, kept] = [is_local(address).unwrap(), is_local(address).unwrap()];
            assert_eq!([first, kept, can_bind(address).unwrap()], [expected; 3], "{address}");
        }
    }
}
