//! Names: who may ask, and servers that are this relay itself.

use super::NAME_CLIENTS;
use crate::draft::{Draft, RuleDraft};
use crate::reader::Reader;
use ekiden_proxy::settings::DnsServer;

pub(super) fn dns(reader: &mut Reader<'_>, draft: &Draft) {
    let dns = &draft.dns;
    if dns.min_ttl > dns.max_ttl {
        reader.error("dns.min_ttl", "`min_ttl` is longer than `max_ttl`", "");
    }
    let names = |rule: &RuleDraft| rule.action == "allow" && !rule.from.is_empty();
    let misread = reader.has_misread("rule[") || reader.has_misread("accounts.");
    let admitted = misread || draft.accounts.enabled || draft.rules.iter().any(names);
    for (nth, at) in dns.listen.iter().enumerate() {
        let here = format!("dns.listen[{nth}]");
        if at.port() == 0 {
            let message = "clients ask at port 53, or at one that they are told";
            reader.error(&here, message, "listen = [\"192.168.1.1:53\"]");
        }
        if !admitted && !at.ip().to_canonical().is_loopback() {
            reader.error(
                &here,
                format!("no rule names clients that may ask at {at}"),
                NAME_CLIENTS,
            );
        }
    }
    for (nth, server) in dns.servers.iter().enumerate() {
        if let DnsServer::Plain(at) = server
            && dns.listen.contains(at)
        {
            reader.error(
                &format!("dns.servers[{nth}]"),
                format!("{at} is where this relay itself is asked"),
                "name another server; without `servers`, those of /etc/resolv.conf are asked",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{read, render_all};

    const RULE: &str = "[[rule]]\nfrom = [\"192.168.0.0/16\"]\naction = \"allow\"\n";

    fn problems(text: &str) -> String {
        render_all(&read(text, "test.toml").problems)
    }

    #[test]
    fn finds_who_may_not_ask_and_what_clashes() {
        let fine = "[dns]\nlisten = [\"192.168.1.1\"]\nservers = [\"tls://192.0.2.1#dns.example\", \"https://192.0.2.1/dns-query\", \"tunnel://shore\"]\nnat64 = \"64:ff9b::/96\"\n";
        assert_eq!(problems(&format!("{fine}{RULE}")), "");
        assert_eq!(problems("[dns]\nlisten = [\"127.0.0.1:5353\"]\n"), "");
        for (text, why) in [
            (fine.to_owned(), "no rule names clients"),
            (format!("{fine}[[rule]]\naction = \"allow\"\n"), "no rule names clients"),
            ("[dns]\nlisten = [\"127.0.0.1:0\"]\n".to_owned(), "clients ask at port 53"),
            ("[dns]\nlisten = [\"127.0.0.1:3128\"]\n".to_owned(), "listened on for TCP already"),
            (
                "[dns]\nlisten = [\"127.0.0.1\"]\nservers = [\"127.0.0.1\"]\n".to_owned(),
                "this relay itself",
            ),
            ("[dns]\nservers = [\"dns.example\"]\n".to_owned(), "is not an address"),
            (
                "[dns]\nservers = [\"https://192.0.2.1/dns-query{?dns}\"]\n".to_owned(),
                "is not a path",
            ),
            ("[dns]\nnat64 = \"64:ff9b::/95\"\n".to_owned(), "not the prefix of a translator"),
        ] {
            let found = problems(&text);
            assert!(found.contains(why), "{text}: {found}");
        }
    }
}
