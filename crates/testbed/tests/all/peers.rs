//! The peers themselves, without Ekiden: each starts, carries bytes unchanged, is accounted for, and
//! leaves no process behind.

use crate::common::{Site, hash_of, present, succeed, tool};
use ekiden_model::units::Rate;
use ekiden_testbed::chromium::Chromium;
use ekiden_testbed::load::Method;
use ekiden_testbed::load::blocking::tunnel;
use ekiden_testbed::load::servers::{digest, pattern, source};
use ekiden_testbed::peers::http3::{Http3, caddy, quiche};
use ekiden_testbed::peers::{
    Peer, PeerError, Start, dante, haproxy, nginx, sing_box, squid, threaded,
};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

const BYTES: u64 = 3_000_001;

/// 3 MB through it, then its end: nothing of its process tree is left.
fn carries(method: Method, start: impl FnOnce(SocketAddr) -> Result<Peer, PeerError>) {
    let source = source(5, BYTES).unwrap();
    let Some(mut peer) = present(start(source.address)) else { return };
    let (stream, early) = tunnel(peer.address, method, source.address).unwrap();
    let through = digest(std::io::Read::chain(&early[..], &stream));
    assert_eq!(through, digest(pattern(5, BYTES)), "{}\n{}", peer.name, peer.log());
    let usage = peer.usage();
    assert!(usage.memory > 100_000 && usage.threads >= 1 && usage.descriptors >= 3, "{usage:?}");
    assert!(!peer.version.is_empty() && peer.is_alive());

    let (ids, folder) = (peer.processes(), peer.folder().to_owned());
    drop(peer);
    assert!(!folder.exists());
    // Orphans of a killed parent are reaped by init, not by us.
    std::thread::sleep(Duration::from_millis(200));
    let running = |id: &&u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    };
    assert_eq!(ids.iter().find(running), None, "of {ids:?} still runs");
}

#[test]
fn squid_carries() {
    carries(Method::Connect, |_| squid::start(&Start::default()));
}

#[test]
fn tinyproxy_carries() {
    carries(Method::Connect, |_| threaded::tinyproxy(&Start::default()));
}

#[test]
fn dante_carries() {
    carries(Method::Socks5, |_| dante::start(&Start::default()));
}

#[test]
fn haproxy_carries_by_splice() {
    carries(Method::None, |to| haproxy::start(&Start::default(), &[to], true));
}

#[test]
fn haproxy_carries_by_copy() {
    carries(Method::None, |to| haproxy::start(&Start::default(), &[to], false));
}

#[test]
fn nginx_carries() {
    carries(Method::None, |to| nginx::stream(&Start::default(), &[to], None));
}

#[test]
fn microsocks_carries() {
    carries(Method::Socks5, |_| threaded::microsocks(&Start::default()));
}

/// Built on demand alone (`scripts/peers.sh --sing-box`), so that CI may be without it too.
#[test]
fn sing_box_carries_alone_and_by_hysteria2() {
    if let Err(missing) = sing_box::find() {
        println!("SKIPPED: {missing}");
        return;
    }
    carries(Method::Socks5, |_| sing_box::proxy(&Start::default()));
    let rate = Rate::from_bits_per_second(100_000_000);
    let report = sing_box::Hysteria2Rates { down: rate, up: rate };
    let server = sing_box::server(&Start::default(), report, &[]).unwrap();
    for method in [Method::Socks5, Method::Connect] {
        carries(method, |_| sing_box::client(&Start::default(), server.address, report));
    }
}

