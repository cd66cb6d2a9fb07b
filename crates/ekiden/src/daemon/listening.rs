//! Which addresses a reload listens on: those of the new configuration, except that port 0 keeps its port. And which key
//! asked for one that could not be had.

use crate::setup::ports::{self, Transport};
use ekiden_config::{self as config, Draft, Overrides};
use ekiden_proxy::StartError;
use std::io;
use std::net::SocketAddr;

/// The addresses of the configuration in effect, each beside the one that the kernel made of it.
#[derive(Debug, Default)]
pub(crate) struct Listening(Vec<(SocketAddr, SocketAddr)>);

impl Listening {
    /// Takes note of a configuration's addresses and of the bound ones, in the same order.
    pub(crate) fn set(&mut self, configured: &[SocketAddr], bound: &[SocketAddr]) {
        self.0 = configured.iter().copied().zip(bound.iter().copied()).collect();
    }

    /// The addresses to bind for these configured ones: each port 0 becomes the port that an equal address has now.
    pub(crate) fn resolve(&self, configured: &[SocketAddr]) -> Vec<SocketAddr> {
        let mut left: Vec<_> = self.0.iter().filter(|(address, _)| address.port() == 0).collect();
        let mut resolve = |address: &SocketAddr| {
            let place = left.iter().position(|(configured, _)| configured == address);
            place.map_or(*address, |place| left.remove(place).1)
        };
        configured.iter().map(&mut resolve).collect()
    }
}

/// What to add to an error about an address: the key that asks for it, who has it where /proc tells, and what to try.
pub(crate) fn in_the_way(error: &StartError, draft: &Draft, overrides: &Overrides) -> String {
    use ekiden_tunnel::driver::StartError as TunnelError;
    let mut all = config::listeners(draft);
    let (address, error, transport) = match error {
        StartError::Listen { address, error } => {
            // a forward's may be for UDP, which the error does not say
            let tcp = all.iter().any(|one| one.at == *address && one.tcp);
            (*address, error, if tcp { Transport::Tcp } else { Transport::Udp })
        }
        StartError::Tunnels(error) => match error.downcast_ref() {
            Some(TunnelError::Listen { address, error }) => (*address, error, Transport::Udp),
            _ => return String::new(),
        },
        _ => return String::new(),
    };
    all.retain(|one| if transport == Transport::Tcp { one.tcp } else { one.udp });
    // [management] has an error of its own
    let is_asked = |one: &&config::Listener| one.at == address && !one.key.contains("[management]");
    let Some(asks) = all.iter().rfind(is_asked).map(|one| one.key) else { return String::new() };
    let flag = asks == "`listen`" && !overrides.listen.is_empty();
    let key = if flag { "--listen" } else { asks };
    if error.kind() != io::ErrorKind::AddrInUse {
        return format!("; {key} asks for it");
    }
    match ports::holder(address, transport) {
        Some((_, pid)) if pid == std::process::id() => {
            let other = all.iter().find(|one| one.key != asks && one.overlaps(address));
            match other.map(|one| one.key) {
                Some(other) => format!(
                    "; {key} asks for it, and {other} of this relay has it: choose another port for one of them"
                ),
                None => format!(
                    "; {key} asks for it, and another key of the configuration in effect has it: reload without that one first"
                ),
            }
        }
        holder => format!(
            "; {key} asks for it, and it is taken {}: stop that program, or choose another port",
            ports::by(holder)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_taken_is_told_with_the_key_that_asks_and_the_one_that_has_it() {
        let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = held.local_addr().unwrap();
        let said = |text: &str, kind: io::ErrorKind, overrides: &Overrides| {
            let error = StartError::Listen { address, error: kind.into() };
            in_the_way(&error, &config::read(text, "f").draft, overrides)
        };
        let file = Overrides::default();
        let listen = format!("listen = [\"{address}\"]\n");
        let both = format!("{listen}[management]\nlisten = \"{address}\"\n");
        let why = said(&both, io::ErrorKind::AddrInUse, &file);
        assert!(
            why.starts_with("; `listen` asks for it, and `listen` of [management] of this relay"),
            "{why}"
        );
        let why = said(&listen, io::ErrorKind::AddrInUse, &file);
        assert!(why.contains("the configuration in effect has it"), "{why}");
        let dns = format!("[dns]\nlisten = [\"{address}\"]\n");
        let why = said(&dns, io::ErrorKind::PermissionDenied, &file);
        assert_eq!(why, "; `listen` of [dns] asks for it");
        let flag = Overrides { listen: vec![address], ..Overrides::default() };
        assert_eq!(said(&listen, io::ErrorKind::AddrNotAvailable, &flag), "; --listen asks for it");
    }

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_reload_there_and_back_binds_what_each_configuration_says() {
        let [a, b] =
            [&["127.0.0.1:1000"][..], &["127.0.0.1:2000", "127.0.0.1:1000"]].map(addresses);
        let mut listening = Listening::default();
        for configured in [&a, &b, &a] {
            assert_eq!(listening.resolve(configured), *configured);
            listening.set(configured, configured);
        }
    }

    #[test]
    fn port_zero_keeps_its_port_as_often_as_it_is_configured() {
        let configured = addresses(&["127.0.0.1:0", "127.0.0.2:0", "127.0.0.1:0", "127.0.0.1:9"]);
        let bound =
            addresses(&["127.0.0.1:5000", "127.0.0.2:6000", "127.0.0.1:7000", "127.0.0.1:9"]);
        let mut listening = Listening::default();
        listening.set(&configured, &bound);
        assert_eq!(listening.resolve(&configured), bound);
        let other = addresses(&["127.0.0.2:0", "127.0.0.1:0", "127.0.0.3:0"]);
        let expected = addresses(&["127.0.0.2:6000", "127.0.0.1:5000", "127.0.0.3:0"]);
        assert_eq!(listening.resolve(&other), expected);
    }
}
