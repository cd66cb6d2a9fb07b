//! Ports that are taken, by which process, and how to have them.

use socket2::{Domain, Protocol, Socket, Type};
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// What is listened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

/// What stands in the way of listening at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Obstacle {
    /// In words.
    pub(crate) why: String,
    /// Whether a program has it; otherwise there is none to stop.
    pub(crate) is_taken: bool,
}

impl Obstacle {
    /// The command after which a known server of names leaves its port to others.
    pub(crate) fn mend(&self) -> Option<String> {
        if self.why.contains("systemd-resolve") {
            return Some("mkdir -p /etc/systemd/resolved.conf.d && printf '[Resolve]\\nDNSStubListener=no\\n' >/etc/systemd/resolved.conf.d/no-stub.conf && ln -sf /run/systemd/resolve/resolv.conf /etc/resolv.conf && systemctl restart systemd-resolved".to_owned());
        }
        let known = ["dnsmasq", "unbound", "named", "pdns_recursor"];
        let name = known.into_iter().find(|name| self.why.contains(&format!("by {name},")))?;
        Some(match name {
            // it also hands out addresses, and without its own port 53 names this machine only where told to
            "dnsmasq" => "printf 'port=0\\ndhcp-option=option:dns-server,0.0.0.0\\ndhcp-option=option6:dns-server,[::]\\n' >/etc/dnsmasq.d/ekiden.conf && systemctl restart dnsmasq".to_owned(),
            name => format!("systemctl disable --now {}", name.replace('_', "-")),
        })
    }
}

/// Why nothing can listen at an address now; `None` where it can, or where the process `own` does.
pub(crate) fn taken(at: SocketAddr, transport: Transport, own: Option<u32>) -> Option<Obstacle> {
    let error = bind(at, transport).err()?;
    let other = |why| Some(Obstacle { why, is_taken: false });
    let name = match transport {
        Transport::Tcp => "TCP",
        Transport::Udp => "UDP",
    };
    match error.kind() {
        io::ErrorKind::AddrInUse => match holder(at, transport) {
            Some((_, pid)) if own == Some(pid) => None,
            found => {
                let why = format!("{name} {at} is taken {}", by(found));
                Some(Obstacle { why, is_taken: true })
            }
        },
        io::ErrorKind::AddrNotAvailable => {
            let ip = at.ip();
            other(format!(
                "this machine does not have the address {ip}; `ip address` lists those that it has"
            ))
        }
        // the service may have the right to do it
        io::ErrorKind::PermissionDenied => None,
        _ => other(format!("{name} {at}: {error}")),
    }
}

/// The words for who holds a port: `by squid, process 1234`.
pub(crate) fn by(holder: Option<(String, u32)>) -> String {
    match holder {
        Some((name, pid)) => format!("by {name}, process {pid}"),
        None => "by a process that this user cannot see".to_owned(),
    }
}

fn bind(at: SocketAddr, transport: Transport) -> io::Result<()> {
    if at.port() == 0 {
        return Ok(());
    }
    let (kind, protocol) = match transport {
        Transport::Tcp => (Type::STREAM, Protocol::TCP),
        Transport::Udp => (Type::DGRAM, Protocol::UDP),
    };
    let socket = Socket::new(Domain::for_address(at), kind, Some(protocol))?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if transport == Transport::Tcp {
        // connections of before do not count
        socket.set_reuse_address(true)?;
    }
    socket.bind(&at.into())?;
    if transport == Transport::Tcp { socket.listen(1) } else { Ok(()) }
}

