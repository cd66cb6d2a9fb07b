use super::*;
use crate::load::servers::serve;
use crate::peers::ports;
use std::io::{Read, Write};

fn sources() -> Vec<Ipv4Addr> {
    vec![Ipv4Addr::new(127, 0, 2, 1), Ipv4Addr::new(127, 0, 2, 2)]
}

fn web(load: Load) -> Generator {
    let addresses = (1..=2).map(|n| ports::free_on(Ipv4Addr::new(127, 0, 1, n)).unwrap());
    Generator::web(Servers::web(load, addresses.collect()).unwrap(), sources()).unwrap()
}

#[test]
fn small_documents_are_read_to_their_end_and_counted() {
    let mut generator = web(Load::Connects);
    generator.open(8, Duration::from_secs(10)).unwrap();
    generator.run(Duration::from_millis(300)).unwrap();
    let counts = generator.counts();
    assert!(counts.completed > 20, "{counts:?}");
    assert_eq!(counts.failures, 0, "{counts:?}");
    // those under way have part of theirs
    let [whole, at_most] = [0, 8].map(|more| (counts.completed + more) * MESSAGE as u64);
    assert!((whole..=at_most).contains(&counts.bytes), "{counts:?}");
}

#[test]
fn documents_without_end_go_on_while_it_runs() {
    let mut generator = web(Load::Bulk);
    generator.open(3, Duration::from_secs(10)).unwrap();
    let before = generator.counts().bytes;
    generator.run(Duration::from_millis(300)).unwrap();
    assert!(generator.counts().bytes > before + (1 << 20));
    assert_eq!(generator.standing(), 3);
}

#[test]
fn a_short_answer_is_a_failure() {
    let short = |mut stream: std::net::TcpStream| {
        let mut request = [0; 512];
        let _ = stream.read(&mut request);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\nnot so much");
    };
    let server = serve(short).unwrap();
    let mut servers = Servers::web(Load::Connects, Vec::new()).unwrap();
    servers.addresses.push(server.address);
    let mut generator = Generator::web(servers, sources()).unwrap();
    generator.open(1, Duration::from_secs(10)).unwrap();
    generator.run(Duration::from_millis(200)).unwrap();
    let counts = generator.counts();
    assert_eq!(counts.completed, 0);
    assert!(counts.failures > 0, "{counts:?}");
}
