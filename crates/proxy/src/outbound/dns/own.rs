//! Names that this relay connects to, for itself and for its clients.

use super::resolve::{Beginning, Names};
use crate::outbound::resolve::TOO_MANY;
use crate::runtime::RuntimeConfig;
use crate::wire::dns::Question;
use ekiden_model::dns::{Asker, Outcome};
use hickory_resolver::proto::rr::RecordType;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The addresses of one family, possibly none, by the servers of the configuration however they are asked, in the share
/// of `asker`. Fails in words: no such name, no answer, [`TOO_MANY`] of this asker.
pub(crate) async fn lookup(
    config: &RuntimeConfig,
    name: &str,
    ipv6: bool,
    asker: &Asker,
) -> Result<Vec<IpAddr>, String> {
    let known = |found: &Result<Vec<IpAddr>, String>| !matches!(found, Ok(list) if list.is_empty());
    if config.name_servers.are_plain() {
        return config.resolver.lookup(name, ipv6, asker).await;
    }
    if let Some(here) = config.resolver.in_hosts_file(name, ipv6) {
        return Ok(here);
    }
    // addresses, and localhost
    let here = config.resolver.lookup(name, ipv6, asker).await;
    if here.is_ok() && known(&here) {
        return here;
    }
    let candidates = config.shared.system_names.known().candidates(name);
    let candidates = candidates.map_err(|error| error.to_string())?;
    let kind = if ipv6 { RecordType::AAAA } else { RecordType::A };
    let names = Names {
        shared: Arc::clone(&config.shared),
        servers: Arc::clone(&config.name_servers),
        asker: asker.clone(),
        around_tunnels: false,
        // IPv4 is reached by IPv4
        translated: !config.resolver.families().1,
    };
    let places = &config.shared.name_places;
    let limit = Duration::from(config.settings.timeouts.resolve);
    let mut none = Ok(Vec::new());
    for name in candidates {
        let question = Question::new(name, kind);
        let outcome = match names.begin_of_destination(&question) {
            Beginning::Known => names.answer(&question).await,
            Beginning::New => {
                // they wait here, as servers are asked for a new one at once in place of another
                let answer = || names.answer(&question);
                let found = places.look(asker.whole(), limit, || {}, answer).await;
                found.unwrap_or(Outcome::GaveWay)
            }
            Beginning::AboveRate => Outcome::GaveWay,
        };
        let answer = match outcome {
            Outcome::Fresh(answer, _) | Outcome::Stale(answer) => answer,
            Outcome::GaveWay => names.past_end(&question).ok_or(TOO_MANY)?,
            Outcome::Failed => {
                none = Err("no DNS server answers".to_owned());
                continue;
            }
        };
        if !answer.addresses.is_empty() {
            return Ok(answer.addresses.iter().map(IpAddr::to_canonical).collect());
        }
    }
    none
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbound::dns::state::DnsState;
    use crate::resources::Resources;
    use crate::runtime::shared::Shared;
    use crate::settings::{Dns, Family, Settings};
    use crate::wire::dns::{ServerReply, read_answer};
    use ekiden_linux::host::clock;
    use ekiden_linux::host::sync::locked;
    use ekiden_model::dns::Found;
    use ekiden_model::units::Span;
    use hickory_resolver::proto::op::{Message, OpCode, Query};
    use hickory_resolver::proto::rr::rdata::{A, AAAA, SOA};
    use hickory_resolver::proto::rr::{Name, RData, Record};
    use std::fs;
    use std::future::pending;
    use tokio::task::JoinHandle;

    const MINUTE: Span = Span::from_secs(60);

    /// That a name has one address of IPv4, or that it has none of IPv6, is kept for so long.
    fn keep(dns: &DnsState, name: &str, kind: RecordType, ttl: Span) {
        let of_v4 = (kind == RecordType::A).then(|| RData::A(A::new(192, 0, 2, 7)));
        keep_data(dns, name, kind, of_v4, ttl);
    }

    fn keep_data(dns: &DnsState, name: &str, kind: RecordType, data: Option<RData>, ttl: Span) {
        let question = Question::new(Name::from_ascii(name).unwrap(), kind);
        let mut reply = Message::response(7, OpCode::Query);
        reply.add_query(Query::query(question.name.clone(), kind));
        if let Some(data) = data {
            reply.add_answer(Record::from_rdata(question.name.clone(), 60, data));
        } else {
            let zone = question.name.base_name();
            let soa = SOA::new(zone.clone(), zone.clone(), 1, 2, 3, 4, 60);
            reply.add_authority(Record::from_rdata(zone, 60, RData::SOA(soa)));
        }
        let read = read_answer(&question, 7, &reply.to_vec().unwrap());
        let Ok(ServerReply::Found(found, _)) = read else { panic!("{read:?}") };
        locked(&dns.answers).on_answer(clock::now(), &question.key(), Found { ttl, ..found });
    }

    /// By a tunnel that there is not: all that is known is in memory. Fifty questions at once have one asker's rate.
    fn without_servers(change: impl FnOnce(&mut Dns)) -> (Arc<RuntimeConfig>, Arc<DnsState>) {
        let mut settings = Settings::default();
        settings.dns.servers = vec!["tunnel://shore".parse().unwrap()];
        settings.dns.rate = 1;
        change(&mut settings.dns);
        let (resources, _admitted) = Resources::new(&settings, false);
        let shared = Shared::new(&settings, resources, None);
        let dns = Arc::clone(&shared.dns);
        let config = RuntimeConfig::new(Arc::new(settings), shared, None, None).unwrap();
        (config.into(), dns)
    }

    fn too_many() -> Result<Vec<IpAddr>, String> {
        Err(TOO_MANY.to_owned())
    }

    #[tokio::test]
    async fn a_name_without_dots_is_looked_for_in_the_search_domains_beyond_a_tunnel() {
        let folder = tempfile::tempdir().unwrap();
        let conf = "search lan\nnameserver 192.0.2.1\n";
        fs::write(folder.path().join("resolv.conf"), conf).unwrap();
        fs::write(folder.path().join("hosts"), "192.0.2.200 box\n").unwrap();
        let mut settings = Settings::default();
        // there is no such tunnel: all that is known is in memory
        settings.dns.servers = vec!["tunnel://shore".parse().unwrap()];
        let (resources, _admitted) = Resources::new(&settings, false);
        let shared = Shared::new(&settings, resources, None);
        shared.system_names.turn_to(folder.path());
        shared.system_names.refresh();
        keep(&shared.dns, "printer.lan.", RecordType::A, MINUTE);
        let config = RuntimeConfig::new(Arc::new(settings), shared, None, None).unwrap();
        let found = lookup(&config, "printer", false, &Asker::Relay).await;
        assert_eq!(found, Ok(vec![[192, 0, 2, 7].into()]));
        let absolute = lookup(&config, "printer.example", false, &Asker::Relay).await;
        assert!(absolute.is_err(), "{absolute:?}");
        // the hosts file has it with IPv4 alone
        assert_eq!(lookup(&config, "box", true, &Asker::Relay).await, Ok(Vec::new()));
    }

    // questions that fail wait a second for the next try, which the rate's clock does not see
    #[tokio::test(start_paused = true)]
    async fn new_names_of_destinations_have_a_rate_and_those_of_the_relay_have_none() {
        let (config, dns) = without_servers(|_| {});
        let client = Asker::at([192, 0, 2, 1].into());
        let mut looked = 0;
        let too_many = too_many();
        while lookup(&config, &format!("n{looked}.example"), false, &client).await != too_many {
            looked += 1;
        }
        assert!(looked >= 50 && dns.name_rate.limited() == 1, "{looked}");
        let asked = locked(&dns.answers).snapshot().asked;
        // one that failed a moment ago is not asked for again, and costs nothing
        for _ in 0..20 {
            let again = lookup(&config, &format!("n{}.example", looked - 1), false, &client).await;
            assert!(again.is_err() && again != too_many, "{again:?}");
        }
        for n in 0..20 {
            let own = lookup(&config, &format!("own{n}.example"), false, &Asker::Relay).await;
            assert!(own.is_err() && own != too_many, "{own:?}");
        }
        assert_eq!(locked(&dns.answers).snapshot().asked, asked + 20);
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_beyond_the_places_waits_for_one() {
        let (config, dns) = without_servers(|_| {});
        let client = Asker::at([192, 0, 2, 1].into());
        let take = |_| {
            let (config, client) = (Arc::clone(&config), client.clone());
            tokio::spawn(async move {
                let places = &config.shared.name_places;
                places.look(&client, Duration::from_secs(60), || {}, pending::<()>).await
            })
        };
        let taken: Vec<_> = (0..256).map(take).collect();
        let name = {
            let (config, client) = (Arc::clone(&config), client.clone());
            tokio::spawn(async move { lookup(&config, "a.example", false, &client).await })
        };
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let asked = || locked(&dns.answers).snapshot().asked;
        assert_eq!((asked(), config.shared.name_places.waiting()), (0, 1));
        taken.iter().for_each(JoinHandle::abort);
        let found = name.await.unwrap();
        assert!(found.is_err() && found != too_many(), "{found:?}");
        assert_eq!(asked(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_family_takes_nothing_of_new_names_while_the_other_has_addresses_that_are_kept() {
        let (config, dns) = without_servers(|_| {});
        let client = Asker::at([192, 0, 2, 1].into());
        for n in 0..80 {
            keep(&dns, &format!("n{n}.example."), RecordType::A, MINUTE);
            let found = lookup(&config, &format!("n{n}.example"), true, &client).await;
            assert!(found.is_err() && found != too_many(), "{found:?}");
        }
        assert_eq!(dns.name_rate.limited(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_past_its_end_is_served_above_the_rate() {
        let (config, dns) = without_servers(|_| {});
        let client = Asker::at([192, 0, 2, 1].into());
        keep(&dns, "old.example.", RecordType::A, Span::from_nanos(1));
        keep(&dns, "old.example.", RecordType::AAAA, Span::from_nanos(1));
        let mut looked = 0;
        while lookup(&config, &format!("n{looked}.example"), true, &client).await != too_many() {
            looked += 1;
        }
        let old = lookup(&config, "old.example", false, &client).await;
        assert_eq!(old, Ok(vec![[192, 0, 2, 7].into()]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_translator_s_name_above_the_rate_is_not_one_without_addresses() {
        let (config, dns) = without_servers(|dns| {
            dns.nat64 = Some("64:ff9b::/96".parse().unwrap());
            dns.prefer = Family::Ipv6Only;
        });
        let client = Asker::at([192, 0, 2, 1].into());
        let above = 'above: {
            for n in 0..1_000 {
                keep(&dns, &format!("n{n}.example."), RecordType::AAAA, MINUTE);
                let found = lookup(&config, &format!("n{n}.example"), true, &client).await;
                if found == too_many() {
                    break 'above n;
                }
                assert_eq!(found, Ok(Vec::new()), "no server answers for IPv4");
            }
            panic!("names without IPv6 are asked for without end");
        };
        assert!(above >= 50, "{above}");
    }

    #[tokio::test(start_paused = true)]
    async fn with_a_translator_a_new_name_takes_both_its_questions_or_none() {
        let (config, dns) = without_servers(|dns| {
            dns.nat64 = Some("64:ff9b::/96".parse().unwrap());
            dns.prefer = Family::Ipv6Only;
        });
        let client = Asker::at([192, 0, 2, 1].into());
        let mut looked = 0;
        while lookup(&config, &format!("n{looked}.example"), true, &client).await != too_many() {
            looked += 1;
        }
        assert!(looked >= 25, "{looked}");
        assert_eq!(dns.name_rate.limited(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn with_a_translator_a_known_name_that_has_ipv6_costs_nothing() {
        let (config, dns) = without_servers(|dns| {
            dns.nat64 = Some("64:ff9b::/96".parse().unwrap());
            dns.prefer = Family::Ipv6Only;
        });
        let client = Asker::at([192, 0, 2, 1].into());
        let address = AAAA::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
        let data = Some(RData::AAAA(address));
        keep_data(&dns, "six.example.", RecordType::AAAA, data, MINUTE);
        for _ in 0..200 {
            let found = lookup(&config, "six.example", true, &client).await;
            assert_eq!(found, Ok(vec![address.0.into()]), "for IPv4 nobody is asked");
        }
        assert_eq!(dns.name_rate.limited(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn with_a_translator_a_name_that_failed_a_moment_ago_costs_nothing() {
        let (config, dns) = without_servers(|dns| {
            dns.nat64 = Some("64:ff9b::/96".parse().unwrap());
            dns.prefer = Family::Ipv6Only;
        });
        let client = Asker::at([192, 0, 2, 1].into());
        for _ in 0..100 {
            let found = lookup(&config, "same.example", true, &client).await;
            assert!(found.is_err() && found != too_many(), "{found:?}");
        }
        assert_eq!(dns.name_rate.limited(), 0);
    }
}
