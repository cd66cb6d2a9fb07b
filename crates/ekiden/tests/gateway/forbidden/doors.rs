//! What clients ask for: forwarded ports, the PROXY protocol, UDP over HTTP, and the script for browsers.

use super::canary::{Canary, PORT, is_reset, list, name_server};
use crate::network::{Network, PATIENCE_OF_SILENCE};
use crate::relayed::access_log;
use ekiden_linux::namespaces::netns::place;
use ekiden_testkit::forbidden::{ADDRESSES, PORTS, SPELLINGS};
use ekiden_testkit::{Daemon, Home, PATIENCE, wait_for};
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;

const COMMON: &str = "control = \"DIR/ekiden.sock\"\n[management]\nlisten = \"off\"\n\
    [log]\naccess = \"DIR/access\"\n";
/// Clients on the Internet, to which private addresses are closed, too.
const STRANGERS: &str = "[[rule]]\nfrom = [\"9.9.9.2\", \"8.8.8.8\"]\naction = \"allow\"\n";

fn serve(network: &Network, more: &str) -> Daemon {
    let home = Home::new(env!("CARGO_BIN_EXE_ekiden"), &format!("{COMMON}{more}{STRANGERS}"));
    let mut command = home.command(&["serve", "--listen", "127.0.0.1:0"]);
    place(&mut command, &network.gateway).unwrap();
    Arc::clone(&home).serve_by(command)
}

/// How it stands in a URL and in a configuration.
fn host(at: &IpAddr) -> String {
    if at.is_ipv6() { format!("[{at}]") } else { at.to_string() }
}

/// A port for each address of the list, and one for a name of it.
pub(super) fn forwards_reach_nothing_forbidden(network: &Network) {
    let canary = Canary::start(network);
    name_server(network);
    let mut config = "[dns]\nservers = [\"9.9.9.2\"]\n".to_owned();
    let (by_address, by_name) = (20_000, 21_000);
    for (nth, at, _) in list() {
        for (base, to) in [(by_address, host(&at)), (by_name, format!("a{nth}.test"))] {
            let port = base + nth;
            let _ = write!(
                config,
                "[[forward]]\nlisten = [\"9.9.9.1:{port}\"]\nto = \"{to}:{PORT}\"\nprotocol = \"both\"\n"
            );
        }
    }
    let daemon = serve(network, &config);
    for (nth, at, kind) in list() {
        for base in [by_address, by_name] {
            let to = SocketAddr::new([9, 9, 9, 1].into(), (base + nth) as u16);
            assert!(is_reset(&network.up, to, b"x"), "{at} was reached");
            let client = network.up.run(|| UdpSocket::bind("9.9.9.2:0")).unwrap().unwrap();
            client.send_to(b"x", to).unwrap();
        }
        let why = format!("{} is {kind}", at.to_canonical());
        wait_for("its line", || access_log(&daemon).contains(&why));
    }
    let all = 2 * list().len() as u64;
    wait_for("the refusals", || daemon.status()["totals"]["refused"].as_u64() == Some(all));
    wait_for("refused datagrams", || daemon.status()["udp"]["refused"].as_u64() == Some(all));
    assert_eq!(canary.seen(), [] as [IpAddr; 0]);
}

const TRUSTED: &str = "proxy_protocol_from = [\"127.0.0.1\"]\n";

/// A trusted proxy's headers about a client on the Internet. Where it says that the client went is of no account.
fn headers() -> [Vec<u8>; 2] {
    let mut binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    binary.extend_from_slice(&[8, 8, 8, 8, 127, 0, 0, 1]);
    binary.extend_from_slice(&[0x12, 0x34, 0x1b, 0xa8]);
    [b"PROXY TCP4 8.8.8.8 127.0.0.1 4660 7080\r\n".to_vec(), binary]
}

/// The answer's head to bytes behind the header.
fn asked(network: &Network, daemon: &Daemon, header: &[u8], request: &str) -> String {
    let dialled = network.gateway.run(|| TcpStream::connect(daemon.address)).unwrap();
    let mut stream = dialled.unwrap_or_else(|error| panic!("{request}: {error}"));
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[header, request.as_bytes()].concat()).unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

fn access(more: &str) -> String {
    format!("[access]\n{more}")
}

/// Whether it is a refusal: by the rules, or as no destination.
fn is_refusal(head: &str) -> bool {
    ["400", "403", "404", "421", "505", "508"]
        .iter()
        .any(|code| head.starts_with(&format!("HTTP/1.1 {code} ")))
}

