//! The key of idle connections: which may be used for which request (algorithms/buffers A.6).

/// A proxy's key of an idle connection. One register holds both kinds, in one order of eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pool<C, S> {
    /// A client's connection, reusable by it alone: `C` names the connection (address and port).
    Client(C),
    /// A connection to a server or another proxy, for any request that would open an identical one:
    /// `S` holds all in which they differ (address, requested name, route, credentials, protocol),
    /// so users share equal ones.
    Server(S),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::idle::{Config, Register};
    use crate::testing::*;
    use std::hash::RandomState;

    #[test]
    fn clients_keep_to_themselves_and_servers_are_shared() {
        let mut register = Register::new(Config::default(), RandomState::new());
        let client = |port: u16| Pool::Client(([192, 168, 10, 200], port));
        register.insert(Time::ZERO, client(10_010), 246);
        register.insert(Time::ZERO, Pool::Server("origin:80"), 36);
        register.insert(Time::ZERO, Pool::Server("origin:80"), 120);
        assert_eq!(register.reuse(&client(10_011)), None, "another client");
        assert_eq!(register.reuse(&Pool::Server("origin:443")), None, "another pool");
        let reused = |key| {
            move |register: &mut Register<_, _, _>| register.reuse(&key).map(|idle| idle.payload)
        };
        let last = reused(Pool::Server("origin:80"))(&mut register);
        assert_eq!(last, Some(120), "the last one first");
        assert_eq!(reused(Pool::Server("origin:80"))(&mut register), Some(36));
        assert_eq!(reused(client(10_010))(&mut register), Some(246));
        assert!(register.is_empty());
    }
}
