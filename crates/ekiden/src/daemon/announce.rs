//! What the daemon announces: in its log, at start and after a reload, and to systemd.

use ekiden_model::units::Rate;
use ekiden_proxy::settings::{self, Cache, Unclaimed};
use sd_notify::NotifyState;
use std::net::SocketAddr;
use tracing::{info, warn};

/// Logs which listening addresses are new and which are gone.
pub(crate) fn listening(before: &mut Vec<SocketAddr>, now: Vec<SocketAddr>) {
    for address in now.iter().filter(|address| !before.contains(address)) {
        info!("listening on {address}: HTTP, CONNECT, SOCKS5, SOCKS4a");
    }
    for address in before.iter().filter(|address| !now.contains(address)) {
        info!("no longer listening on {address}");
    }
    *before = now;
}

/// How accounts share the relay's rate; `by_account`: every client needs an account.
pub(crate) fn sharing_line(accounts: &settings::Sharing, by_account: bool) -> Option<String> {
    if *accounts == settings::Sharing::default() {
        return None;
    }
    let rate = |rate: Option<Rate>| rate.map_or_else(|| "no limit".to_owned(), |r| r.to_string());
    let unclaimed = match (accounts.unclaimed, by_account) {
        (Unclaimed::Refuse, _) => "refused",
        (Unclaimed::Allow, true) => "served if they log in",
        (Unclaimed::Allow, false) => "served",
    };
    Some(format!(
        "accounts configured: {}; shared rate {} down, {} up; unclaimed clients are {unclaimed}",
        accounts.list.len(),
        rate(accounts.downlink),
        rate(accounts.uplink)
    ))
}

/// The HTTP cache, if there is one.
pub(crate) fn cache_line(cache: &Cache) -> Option<String> {
    let memory = cache.memory?;
    let disk = match (&cache.disk, &cache.directory) {
        (Some(disk), Some(folder)) => format!(" and {disk} on disk in {}", folder.display()),
        _ => ", nothing on disk".to_owned(),
    };
    Some(format!("HTTP cache: {memory} of memory{disk}; bodies up to {}", cache.largest))
}

/// Notifies systemd; without systemd this does nothing.
pub(crate) fn tell_systemd(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!(%error, "cannot notify systemd");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announces_sharing_only_where_something_is_shared() {
        assert_eq!(sharing_line(&settings::Sharing::default(), false), None);
        let uplink = Some(Rate::from_bits_per_second(20_000_000));
        let sharing = settings::Sharing { uplink, ..settings::Sharing::default() };
        let line = sharing_line(&sharing, true).unwrap();
        assert!(line.contains("no limit down, 20 Mbit/s up"), "{line}");
        assert!(line.ends_with("served if they log in"), "{line}");
    }

    #[test]
    fn tracks_addresses_that_come_and_go() {
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let mut before = vec![address(1), address(2)];
        listening(&mut before, vec![address(2), address(3)]);
        assert_eq!(before, [address(2), address(3)]);
    }
}