pub(super) fn clients_of_proxies_reach_nothing_forbidden(network: &Network) {
    let canary = Canary::start(network);
    let daemon = serve(network, &access(TRUSTED));
    for header in headers() {
        for (_, at, kind) in list() {
            let to = format!("{}:{PORT}", host(&at));
            for request in [
                format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n"),
                format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n\r\n"),
            ] {
                let head = asked(network, &daemon, &header, &request);
                assert!(head.starts_with("HTTP/1.1 403 "), "{request}: {head}");
            }
            let why = format!("{} is {kind}", at.to_canonical());
            wait_for("its line", || access_log(&daemon).contains(&why));
        }
        for spelled in SPELLINGS {
            let request =
                format!("CONNECT {spelled}:{PORT} HTTP/1.1\r\nHost: {spelled}:{PORT}\r\n\r\n");
            let head = asked(network, &daemon, &header, &request);
            assert!(is_refusal(&head), "{spelled}: {head}");
        }
        for port in PORTS {
            let request =
                format!("CONNECT 9.9.9.2:{port} HTTP/1.1\r\nHost: 9.9.9.2:{port}\r\n\r\n");
            let head = asked(network, &daemon, &header, &request);
            assert!(is_refusal(&head), "{port}: {head}");
        }
    }
    wait_for("its line", || access_log(&daemon).contains("\"client\":\"8.8.8.8:4660\""));
    // who the header is about is judged, and not who sent it
    let stranger = b"PROXY TCP4 9.9.9.9 9.9.9.1 1 2\r\n";
    let head = asked(
        network,
        &daemon,
        stranger,
        "CONNECT 9.9.9.2:7080 HTTP/1.1\r\nHost: 9.9.9.2:7080\r\n\r\n",
    );
    assert!(!head.contains(" 200 "), "{head}");
    assert_eq!(canary.seen(), [] as [IpAddr; 0]);
    let ok = asked(
        network,
        &daemon,
        &headers()[0],
        "CONNECT 9.9.9.2:7080 HTTP/1.1\r\nHost: 9.9.9.2:7080\r\n\r\n",
    );
    assert!(ok.starts_with("HTTP/1.1 200 "), "{ok}");
    wait_for("the canary", || !canary.seen().is_empty());
}

pub(super) fn udp_over_http_reaches_nothing_forbidden(network: &Network) {
    let canary = Canary::start(network);
    let daemon = serve(network, &access(TRUSTED));
    let [header, _] = headers();
    // with a datagram that does not wait for the answer
    let ask = |host: &str, port: &str| {
        let request = format!(
            "GET /.well-known/masque/udp/{host}/{port}/ HTTP/1.1\r\nHost: relay\r\nConnection: Upgrade\r\n\
             Upgrade: connect-udp\r\nCapsule-Protocol: ?1\r\n\r\n\0\x02\0x"
        );
        asked(network, &daemon, &header, &request)
    };
    for (text, kind) in ADDRESSES {
        let escaped = text.replace(':', "%3A");
        let head = ask(&escaped, "7080");
        assert!(head.starts_with("HTTP/1.1 403 "), "{text}: {head}");
        let at: IpAddr = text.parse().unwrap();
        let why = format!("{} is {kind}", at.to_canonical());
        wait_for("its line", || access_log(&daemon).contains(&why));
    }
    // as they are, and with everything escaped that may be
    let all = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    for spelled in SPELLINGS {
        let plain = spelled.replace(['#', '\\', ' '], "%23");
        for host in [plain.replace(':', "%3A"), all(spelled)] {
            let head = ask(&host, "7080");
            assert!(is_refusal(&head), "{host}: {head}");
        }
    }
    for port in PORTS.iter().filter(|port| !port.contains(' ')) {
        let head = ask("9.9.9.2", port);
        assert!(is_refusal(&head), "{port}: {head}");
    }
    std::thread::sleep(PATIENCE_OF_SILENCE);
    assert_eq!(canary.seen(), [] as [IpAddr; 0]);
    assert!(ask("9.9.9.2", "7080").starts_with("HTTP/1.1 101 "));
    wait_for("the datagram", || !canary.seen().is_empty());
}

/// Its names are answered by the relay itself, and asking another host for them is a request as any.
pub(super) fn the_browsers_script_is_no_way_around(network: &Network) {
    let canary = Canary::start(network);
    let daemon = serve(network, &access(TRUSTED));
    let [header, _] = headers();
    for path in ["/proxy.pac", "/wpad.dat"] {
        for (_, at, _) in list() {
            let to = format!("{}:{PORT}", host(&at));
            let request = format!("GET http://{to}{path} HTTP/1.1\r\nHost: {to}\r\n\r\n");
            let head = asked(network, &daemon, &header, &request);
            assert!(head.starts_with("HTTP/1.1 403 "), "{request}: {head}");
            // a host in the field alone leads nowhere: the answer is the script
            let request = format!("GET {path} HTTP/1.1\r\nHost: {to}\r\n\r\n");
            let head = asked(network, &daemon, &header, &request);
            assert!(
                head.starts_with("HTTP/1.1 200 ") && head.contains("ns-proxy-autoconfig"),
                "{head}"
            );
        }
        for spelled in SPELLINGS {
            let request = format!(
                "GET http://{spelled}:{PORT}{path} HTTP/1.1\r\nHost: {spelled}:{PORT}\r\n\r\n"
            );
            let head = asked(network, &daemon, &header, &request);
            assert!(is_refusal(&head), "{spelled}: {head}");
        }
    }
    assert_eq!(canary.seen(), [] as [IpAddr; 0]);
}
