//! Clients that ask for names of slow servers, and others.

use super::*;
use std::net::IpAddr;

/// From this address of loopback.
fn ask_from(ip: [u8; 4], at: SocketAddr, text: &str) -> Message {
    let socket = UdpSocket::bind((IpAddr::from(ip), 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.send_to(&query(text, RecordType::A, None).to_vec().unwrap(), at).unwrap();
    let mut buffer = [0; 4_096];
    let n = socket.recv(&mut buffer).unwrap();
    Message::from_vec(&buffer[..n]).unwrap()
}

#[test]
fn a_slow_zone_of_one_client_takes_no_name_of_another() {
    let server = Server::start(|query, _| {
        let name = query.queries[0].name().to_lowercase().to_ascii();
        if name.ends_with("slow.example.") { vec![] } else { addresses(query, &["192.0.2.7"], 60) }
    });
    let (relay, at) = relay(server.at.into(), |dns| dns.rate = 10_000);
    let socket = UdpSocket::bind(loopback(0)).unwrap();
    for n in 0..600 {
        let message = query(&format!("n{n}.slow.example."), RecordType::A, None);
        socket.send_to(&message.to_vec().unwrap(), at).unwrap();
        // none is lost in a queue of the kernel
        if n % 50 == 49 {
            wait_for("the questions before", || dns(&relay).asked > n);
        }
    }
    for n in 0..20 {
        let reply = ask_from([127, 0, 0, 2], at, &format!("n{n}.example."));
        assert_eq!(found(&reply), ["192.0.2.7"], "another client");
        let reply = ask_from([127, 0, 0, 1], at, &format!("m{n}.example."));
        assert_eq!(found(&reply), ["192.0.2.7"], "the same");
    }
    let seen = dns(&relay);
    assert_eq!((seen.asked, seen.questions_udp), (640, 640));
    assert!(seen.failed >= 600 - 256, "{}", seen.failed);
}
