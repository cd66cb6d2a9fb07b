//! Names that this relay connects to, for itself and for its clients.

use super::resolve::{Names, Resolved};
use crate::runtime::RuntimeConfig;
use crate::wire::dns::Question;
use ekiden_model::dns::{Asker, Outcome};
use hickory_resolver::proto::rr::RecordType;
use std::net::IpAddr;
use std::sync::Arc;

/// The addresses of one family, possibly none, by the servers of the configuration however they are asked, in the share
/// of `asker`. Fails in words: no such name, no answer.
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
    let mut none = Ok(Vec::new());
    for name in candidates {
        let outcome = match names.resolve(&Question::new(name, kind)) {
            Resolved::Now(outcome) => outcome,
            Resolved::Later(later) => later.await,
        };
        match outcome {
            Outcome::Fresh(answer, _) | Outcome::Stale(answer) if !answer.addresses.is_empty() => {
                return Ok(answer.addresses.iter().map(IpAddr::to_canonical).collect());
            }
            Outcome::Fresh(..) | Outcome::Stale(_) => {}
            Outcome::Failed => none = Err("no DNS server answers".to_owned()),
        }
    }
    none
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::Resources;
    use crate::runtime::shared::Shared;
    use crate::settings::Settings;
    use crate::wire::dns::{ServerReply, read_answer};
    use ekiden_linux::host::clock;
    use ekiden_linux::host::sync::locked;
    use hickory_resolver::proto::op::{Message, OpCode, Query};
    use hickory_resolver::proto::rr::rdata::A;
    use hickory_resolver::proto::rr::{Name, RData, Record};
    use std::fs;

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
        let question = Question::new(Name::from_ascii("printer.lan.").unwrap(), RecordType::A);
        let mut reply = Message::response(7, OpCode::Query);
        reply.add_query(Query::query(question.name.clone(), question.kind));
        let data = RData::A(A::new(192, 0, 2, 7));
        reply.add_answer(Record::from_rdata(question.name.clone(), 60, data));
        let read = read_answer(&question, 7, &reply.to_vec().unwrap());
        let Ok(ServerReply::Found(found, _)) = read else { panic!("{read:?}") };
        locked(&shared.dns.answers).on_answer(clock::now(), &question.key(), found);
        let config = RuntimeConfig::new(Arc::new(settings), shared, None, None).unwrap();
        let found = lookup(&config, "printer", false, &Asker::Relay).await;
        assert_eq!(found, Ok(vec![[192, 0, 2, 7].into()]));
        let absolute = lookup(&config, "printer.example", false, &Asker::Relay).await;
        assert!(absolute.is_err(), "{absolute:?}");
        // the hosts file has it with IPv4 alone
        assert_eq!(lookup(&config, "box", true, &Asker::Relay).await, Ok(Vec::new()));
    }
}
