//! A socket's actual option values, for tests and for `status`.

use crate::sockets::key::Key;
use crate::sockets::sockopt;
use libc::{AF_INET6, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_MPTCP, IPPROTO_TCP, SOL_SOCKET};
use socket2::SockRef;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

pub(crate) fn local_address(fd: BorrowedFd<'_>) -> Option<IpAddr> {
    let address = SockRef::from(&fd).local_addr().ok()?.as_socket()?;
    Some(address.ip().to_canonical())
}

/// The actual value of each option, in the order of [`Key::ALL`] and the configuration's notation,
/// without those that this kernel or socket lacks.
pub fn read_back(fd: BorrowedFd<'_>) -> Vec<(&'static str, String)> {
    let read = |key: Key| -> Option<String> {
        Some(match key {
            Key::Congestion => sockopt::get_text(fd, IPPROTO_TCP, libc::TCP_CONGESTION).ok()?,
            Key::Pace => key.text(sockopt::get_pace(fd).ok()?),
            Key::Dscp => {
                let ipv6 = sockopt::get_int(fd, SOL_SOCKET, libc::SO_DOMAIN) == Ok(AF_INET6);
                let class = if ipv6 {
                    sockopt::get_int(fd, IPPROTO_IPV6, libc::IPV6_TCLASS)
                } else {
                    sockopt::get_int(fd, IPPROTO_IP, libc::IP_TOS)
                };
                key.text(u64::from(class.ok()? as u32 >> 2))
            }
            Key::Device => sockopt::get_text(fd, SOL_SOCKET, libc::SO_BINDTODEVICE).ok()?,
            Key::Source => local_address(fd)?.to_string(),
            Key::FastOpen => {
                let queue = sockopt::get_int(fd, IPPROTO_TCP, libc::TCP_FASTOPEN).unwrap_or(0);
                let connect = sockopt::get_int(fd, IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT);
                (queue > 0 || connect.is_ok_and(|on| on != 0)).to_string()
            }
            Key::Mptcp => {
                let protocol = sockopt::get_int(fd, SOL_SOCKET, libc::SO_PROTOCOL).ok()?;
                (protocol == IPPROTO_MPTCP).to_string()
            }
            _ => {
                let (level, name) = key.place()?;
                key.text(u64::from(sockopt::get_int(fd, level, name).ok()? as u32))
            }
        })
    };
    Key::ALL.into_iter().filter_map(|key| Some((key.name(), read(key)?))).collect()
}
