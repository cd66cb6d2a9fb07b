//! Addresses: machines 100.127.x.y and fd65:6b69:64:1::n, ends of links 100.64.x.y and fd65:6b69:64:2::n; of
//! the carriers' shared space (RFC 6598) and unique local (RFC 4193).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The address of the n-th machine.
pub(super) const fn host_v4(n: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x647f_0000 + n as u32 + 1)
}

/// The same, IPv6.
pub(super) const fn host_v6(n: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd65, 0x6b69, 0x64, 1, 0, 0, 0, n as u16 + 1)
}

/// The address of one end (0 or 1) of the n-th link.
pub(crate) const fn end_v4(link: usize, end: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x6440_0000 + link as u32 * 4 + end as u32 + 1)
}

/// The same, IPv6.
pub(crate) const fn end_v6(link: usize, end: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd65, 0x6b69, 0x64, 2, 0, 0, link as u16, end as u16 + 1)
}

/// The addresses of this end and of the other one, IPv4 first.
pub(super) fn ends(link: usize, end: usize) -> [(IpAddr, IpAddr); 2] {
    let other = 1 - end;
    [
        (end_v4(link, end).into(), end_v4(link, other).into()),
        (end_v6(link, end).into(), end_v6(link, other).into()),
    ]
}

/// The machine's device at one end of the n-th link; locally administered.
pub(super) const fn mac(link: usize, end: usize) -> [u8; 6] {
    [0x02, 0x65, (link >> 8) as u8, link as u8, 0, end as u8 + 1]
}

pub(super) const fn mac_of_emulator(link: usize, end: usize) -> [u8; 6] {
    [0x02, 0x65, (link >> 8) as u8, link as u8, 1, end as u8 + 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_differ() {
        assert_eq!(host_v4(0), Ipv4Addr::new(100, 127, 0, 1));
        assert_eq!(end_v4(64, 1), Ipv4Addr::new(100, 64, 1, 2));
        assert_eq!(host_v6(1).to_string(), "fd65:6b69:64:1::2");
        assert_eq!(end_v6(3, 0).to_string(), "fd65:6b69:64:2::3:1");
        assert_ne!(mac(300, 0), mac(44, 0));
        assert_ne!(mac(0, 0), mac_of_emulator(0, 0));
    }
}
