//! Checks that need the whole configuration: names that must exist, entries that never match, and safety.

mod access;
mod accounts;
mod addresses;
mod alerts;
mod certificates;
mod dns;
mod forward;
mod gateway;
mod inherit;
mod legs;
mod peers;
mod resources;
mod routing;
mod wireguard;

pub use access::includes;
pub use addresses::{Listener, listeners};
pub(crate) use inherit::inherit;

use crate::draft::Draft;
use crate::reader::Reader;
use crate::value::url;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// What to do where clients of the local network would not be admitted.
const NAME_CLIENTS: &str = "name your clients; for example, add:\n\
    [[rule]]\n\
    from = [\"192.168.0.0/16\", \"fd00::/8\"]\n\
    action = \"allow\"";

/// Whether other machines may reach an address.
fn beyond(at: &SocketAddr) -> bool {
    !at.ip().to_canonical().is_loopback()
}

/// All checks. `file_listens`: the listen addresses come from the file.
pub(super) fn check(
    reader: &mut Reader<'_>,
    draft: &Draft,
    file_listens: bool,
) -> BTreeMap<String, url::UpstreamUrl> {
    let urls = routing::upstreams(reader, draft);
    routing::routes(reader, draft);
    routing::tunnels(reader, draft, &urls);
    routing::rules(reader, draft);
    legs::legs(reader, draft);
    dns::dns(reader, draft);
    resources::resources(reader, draft);
    accounts::database(reader, draft);
    accounts::accounts(reader, draft);
    certificates::tls(reader);
    certificates::acme(reader, draft);
    forward::forwards(reader, draft);
    gateway::gateway(reader, draft);
    wireguard::wireguard(reader, draft);
    access::listen(reader, draft, file_listens);
    access::doors(reader, draft);
    addresses::clashes(reader, draft);
    access::management(reader, draft);
    alerts::alerts(reader, draft);
    alerts::traces(reader, draft);
    access::destinations(reader, draft);
    access::proxies(reader, draft);
    urls
}

#[cfg(test)]
mod tests {
    use crate::{read, render_all};

    fn problems(text: &str) -> String {
        render_all(&read(text, "test.toml").problems)
    }

    #[test]
    fn warns_of_what_the_kernel_has_not_and_of_what_opens_everything() {
        let found =
            problems("[leg.direct]\ncongestion = [\"hold\", \"bbbr\"]\nrate = \"4 Mbit/s\"\n");
        assert!(found.contains("named `bbbr`") && found.contains("did you mean `bbr`?"), "{found}");
        assert_eq!(problems("[leg.direct]\ncongestion = [\"ekiden_westwood\", \"bbr\"]\n"), "");
        let opened = |nets: &str| problems(&format!("[access]\nallow_destinations = [{nets}]\n"));
        for net in ["\"0.0.0.0/0\"", "\"10.0.0.0/8\", \"::/0\""] {
            assert!(opened(net).contains("opens every special address"), "{net}: {}", opened(net));
        }
        for (net, service) in [
            ("fd00::/8", "fd00:ec2::254"),
            ("fd00:42::/64", "fd00:42::42"),
            ("169.254.0.0/16", "169.254.169.254"),
            ("100.64.0.0/10", "100.100.100.200"),
        ] {
            let shown = opened(&format!("\"{net}\""));
            let told =
                format!("`{net}` opens a cloud's metadata service to these clients: {service},");
            assert!(shown.contains(&told), "{shown}");
        }
        for net in [
            "\"127.0.0.0/8\"",
            "\"10.0.0.0/8\", \"169.254.169.254/32\"",
            "\"fd00:42::42\", \"fd12::/16\"",
        ] {
            assert_eq!(opened(net), "", "{net}");
        }
    }

    #[test]
    fn a_problem_stands_where_its_cause_does_and_without_what_follows_from_it() {
        let rule = "[[rule]]\nfrom = [\"10.0.0.1/8\"]\naction = \"allow\"\n";
        let beyond = "listen = [\"192.0.2.1:1\"]\n";
        let forward = "[[forward]]\nlisten = [\"192.0.2.1:2\"]\nto = \"a.example:80\"\n";
        let account = "[[account]]\nname = \"a\"\n";
        for (text, parts, count) in [
            (
                "listen = [\"127.0.0.1:99999\", \"127.0.0.1:1\", \"192.0.2.1:1\"]".to_owned(),
                &["test.toml:1:11", "test.toml:1:45"][..],
                2,
            ),
            (
                "listen = [\"127.0.0.1:1\", \"0.0.0.0:1\"]\n[[rule]]\nfrom = [\"10.0.0.0/8\"]\naction = \"allow\"".to_owned(),
                &["test.toml:1:11", "remove 127.0.0.1:1: 0.0.0.0:1 listens on every"],
                1,
            ),
            (format!("{beyond}{rule}"), &["10.0.0.0/8 was meant?"], 1),
            (format!("{rule}{forward}[dns]\nlisten = [\"192.0.2.1\"]\n"), &["was meant?"], 1),
            (format!("{account}addresses = [\"10.77.0.5/24\"]"), &["10.77.0.0/24 was meant?"], 1),
            (
                format!("{account}peers = [\"b\"]\nzone = \"Asia/Tokyo\""),
                &["unknown key `zone` in [[account]]", "accounts of `ekiden account add`"],
                1,
            ),
            (
                "[tls]\ndirectory = \"https://ca.example/\"".to_owned(),
                &["`directory` belongs into [cache] or [acme]"],
                1,
            ),
        ] {
            let shown = problems(&text);
            assert!(parts.iter().all(|part| shown.contains(part)), "{text}: {shown}");
            assert_eq!(shown.matches("error: ").count(), count, "{text}: {shown}");
        }
    }
}
