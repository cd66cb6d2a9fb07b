//! What passes between clients of the WireGuard door and the kernel: by the rules, and within the limits of accounts.
//!
//! TCP that the relay carries is judged and counted there. All else passes the kernel alone, so it is judged and counted
//! here: each packet once, by what it carries behind the fixed heads of IP and UDP.

mod flows;

use crate::destination::Destination;
use crate::inbound::udp::forward::admit;
use crate::policy::accounts::KnownAccount;
use crate::policy::quota::AccountConnection;
use crate::runtime::RuntimeConfig;
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::quota::Direction;
use ekiden_model::units::{Span, Time};
use ekiden_wireguard::{Gate, Header, PeerSettings, Protocol, PublicKey};
use flows::Flows;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// How long what was found about a client holds.
const HOLDS: Span = Span::from_secs(1);
/// After so long without a packet of its own a client gives its place in its account back.
const IDLE: Span = Span::from_secs(60);
/// Destinations of one client that are remembered; one more, and all are judged anew.
const MOST: usize = 1_024;

/// The gate of the WireGuard door.
pub(crate) struct ClientGate<F> {
    config: F,
    /// By their keys: an address may be given to another device.
    clients: HashMap<PublicKey, Client>,
    swept: Time,
}

/// What is known of a client.
struct Client {
    until: Time,
    config: Arc<RuntimeConfig>,
    account: Option<Arc<KnownAccount>>,
    share: Option<Arc<AccountConnection>>,
    used: Time,
    flows: Flows,
    /// Whether it may go to an address and a port.
    verdicts: HashMap<SocketAddr, bool>,
}

impl<F: Fn() -> Option<Arc<RuntimeConfig>>> ClientGate<F> {
    /// `config`: the configuration in effect; `None`: the relay has ended.
    pub(crate) fn new(config: F) -> Self {
        Self { config, clients: HashMap::new(), swept: Time::ZERO }
    }

    fn client(&mut self, now: Time, peer: &PeerSettings) -> Option<&mut Client> {
        if self.clients.get(&peer.key).is_none_or(|client| now >= client.until) {
            let config = (self.config)()?;
            let account = admit(&config, SocketAddr::new(peer.v4.into(), 0)).ok().flatten();
            let mut known = self.clients.remove(&peer.key);
            // the device's, whatever became of its account
            let flows = known.as_mut().map(|client| std::mem::take(&mut client.flows));
            let flows = flows.unwrap_or_default();
            let is_same = |client: &Client| {
                let name = |one: &Option<Arc<KnownAccount>>| one.as_ref().map(|one| one.id);
                name(&client.account) == name(&account)
            };
            let (used, share) = match known.filter(is_same) {
                Some(client) => (client.used, client.share),
                None => (now, None),
            };
            // one that has ended may begin anew with the next period
            let share = share.filter(|share| share.ended().is_none() && now < used + IDLE);
            let (until, verdicts) = (now + HOLDS, HashMap::new());
            let client = Client { until, config, account, share, used, flows, verdicts };
            self.clients.insert(peer.key, client);
        }
        self.clients.get_mut(&peer.key)
    }
}

impl<F: Fn() -> Option<Arc<RuntimeConfig>> + Send> Gate for ClientGate<F> {
    fn passes(&mut self, now: Time, peer: &PeerSettings, from_peer: bool, header: &Header) -> bool {
        let Some(client) = self.client(now, peer) else { return false };
        let Some(account) = client.account.clone() else { return false };
        let (own, other, port) = match from_peer {
            true => (header.source, header.destination, header.ports.map(|(_, to)| to)),
            false => (header.destination, header.source, header.ports.map(|(from, _)| from)),
        };
        let to = SocketAddr::new(other.to_canonical(), port.unwrap_or(0));
        if client.is_relayed(header, to) {
            return true;
        }
        let may_pass = match from_peer {
            true => client.may_go(now, own, to, &account) && client.flows.on_sent(now, header, to),
            false => client.flows.on_answer(now, header, to),
        };
        if !may_pass {
            return false;
        }
        client.used = now;
        let direction = if from_peer { Direction::Up } else { Direction::Down };
        client.count(&account, direction, header.payload)
    }

    fn on_tick(&mut self, now: Time) {
        if now >= self.swept + HOLDS {
            self.swept = now;
            self.clients.retain(|_, client| {
                if now >= client.used + IDLE {
                    client.share = None;
                }
                now < client.used + flows::IDLE
            });
        }
    }
}

impl Client {
    /// Whether the relay carries it, and so judges and counts it. A later fragment only says that it is TCP: the kernel
    /// believes the first one (RFC 8200 §4.5).
    fn is_relayed(&self, header: &Header, other: SocketAddr) -> bool {
        let settings = &self.config.settings;
        let door = &settings.wireguard;
        // names over TCP end at this machine, and are not diverted
        let is_own = door.own().contains(&other.ip())
            || (other.port() == 53 && door.asks_at(other.ip(), &settings.dns.listen));
        header.protocol == Protocol::Tcp
            && header.ports.is_some()
            && !is_own
            && !settings.gateway.bypass.iter().any(|net| net.contains(&other.ip()))
    }