/// Built on demand alone (`scripts/peers.sh --caddy`).
#[test]
fn a_browser_takes_a_page_from_caddy_by_http_3_alone() {
    if let Err(missing) = caddy::find() {
        println!("SKIPPED: {missing}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("page.html"), "<!doctype html><title>by QUIC</title>")
        .unwrap();
    let names = ["h1.test".to_owned()];
    let caddy =
        caddy::https(&Start::default(), folder.path(), &names, caddy::Versions::Http3).unwrap();
    take_by_http3(&caddy, "page.html", "by QUIC, h3");
}

/// Built on demand alone (`scripts/peers.sh --quiche`).
#[test]
fn a_browser_takes_bytes_from_quiche_by_http_3_alone() {
    if let Err(missing) = quiche::find() {
        println!("SKIPPED: {missing}");
        return;
    }
    let server = quiche::https(&Start::default(), "h1.test").unwrap();
    take_by_http3(&server, &format!("{}/9", quiche::BYTES), "WWWWWWWWW, h3");
}

/// A browser takes a page, whose title or text and protocol are these.
fn take_by_http3(server: &Http3, path: &str, shows: &str) {
    let port = server.server.address.port();
    let flags = [
        "--no-proxy-server".to_owned(),
        "--host-resolver-rules=MAP *.test 127.0.0.1".to_owned(),
        "--enable-quic".to_owned(),
        format!("--origin-to-force-quic-on=h1.test:{port}"),
        format!("--ignore-certificate-errors-spki-list={}", server.keys.join(",")),
    ];
    let Some(mut browser) = present(Chromium::start(None, &flags)) else { return };
    let url = format!("https://h1.test:{port}/{path}");
    let went = browser.ask("Page.navigate", serde_json::json!({ "url": url })).unwrap();
    assert!(went["errorText"].is_null(), "{went}\n{}", server.server.log());
    let by = "`${document.title || (document.body && document.body.innerText)}, \
              ${(performance.getEntriesByType('navigation')[0] || {}).nextHopProtocol}`";
    let end = Instant::now() + Duration::from_secs(30);
    while browser.evaluate(by).unwrap() != shows {
        assert!(Instant::now() < end, "{}\n{}", browser.evaluate(by).unwrap(), server.server.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_pinned_peer_stays_on_its_processor() {
    let cpu = ekiden_testbed::limits::cpus().last().copied();
    let Some(peer) = present(threaded::microsocks(&Start { cpu, ..Start::default() })) else {
        return;
    };
    let status = std::fs::read_to_string(format!("/proc/{}/status", peer.processes()[0])).unwrap();
    let allowed = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap();
    assert_eq!(allowed.trim(), cpu.unwrap().to_string());
}

#[test]
fn names_a_missing_program_with_its_package() {
    let error = ekiden_testbed::peers::find("no-such-program", "its-package").unwrap_err();
    assert_eq!(
        error.to_string(),
        "no-such-program is not installed; on Debian: apt-get install its-package"
    );
    let none =
        ekiden_testbed::peers::ekiden::start(&Start::default(), Path::new("/none/ekiden"), "");
    assert!(matches!(none, Err(PeerError::Missing { .. })));
}

/// What `chains` builds on: a dante behind which stands a squid or a dante, a squid behind a squid.
#[test]
fn peers_stand_behind_each_other() {
    let options = Start::default();
    let Some(site) = Site::start() else { return };
    let (Some(squid), Some(dante)) =
        (present(squid::start(&options)), present(dante::start(&options)))
    else {
        return;
    };
    let first = [
        ("--socks5-hostname", present(dante::start_behind(&options, squid.address, true))),
        ("--socks5-hostname", present(dante::start_behind(&options, dante.address, false))),
        ("-x", present(squid::start(&Start { upstream: Some(squid.address), ..options.clone() }))),
    ];
    for (way, first) in first {
        let (Some(first), Some(mut curl)) = (first, tool("curl", "curl")) else { return };
        let file = site.path("got.bin");
        curl.args(["--silent", "--show-error", "--fail", "--max-time", "30", "-o"]).arg(&file);
        curl.args([way, &first.address.to_string(), &site.url("file.bin")]);
        succeed(curl, &first);
        assert_eq!(hash_of(&file), Site::hash(), "{}", first.name);
    }
}
