//! A peer that takes flows and never answers.

use super::*;
use ekiden_model::units::Rate;
use ekiden_tunnel::core::Terms;
use ekiden_tunnel::trust::{self, Peer, PeerKind, Token};
use std::net::Ipv4Addr;
use std::time::Duration;
use tempfile::TempDir;

/// Longer than anything here takes: a test fails then, and does not hang.
const LIMIT: Duration = Duration::from_secs(60);

struct Pair {
    near: Tunnels,
    _far: Tunnels,
    incoming: mpsc::Receiver<Incoming>,
    _folder: TempDir,
}

/// `near` has joined a relay that serves no flow.
fn pair() -> Pair {
    let folder = tempfile::tempdir().unwrap();
    let stores = ["near", "far"].map(|name| Store::new(folder.path().join(name)));
    let start = |nth: usize, listen: Vec<SocketAddr>| {
        let mut settings = Settings::default();
        settings.tunnel.state = Some(stores[nth].directory().to_owned());
        settings.tunnel.listen = listen;
        Tunnels::start(&settings).unwrap()
    };
    let (secret, rate) = (trust::random().unwrap(), Rate::from_bits_per_second(20_000_000));
    let kind = PeerKind::Invited { invitation: trust::hash(&secret).into() };
    let (name, terms) = ("near".to_owned(), Terms::new(rate, rate));
    stores[1].add(Peer { name, kind, terms }).unwrap();
    let (far, incoming) = start(1, vec!["127.0.0.1:0".parse().unwrap()]);
    let fingerprint = stores[1].credentials().unwrap().fingerprint();
    let address = far.peers.addresses()[0].to_string();
    let token = Token { address, fingerprint, secret, send: rate, receive: rate, made: None };
    stores[0].add(token.peer("far".to_owned())).unwrap();
    let (near, _) = start(0, vec![]);
    Pair { near, _far: far, incoming, _folder: folder }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flow_without_an_answer_fails_in_time_and_the_peer_learns_of_it() {
    let mut pair = pair();
    let to = Destination { host: Host::from_name("example.org").unwrap(), port: 80 };
    let (client, owner) = (Ipv4Addr::LOCALHOST.into(), FlowOwner::OWN);
    let asked = FlowRequest { to: &to, client, owner, hops: 0, dscp: None };
    let opening = pair.near.open("far", asked, LIMIT.into(), Some(Span::from_millis(50)));
    let opened = tokio::time::timeout(LIMIT, opening).await.expect("it waits for ever");
    let failure = opened.unwrap_err();
    assert_eq!(failure.kind, FailureKind::TimedOut, "{failure}");
    assert!(failure.text.contains("\"far\" did not answer within"), "{failure}");
    let flow = pair.incoming.recv().await.unwrap().flow.into_stream(|_, _, _| ());
    assert!(tokio::time::timeout(LIMIT, flow.broken()).await.is_ok(), "it is kept for nobody");
}
