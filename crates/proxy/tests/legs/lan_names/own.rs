//! Names that the relay itself connects to.

use super::*;
use ekiden_proxy::settings::{Family, HostPattern, Pattern, Rule};

/// Of 16 KiB, as a zone's owner can give to any number of names.
#[test]
fn long_answers_over_tcp_are_asked_for_once() {
    let server = Server::start(|query, stream| {
        let data = vec![RData::A(A::new(127, 0, 0, 1)); 1_000];
        let whole = reply(query, ResponseCode::NoError, data, 3_600);
        vec![if stream { whole } else { whole.truncate() }.to_vec().unwrap()]
    });
    let (relay, _) = relay(server.at.into(), |dns| dns.prefer = Family::Ipv4Only);
    let port = echo().port();
    let reach_all = || {
        for n in 0..8 {
            let (head, _) = connect(relay.address, format!("n{n}.example:{port}"));
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        }
        server.asked()
    };
    let asked = reach_all();
    assert_eq!(reach_all(), asked);
}

#[test]
fn the_relay_itself_takes_a_translator_only_without_ipv4() {
    let server = Server::start(|query, _| addresses(query, &["9.9.9.9"], 60));
    let folder = tempfile::tempdir().unwrap();
    let (config, file) = tls_of(folder.path());
    let (secure, name) = (server.within_tls(config), Some("dns.example".to_owned()));
    for (prefer, translated) in [(Family::Ipv6, false), (Family::Ipv6Only, true)] {
        let mut settings = settings();
        // nobody is connected to, in either family
        let host = HostPattern::Net("9.9.9.0/24".parse().unwrap());
        let to = vec![Pattern { host, ports: None }];
        settings.access.rules = vec![Rule { to, ..Rule::default() }];
        settings.dns.servers = vec![DnsServer::Tls { at: secure, name: name.clone() }];
        settings.dns.authorities = Some(file.clone());
        settings.dns.nat64 = Some("64:ff9b::/96".parse().unwrap());
        settings.dns.prefer = prefer;
        let relay = Relay::start(settings);
        let (head, _) = connect(relay.address, "four.example:80");
        assert!(head.starts_with("HTTP/1.1 403"), "{head}");
        assert_eq!(dns(&relay).synthesized > 0, translated);
    }
}
