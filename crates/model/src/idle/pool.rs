//! Who may use which idle connection (ALGORITHMS §A.6).

/// What a proxy keeps an idle connection under. Both kinds stand in one register, so that the longest
/// idle one is closed first whichever kind it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pool<C, S> {
    /// A connection from a client, of use to that client alone: `C` names the connection itself (its
    /// address and port, its number), and nothing that two clients could share.
    Client(C),
    /// A connection to a server or to another proxy, of use to any request that would open one just
    /// like it: `S` holds everything in which such connections differ (address, name asked for, route,
    /// credentials sent, protocol), since what it leaves out, requests of different users will share.
    Server(S),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idle::{Config, Register};
    use crate::units::Time;
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
        assert_eq!(
            reused(Pool::Server("origin:80"))(&mut register),
            Some(120),
            "the last one first"
        );
        assert_eq!(reused(Pool::Server("origin:80"))(&mut register), Some(36));
        assert_eq!(reused(client(10_010))(&mut register), Some(246));
        assert!(register.is_empty());
    }
}