    fn may_go(&mut self, now: Time, own: IpAddr, to: SocketAddr, account: &KnownAccount) -> bool {
        // the relay itself: nftables lets in names and ping
        if self.config.settings.wireguard.own().contains(&to.ip()) {
            return true;
        }
        if let Some(known) = self.verdicts.get(&to) {
            return *known;
        }
        // what comes in at this machine's own addresses, nftables judges
        let decider = self.config.settings.decider(own).of(Some(account)).with_own_addresses();
        let by_address = decider.address(&Destination::from(to), to.ip()).is_ok();
        let heard = locked(&self.config.shared.dns.heard).name(now, own, to.ip()).cloned();
        let name = heard.and_then(|name| {
            Destination::parse(&format!("{name}:{}", to.port().max(1)), None).ok()
        });
        let may = by_address && name.is_none_or(|name| decider.claimed(&name, to.ip()).is_ok());
        if self.verdicts.len() >= MOST {
            self.verdicts.clear();
        }
        self.verdicts.insert(to, may);
        may
    }

    /// Whether the account's limits let so many bytes pass; if so, they count.
    fn count(&mut self, account: &KnownAccount, direction: Direction, bytes: usize) -> bool {
        if self.share.is_none() {
            self.share = self.config.shared.quotas.admit_known(&account.name, None).ok();
        }
        let share = self.share.as_ref();
        share.is_some_and(|share| share.datagram(direction, bytes) == Some(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::accounts::testing::OneAccount;
    use crate::resources::Resources;
    use crate::runtime::shared::Shared;
    use crate::settings::{Account, Allowance, ExceededAction, Limits, Settings};
    use ekiden_linux::host::clock;
    use ekiden_model::units::Bytes;
    use ekiden_wireguard::inspect;
    use proptest::prelude::*;
    use std::ops::Range;

    /// Where the account may have one connection.
    fn config() -> Arc<RuntimeConfig> {
        config_of(Limits { connections: Some(1), ..Limits::default() })
    }

    /// The configuration of a relay at 192.168.1.1 that answers questions for names.
    fn config_of(limits: Limits) -> Arc<RuntimeConfig> {
        let mut settings = Settings::default();
        settings.wireguard.dns = vec!["192.168.1.1".parse().unwrap()];
        settings.dns.listen = vec!["192.168.1.1:53".parse().unwrap()];
        settings.sharing.list.push(Account {
            name: "anna".into(),
            addresses: vec![],
            peers: vec![],
            limits,
        });
        let (resources, _admitted) = Resources::new(&settings, true);
        let shared = Shared::new(&settings, resources, None);
        let anna = OneAccount { name: "anna", at: [10, 77, 0, 2].into() };
        let config = RuntimeConfig::new(Arc::new(settings), shared, Some(Arc::new(anna)), None);
        Arc::new(config.unwrap())
    }

    fn peer() -> PeerSettings {
        PeerSettings {
            key: PublicKey::from([7; 32]),
            v4: [10, 77, 0, 2].into(),
            v6: "fd77::2".parse().unwrap(),
            account: "anna".into(),
            device: "phone".into(),
            barred: None,
        }
    }

    /// A packet of 100 bytes.
    fn up(protocol: Protocol, to: &str) -> Header {
        let to: SocketAddr = to.parse().unwrap();
        Header {
            source: [10, 77, 0, 2].into(),
            destination: to.ip(),
            protocol,
            ports: Some((5_000, to.port())),
            query: None,
            length: 120,
            payload: 100,
        }
    }

    #[tokio::test]
    async fn a_silent_device_gives_its_place_back_without_another_s_packet() {
        let config = config();
        let held = Arc::clone(&config);
        let mut gate = ClientGate::new(move || Some(Arc::clone(&held)));
        let now = clock::now() + IDLE;
        assert!(gate.passes(now, &peer(), true, &up(Protocol::Udp, "8.8.8.8:5000")));
        let is_free = || config.shared.quotas.admit_known("anna", None).is_ok();
        gate.on_tick(now + Span::from_secs(59));
        assert!(!is_free(), "it may have one connection");
        gate.on_tick(now + IDLE);
        assert!(is_free());
    }

    #[tokio::test]
    async fn a_device_has_so_many_flows_at_a_time_and_no_more() {
        let config = config();
        let mut gate = ClientGate::new(move || Some(Arc::clone(&config)));
        let now = clock::now() + IDLE;
        let mut sent = |now: Time, ports: Range<u16>| {
            let passes = |port: &u16| {
                let to = format!("8.8.8.8:{port}");
                gate.passes(now, &peer(), true, &up(Protocol::Udp, &to))
            };
            ports.filter(passes).count()
        };
        assert_eq!(sent(now, 10_000..13_000), flows::MOST);
        let almost = now + Span::from_secs(119);
        assert_eq!(sent(almost, 10_000..10_001), 1, "a known one");
        assert_eq!(sent(almost, 12_999..13_000), 0);
        assert_eq!(sent(now + Span::from_secs(121), 20_000..23_000), flows::MOST - 1);
    }

    #[tokio::test]
    async fn answers_reach_the_device_that_asked_and_not_the_next_one_at_its_address() {
        let config = config();
        let held = Arc::clone(&config);
        let mut gate = ClientGate::new(move || Some(Arc::clone(&held)));
        let (first, next) = (peer(), PeerSettings { key: PublicKey::from([8; 32]), ..peer() });
        let now = clock::now();
        let asks = up(Protocol::Udp, "8.8.8.8:53");
        let (source, destination) = (asks.destination, asks.source);
        let answer = Header { source, destination, ports: Some((53, 5_000)), ..asks };
        let fragment = Header { ports: None, ..answer };
        assert!(!gate.passes(now, &first, false, &answer), "nobody asked");
        assert!(gate.passes(now, &first, true, &asks));
        let down = || config.shared.quotas.account("anna").map_or(0, |account| account.bytes_down);
        for packet in [&answer, &fragment] {
            assert!(gate.passes(now, &first, false, packet));
            assert!(!gate.passes(now, &next, false, packet));
        }
        assert_eq!(down(), 200);
    }

    #[tokio::test]
    async fn names_over_tcp_count_where_they_end_here() {
        let config = config();
        let held = Arc::clone(&config);
        let mut gate = ClientGate::new(move || Some(Arc::clone(&held)));
        let counted = |config: &RuntimeConfig| {
            config.shared.quotas.account("anna").map_or(0, |account| account.bytes_up)
        };
        for (to, counts) in [
            ("10.77.0.1:53", true),
            ("192.168.1.1:53", true),
            // the relay carries them, or nftables rejects them
            ("192.168.1.1:80", false),
            ("192.168.2.1:53", false),
            ("8.8.8.8:53", false),
        ] {
            let before = counted(&config);
            assert!(gate.passes(clock::now(), &peer(), true, &up(Protocol::Tcp, to)), "{to}");
            assert_eq!(counted(&config) - before, if counts { 100 } else { 0 }, "{to}");
        }
    }

    /// A datagram of the device, or to it, behind a head of so many words of options.
    fn datagram(from_peer: bool, options: usize, payload: usize) -> Vec<u8> {
        let (own, other) = ([10, 77, 0, 2], [8, 8, 8, 8]);
        let (source, destination) = if from_peer { (own, other) } else { (other, own) };
        let head = 20 + 4 * options;
        // options that say nothing
        let mut bytes = vec![1; head + 8 + payload];
        let length = bytes.len() as u16;
        bytes[0] = 0x40 | (head / 4) as u8;
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
        bytes[6..8].fill(0);
        bytes[9] = 17;
        bytes[12..16].copy_from_slice(&source);
        bytes[16..20].copy_from_slice(&destination);
        bytes[head..head + 4].fill(7);
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn every_byte_of_a_device_s_datagrams_counts(
            datagrams in prop::collection::vec((any::<bool>(), 0_usize..=10, 0_usize..1_400), 1..60),
            part in 0.0..1.0,
        ) {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let _inside = runtime.enter();
            // the first one asks, or no answer would pass
            let first = [(true, 0, 0)].into_iter();
            let datagrams: Vec<_> = first.chain(datagrams).collect();
            // all behind the fixed heads
            let size = |(_, options, payload): &(bool, usize, usize)| (4 * options + payload) as u64;
            let total = datagrams.iter().map(size).sum::<u64>();
            for most in [total, (total as f64 * part) as u64].map(|most| most + 1) {
                let (bytes, period) = (Bytes::new(most), Span::from_secs(3_600));
                let plan = Allowance { bytes, period, on_exceeded: ExceededAction::Cut };
                let config = config_of(Limits { quota: Some(plan), ..Limits::default() });
                let held = Arc::clone(&config);
                let mut gate = ClientGate::new(move || Some(Arc::clone(&held)));
                let mut left = most;
                for one in &datagrams {
                    let (from_peer, options, payload) = *one;
                    let header = inspect(&datagram(from_peer, options, payload)).unwrap();
                    let passes = gate.passes(clock::now(), &peer(), from_peer, &header);
                    prop_assert_eq!(passes, left > 0 && size(one) <= left, "{:?}, {} left", one, left);
                    // one that is too large uses the rest up
                    left -= size(one).min(left);
                    let seen = config.shared.quotas.account("anna").unwrap();
                    prop_assert_eq!(seen.bytes_up + seen.bytes_down, most - left);
                }
            }
        }
    }
}
