//! Which addresses a reload listens on: those of the new configuration, except that port 0 keeps its port.

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

#[cfg(test)]
mod tests {
    use super::*;

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
