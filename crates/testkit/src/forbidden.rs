//! Where no client may go unless its operator opened it: one list, which the tests of every door go through.

use std::net::IpAddr;

/// What an address is, in the words of its refusal.
pub type Kind = &'static str;

/// This machine.
pub const LOOPBACK: Kind = "a loopback address";
/// The local link, and metadata services of clouds.
pub const LINK_LOCAL: Kind = "a link-local address";
/// Metadata services at other addresses.
pub const METADATA: Kind = "a cloud's metadata service";
/// Open to clients that have a private address themselves.
pub const PRIVATE: Kind = "a private address";
/// Groups and everybody.
pub const MULTICAST: Kind = "a multicast or broadcast address";
/// Nobody's.
pub const RESERVED: Kind = "a reserved address";

/// Special addresses (IANA's registries of special-purpose addresses), and IPv6 addresses in which translators, relays and
/// kernels find a special one of IPv4.
pub const ADDRESSES: &[(&str, Kind)] = &[
    ("127.0.0.1", LOOPBACK),
    ("127.255.255.254", LOOPBACK),
    ("0.0.0.0", LOOPBACK),
    ("0.1.2.3", LOOPBACK),
    ("::", LOOPBACK),
    ("::1", LOOPBACK),
    // mapped, compatible, translated by SIIT
    ("::ffff:127.0.0.1", LOOPBACK),
    ("::127.0.0.1", LOOPBACK),
    ("::ffff:0:127.0.0.1", LOOPBACK),
    // NAT64 (RFC 6052, RFC 8215), 6to4
    ("64:ff9b::127.0.0.1", LOOPBACK),
    ("64:ff9b:1::127.0.0.1", LOOPBACK),
    ("64:ff9b:1:7f00:0:100::", LOOPBACK),
    ("2002:7f00:1::1", LOOPBACK),
    ("169.254.169.254", LINK_LOCAL),
    ("169.254.1.1", LINK_LOCAL),
    ("::ffff:169.254.169.254", LINK_LOCAL),
    ("64:ff9b::169.254.169.254", LINK_LOCAL),
    ("64:ff9b:1:a9fe:a9:fe00::", LINK_LOCAL),
    ("2002:a9fe:a9fe::1", LINK_LOCAL),
    ("fe80::1", LINK_LOCAL),
    // Alibaba, Oracle, Azure, Amazon, Google, Akamai, Scaleway
    ("100.100.100.200", METADATA),
    ("fd00:100::100:200", METADATA),
    ("192.0.0.192", METADATA),
    ("fd00:c1::a9fe:a9fe", METADATA),
    ("168.63.129.16", METADATA),
    ("fd00:ec2::254", METADATA),
    ("fd20:ce::254", METADATA),
    ("fd00:a9fe:a9fe::1", METADATA),
    ("fd00:42::42", METADATA),
    ("10.0.0.1", PRIVATE),
    ("172.16.0.1", PRIVATE),
    ("192.168.0.1", PRIVATE),
    ("100.64.0.1", PRIVATE),
    ("::ffff:10.0.0.1", PRIVATE),
    ("64:ff9b::10.0.0.1", PRIVATE),
    ("2002:a00:1::1", PRIVATE),
    ("fd12::1", PRIVATE),
    ("fec0::1", PRIVATE),
    ("224.0.0.1", MULTICAST),
    ("239.255.255.250", MULTICAST),
    ("255.255.255.255", MULTICAST),
    ("ff02::1", MULTICAST),
    ("192.0.0.1", RESERVED),
    ("192.0.2.1", RESERVED),
    ("192.88.99.1", RESERVED),
    ("198.18.0.1", RESERVED),
    ("198.51.100.1", RESERVED),
    ("203.0.113.1", RESERVED),
    ("240.0.0.1", RESERVED),
    // Teredo, which ends in an IPv4 address with its bits turned over
    ("2001::80ff:fffe", RESERVED),
    ("2001:2::1", RESERVED),
    ("2001:20::1", RESERVED),
    ("2001:db8::1", RESERVED),
    ("3fff::1", RESERVED),
    ("5f00::1", RESERVED),
    ("100::1", RESERVED),
    ("100:0:0:1::1", RESERVED),
];

/// Destinations without a port that must not be taken: other programs read them as special addresses, or see one host where this
/// relay would see another. An address of IPv6 stands in brackets.
pub const SPELLINGS: &[&str] = &[
    "2130706433",
    "0x7f000001",
    "0X7F.1",
    "0x7f.0.0.1",
    "017700000001",
    "0177.0.0.1",
    "127.1",
    "127.0.1",
    "127.0.0.1.",
    "127.0.0.1..",
    "127.0.0.01",
    "1.127.0.0.1",
    "0",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "a.localhost",
    "user@127.0.0.1",
    "example.org@127.0.0.1",
    "127.0.0.1@example.org",
    "127.0.0.1%00",
    "127.0.0.1#.example.org",
    "127.0.0.1\\.example.org",
    "127.0.0.1/example.org",
    "[::1%25lo]",
    "[::1%lo]",
    "[127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:0:0:1]",
    "[::1",
    "::1",
    ".",
    "",
];

/// Ports that must not be taken.
pub const PORTS: &[&str] = &["0", "65536", "65616", "-1", "+80", "0x50", "80 ", "8 0", ""];

/// The addresses of [`ADDRESSES`], and what each is.
pub fn addresses() -> impl Iterator<Item = (IpAddr, Kind)> {
    ADDRESSES.iter().map(|(text, kind)| (text.parse().unwrap(), *kind))
}
