//! The whole list of forbidden addresses by UDP over HTTP/2 (RFC 9298), where the answer comes before any datagram.
use crate::connect_udp::extended;
use crate::tls::{Shown, http2};
use ekiden_testkit::forbidden::{ADDRESSES, PORTS, PRIVATE, SPELLINGS};
use std::net::UdpSocket;
use tokio::task::block_in_place;

/// Every byte of it escaped.
fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn udp_over_http_2_reaches_nothing_forbidden() {
    let canary = UdpSocket::bind("[::]:0").unwrap();
    canary.set_nonblocking(true).unwrap();
    let own = canary.local_addr().unwrap().port().to_string();
    let shown = Shown::new();
    let relay = block_in_place(|| {
        crate::common::wire::Relay::with(|settings| {
            shown.settings(settings);
            settings.access.allow_destinations.clear();
        })
    });
    let (mut client, driving) = http2(&shown, &relay).await;
    let path = |host: &str, port: &str| {
        format!("/.well-known/masque/udp/{}/{}/", escaped(host), escaped(port))
    };
    for (address, kind) in ADDRESSES {
        // this client is on loopback, to which private ones are open
        if *kind != PRIVATE {
            let (status, ..) = extended(&mut client, path(address, &own)).await;
            assert_eq!(status, 403, "{address}");
        }
    }
    for host in SPELLINGS {
        let (status, ..) = extended(&mut client, path(host, &own)).await;
        assert!([400, 403, 404].contains(&status), "{host}: {status}");
    }
    for port in PORTS {
        let (status, ..) = extended(&mut client, path("9.9.9.9", port)).await;
        assert!([400, 404].contains(&status), "{port}: {status}");
    }
    assert!(canary.recv_from(&mut [0; 9]).is_err(), "somebody arrived");
    driving.abort();
    block_in_place(|| {
        relay.settles();
        drop(relay);
    });
}
