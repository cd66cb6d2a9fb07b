//! Two Ekidens, a dante and a squid in a row, in every order; and one Ekiden that lays the whole chain.

use crate::common::{Site, accelerator, hash_of, present, succeed, tool};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ekiden_testbed::peers::{Peer, Start, dante, haproxy, squid};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hop {
    Ekiden,
    Dante,
    Squid,
}
use Hop::{Dante, Ekiden, Squid};

/// The URL by which `hop` at `peer` is reached from an Ekiden.
fn url(hop: Hop, peer: &Peer) -> String {
    let scheme = if hop == Dante { "socks5" } else { "http" };
    format!("{scheme}://{}", peer.address)
}

/// Starts `hop`, going through what is behind it.
fn start(hop: Hop, next: Option<(Hop, &Peer)>) -> Option<Peer> {
    let options = Start::default();
    match (hop, next) {
        (Ekiden, None) => accelerator(""),
        (Ekiden, Some((behind, peer))) => accelerator(&format!(
            "[upstream.next]\nurl = \"{}\"\n[[route]]\nthrough = [\"next\"]\n",
            url(behind, peer)
        )),
        (Dante, None) => present(dante::start(&options)),
        (Dante, Some((behind, peer))) => {
            present(dante::start_behind(&options, peer.address, behind == Squid))
        }
        (Squid, None) => present(squid::start(&options)),
        (Squid, Some((_, peer))) => {
            present(squid::start(&Start { upstream: Some(peer.address), ..options }))
        }
    }
}

/// Fetches the file through `first`: as an HTTP proxy both by forwarding and by CONNECT.
fn fetch(site: &Site, hop: Hop, first: &Peer, order: &str) -> Option<()> {
    let address = first.address.to_string();
    let ways: &[&[&str]] = match hop {
        Dante => &[&["--socks5-hostname"]],
        Squid => &[&["-p", "-x"], &["-x"]],
        Ekiden => &[&["-p", "-x"], &["-x"], &["--socks5-hostname"], &["--socks4a"]],
    };
    for way in ways {
        let mut curl = tool("curl", "curl")?;
        let file = site.path("got.bin");
        curl.args(["--silent", "--show-error", "--fail", "--max-time", "30", "-o"]).arg(&file);
        curl.args(*way).arg(&address).arg(site.url("file.bin"));
        succeed(curl, first);
        assert_eq!(hash_of(&file), Site::hash(), "{order} {way:?}");
        std::fs::remove_file(&file).unwrap();
    }
    Some(())
}

/// Each hop knows the next alone.
fn through(site: &Site, order: &[Hop]) -> Option<()> {
    let mut running: Vec<(Hop, Peer)> = Vec::new();
    for hop in order.iter().rev() {
        let next = running.last().map(|(hop, peer)| (*hop, peer));
        let peer = start(*hop, next)?;
        running.push((*hop, peer));
    }
    let (hop, first) = running.last()?;
    fetch(site, *hop, first, &format!("{order:?}"))
}

/// Every order of `hops` once; squid knows no SOCKS parent, so a dante never stands behind one.
fn orders(hops: &[Hop]) -> Vec<Vec<Hop>> {
    if hops.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for n in 0..hops.len() {
        let mut rest = hops.to_vec();
        let first = rest.remove(n);
        for mut order in orders(&rest) {
            order.insert(0, first);
            if !order.windows(2).any(|w| w == [Squid, Dante]) && !all.contains(&order) {
                all.push(order);
            }
        }
    }
    all
}

#[test]
fn two_ekidens_and_a_dante_in_every_order() {
    let Some(site) = Site::start() else { return };
    let orders = orders(&[Ekiden, Ekiden, Dante]);
    assert_eq!(orders.len(), 3);
    for order in orders {
        if through(&site, &order).is_none() {
            return;
        }
    }
}

#[test]
fn two_ekidens_a_dante_and_a_squid_in_every_order() {
    let Some(site) = Site::start() else { return };
    let orders = orders(&[Ekiden, Ekiden, Dante, Squid]);
    assert_eq!(orders.len(), 9);
    for order in orders {
        if through(&site, &order).is_none() {
            return;
        }
    }
}

/// The first Ekiden lays the chain through proxies that know nothing of each other.
#[test]
fn one_ekiden_lays_the_whole_chain() {
    let Some(site) = Site::start() else { return };
    let hops = [("near", Ekiden), ("middle", Dante), ("far", Squid)];
    let mut tables = String::new();
    let mut running = Vec::new();
    for (name, hop) in hops {
        let Some(peer) = start(hop, None) else { return };
        tables += &format!("[upstream.{name}]\nurl = \"{}\"\n", url(hop, &peer));
        running.push(peer);
    }
    let chains = [
        "near > middle > far",
        "near > far > middle",
        "middle > near > far",
        "middle > far > near",
        "far > near > middle",
        "far > middle > near",
    ];
    for chain in chains {
        // Every upstream is named, since one that no route uses is a mistake.
        let route = format!("{tables}[[route]]\nthrough = [\"{chain}\"]\n");
        let Some(first) = accelerator(&route) else { return };
        if fetch(&site, Ekiden, &first, chain).is_none() {
            return;
        }
    }
}

/// HTTP proxies within TLS: squid behind HAProxy, and another Ekiden; by an authority of one's own.
#[test]
fn an_ekiden_goes_through_proxies_within_tls() {
    let Some(site) = Site::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let pem = |label: &str, bytes: &[u8]| {
        let text = STANDARD.encode(bytes);
        format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
    };
    let (certificate, key) = (
        pem("CERTIFICATE", made.cert.der()),
        pem("PRIVATE KEY", &made.signing_key.serialize_der()),
    );
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let both = write("both.pem", &format!("{certificate}{key}"));
    let (certificate, key) = (write("certificate.pem", &certificate), write("key.pem", &key));

    let Some(squid) = start(Squid, None) else { return };
    let options = Start::default();
    let Some(front) = present(haproxy::tls(&options, squid.address, both.as_ref())) else { return };
    let tls = format!("[tls]\ncertificate = \"{certificate}\"\nkey = \"{key}\"\n");
    let Some(other) = accelerator(&tls) else { return };
    for peer in [&front, &other] {
        let port = peer.address.port();
        let Some(first) = accelerator(&format!(
            "[upstream.next]\nurl = \"https://localhost:{port}\"\nca = \"{certificate}\"\n[[route]]\nthrough = [\"next\"]\n"
        )) else {
            return;
        };
        if fetch(&site, Ekiden, &first, &format!("{} within TLS", peer.name)).is_none() {
            return;
        }
    }
}
