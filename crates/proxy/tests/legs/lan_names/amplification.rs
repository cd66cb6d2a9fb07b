//! How much larger than its question a reply may be, where nothing proves the asker's address.

use super::*;

/// The smallest question with EDNS: a header, the root, OPT.
const SMALLEST: usize = 12 + 5 + 11;

/// The bytes of question and reply.
fn lengths(at: SocketAddr, message: &Message) -> (usize, Vec<u8>) {
    let socket = UdpSocket::bind(loopback(0)).unwrap();
    socket.connect(at).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let asked = message.to_vec().unwrap();
    socket.send(&asked).unwrap();
    let mut buffer = [0; 65_535];
    let n = socket.recv(&mut buffer).unwrap();
    (asked.len(), buffer[..n].to_vec())
}

#[test]
fn an_unproven_address_gets_no_long_reply() {
    // as many addresses as fit, and then more
    let server = Server::start(|query, stream| {
        let text = query.queries[0].name().to_ascii();
        let count = if text == "." { 80 } else { text[1..text.len() - 1].parse().unwrap() };
        let data = (0..count).map(|n| RData::A(A::new(192, 0, 2, n))).collect();
        let whole = reply(query, ResponseCode::NoError, data, 60);
        let fits = stream || count < 80;
        vec![if fits { whole } else { whole.truncate() }.to_vec().unwrap()]
    });
    let (_relay, at) = relay(server.at.into(), |dns| dns.rate = 10_000);
    let mut largest = 0.0_f64;
    for name in [".", "n1.", "n20.", "n40.", "n60.", "n70.", "n79.", "n120.", "n250."] {
        for edns in [None, Some(0), Some(512), Some(1_232), Some(4_096), Some(65_535)] {
            let (asked, reply) = lengths(at, &query(name, RecordType::A, edns));
            let most = edns.map_or(512, |size| size.clamp(512, 1_232));
            assert!(reply.len() <= usize::from(most), "{name}: {} bytes, {edns:?}", reply.len());
            largest = largest.max(reply.len() as f64 / asked as f64);
        }
    }
    println!("the largest reply has {largest:.1} times the bytes of its question");
    assert!((40.0..=1_232.0 / SMALLEST as f64).contains(&largest), "{largest}");
    // a question for everything, and what is refused, are answered in few bytes
    for kind in [RecordType::ANY, RecordType::AXFR, RecordType::IXFR] {
        let (asked, reply) = lengths(at, &query("n250.", kind, Some(4_096)));
        assert!(reply.len() <= asked + 40, "{kind}: {} bytes for {asked}", reply.len());
    }
    let mut not_recursive = query("n250.", RecordType::A, Some(4_096));
    not_recursive.metadata.recursion_desired = false;
    let (asked, reply) = lengths(at, &not_recursive);
    assert!(reply.len() <= asked, "{} bytes for {asked}", reply.len());
}

/// Bytes that are sent to one address while it is asked for as often as can be, in so many seconds.
#[test]
fn the_rate_bounds_what_is_sent_to_one_address() {
    let server = Server::start(|query, _| {
        let data = (0..80).map(|n| RData::A(A::new(192, 0, 2, n))).collect();
        vec![reply(query, ResponseCode::NoError, data, 60).to_vec().unwrap()]
    });
    let (relay, at) = relay(server.at.into(), |dns| dns.rate = 50);
    ask(at, ".", RecordType::A);
    let socket = UdpSocket::bind(loopback(0)).unwrap();
    socket.connect(at).unwrap();
    let message = query(".", RecordType::A, Some(1_232)).to_vec().unwrap();
    let begun = std::time::Instant::now();
    let sent = 2_000;
    for _ in 0..sent {
        let _ = socket.send(&message);
        std::thread::sleep(Duration::from_micros(200));
    }
    wait_for("all questions", || {
        let seen = dns(&relay);
        seen.questions_udp > sent
    });
    let seconds = begun.elapsed().as_secs_f64();
    let answered = sent - dns(&relay).limited;
    // twice the rate at once, then the rate
    assert!((answered as f64) <= 100.0 + 50.0 * seconds + 1.0, "{answered} in {seconds} s");
    assert!(dns(&relay).limited > 0);
}
