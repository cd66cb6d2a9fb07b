//! Names that the relay itself connects to.

use super::*;
use ekiden_proxy::settings::Family;

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
