//! Names that this relay connects to, for itself and for its clients.

use super::resolve::{Names, Resolved};
use crate::runtime::RuntimeConfig;
use crate::wire::dns::Question;
use ekiden_model::dns::{Asker, Outcome};
use hickory_resolver::proto::rr::{Name, RecordType};
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
    // the hosts file
    let here = config.resolver.lookup(name, ipv6, asker).await;
    if here.is_ok() && known(&here) {
        return here;
    }
    let absolute = Name::from_ascii(name).map_err(|error| error.to_string())?;
    let mut question = Question::new(absolute, if ipv6 { RecordType::AAAA } else { RecordType::A });
    question.name.set_fqdn(true);
    let names = Names {
        shared: Arc::clone(&config.shared),
        servers: Arc::clone(&config.name_servers),
        asker: asker.clone(),
        around_tunnels: false,
        // IPv4 is reached by IPv4
        translated: !config.resolver.families().1,
    };
    let outcome = match names.resolve(&question) {
        Resolved::Now(outcome) => outcome,
        Resolved::Later(later) => later.await,
    };
    match outcome {
        Outcome::Fresh(answer, _) | Outcome::Stale(answer) => {
            Ok(answer.addresses.iter().map(IpAddr::to_canonical).collect())
        }
        Outcome::Failed => Err("no DNS server answers".to_owned()),
    }
}