/// The process that holds a port, by /proc: its name and number.
pub(crate) fn holder(at: SocketAddr, transport: Transport) -> Option<(String, u32)> {
    let tables = match transport {
        Transport::Tcp => ["tcp", "tcp6"],
        Transport::Udp => ["udp", "udp6"],
    };
    let mut inodes = Vec::new();
    for table in tables {
        // where IPv6 is off there is no table of it
        let text = fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        let found = text.lines().skip(1).filter_map(|line| inode(line, at, transport));
        inodes.extend(found.map(|inode| format!("socket:[{inode}]")));
    }
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    for process in processes {
        let Ok(pid) = process.file_name().to_string_lossy().parse::<u32>() else { continue };
        // of other users, and of processes that end, nothing is seen
        let Ok(open) = fs::read_dir(process.path().join("fd")) else { continue };
        let holds = open
            .filter_map(Result::ok)
            .filter_map(|fd| fs::read_link(fd.path()).ok())
            .any(|to| inodes.iter().any(|inode| to.as_os_str() == inode.as_str()));
        if holds {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some((crate::print::clean(name.trim()), pid));
        }
    }
    None
}

/// The socket of a line of /proc/net, if it waits for anybody at this address or at all.
fn inode(line: &str, at: SocketAddr, transport: Transport) -> Option<String> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (ip, port) = fields.get(1)?.rsplit_once(':')?;
    // `TCP_LISTEN` and, for UDP, `TCP_CLOSE` of include/net/tcp_states.h
    let state = if transport == Transport::Tcp { "0A" } else { "07" };
    let ip = address(ip)?;
    let same = ip == at.ip() || ip.is_unspecified() || at.ip().is_unspecified();
    let port = u16::from_str_radix(port, 16).ok()?;
    let meant = same && port == at.port() && *fields.get(3)? == state;
    meant.then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
}

/// An address in words of four bytes, each as this machine has it in memory.
fn address(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let digits = hex.get(at..at + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    match hex.len() {
        8 => Some(IpAddr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (nth, part) in bytes.chunks_mut(4).enumerate() {
                part.copy_from_slice(&word(nth * 8)?);
            }
            Some(IpAddr::from(bytes))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    #[test]
    fn a_taken_port_is_named_with_its_process() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let own = std::process::id();
        for (at, transport, name) in [
            (tcp.local_addr().unwrap(), Transport::Tcp, "TCP"),
            (udp.local_addr().unwrap(), Transport::Udp, "UDP"),
        ] {
            let obstacle = taken(at, transport, None).unwrap();
            assert!(obstacle.is_taken);
            let said = obstacle.why;
            assert!(said.starts_with(&format!("{name} {at} is taken by ")), "{said}");
            assert!(said.ends_with(&format!(", process {own}")), "{said}");
            assert_eq!(taken(at, transport, Some(own)), None);
        }
        // the same port of another address is not it
        let other = SocketAddr::from(([127, 0, 0, 2], tcp.local_addr().unwrap().port()));
        assert_eq!(holder(other, Transport::Tcp), None);
        let elsewhere = taken("192.0.2.77:3128".parse().unwrap(), Transport::Tcp, None).unwrap();
        assert!(elsewhere.why.contains("does not have the address"), "{elsewhere:?}");
        assert!(!elsewhere.is_taken, "there is no program to stop");
    }

    #[test]
    fn servers_of_names_leave_their_port_and_go_on_with_the_rest() {
        let mend = |by: &str| {
            let why = format!("UDP 0.0.0.0:53 is taken by {by}, process 7");
            Obstacle { why, is_taken: true }.mend()
        };
        assert!(mend("systemd-resolve").unwrap().contains("DNSStubListener=no"));
        let dnsmasq = mend("dnsmasq").unwrap();
        assert!(dnsmasq.starts_with(r"printf 'port=0\ndhcp-option="), "{dnsmasq}");
        assert!(dnsmasq.ends_with("systemctl restart dnsmasq"), "{dnsmasq}");
        // it names this machine to clients of both families: by DHCP, and by DHCPv6 and advertisements
        for option in ["option:dns-server,0.0.0.0", "option6:dns-server,[::]"] {
            assert!(dnsmasq.contains(&format!(r"\ndhcp-option={option}\n")), "{dnsmasq}");
        }
        let only_names = mend("pdns_recursor").unwrap();
        assert_eq!(only_names, "systemctl disable --now pdns-recursor");
        assert_eq!(mend("something"), None);
    }
}
